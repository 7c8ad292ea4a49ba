"""Readings of one trial: its curve, its output, its config to paste. Never a change of it."""
