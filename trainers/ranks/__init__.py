"""Ranks as processes: their group, its meshes, what they hear from outside, and ranks that are lost. Never a model."""
