"""Alembic migrations of the store, forward and back. A version never imports the models,
which change after it.
"""

# Not Alembic's default name: another library that keeps its tables in the same database could use that one.
VERSION_TABLE = "shampoo_tuner_version"
