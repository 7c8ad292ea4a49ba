"""Typed search spaces and presets. Standard library only."""
