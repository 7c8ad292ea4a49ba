"""Alembic migrations of the store, forward and back. A version never imports the models,
which change after it.
"""
