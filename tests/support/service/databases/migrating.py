"""A process that only migrates: it loads nothing else of the service, nor of its tests."""

from __future__ import annotations

from service.store.migrate import migrate
from service.store.session import Database


def migrate_url(url: str) -> None:
    database = Database(url)
    migrate(database)
    database.close()
