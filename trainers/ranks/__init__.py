"""Ranks as processes: their group, what they hear from outside, and ranks that are lost. Never a model."""
