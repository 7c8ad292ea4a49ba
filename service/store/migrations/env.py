"""The script that Alembic runs: migrates the database of the connection it is given, or of the settings."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from service.settings import Settings
from service.store.models import Base
from service.store.session import VERSION_TABLE, Database


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        version_table=VERSION_TABLE,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def _run_migrations() -> None:
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _run(connection)
        return
    database = Database(Settings().resolved_database_url)
    database.make_file()
    try:
        with database.engine.connect() as own:
            _run(own)
            own.commit()
    finally:
        database.close()


_run_migrations()
