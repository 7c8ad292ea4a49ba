"""Configs for models that were never tuned: from a project's tuned models and from built-in data. Nothing here trains,
or needs NumPy."""
