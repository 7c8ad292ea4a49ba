"""Configs for models that were never tuned: from what a project tuned and what is built in. Nothing here trains, and
nothing computes what needs NumPy."""
