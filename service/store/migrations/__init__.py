"""Alembic migrations of the store, forward and back."""

# Not Alembic's default name: another library that keeps its tables in the same database could use that one.
VERSION_TABLE = "shampoo_tuner_version"
