"""A story that is written once and copied into the databases of many tests: writing it takes a second, copying it a
fiftieth."""

from __future__ import annotations

import copy
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import make_url

from service.store.session import Database
from tests.support.service.stories.jobs import Story


@contextmanager
def own_database(migrated: Path, directory: Path) -> Iterator[Database]:
    """A database for the original story: in this directory, a copy of a migrated SQLite file."""
    database = Database(f"sqlite:///{shutil.copyfile(migrated, directory / 'service.sqlite3')}")
    yield database
    database.close()


def copied_into(database: Database, story: Story) -> Story:
    """The story in another SQLite database, which it replaces completely; connections to it may be open."""
    with closing(_connected(story.database)) as source, closing(_connected(database)) as target:
        source.backup(target)
    copied = copy.copy(story)
    copied.database = database
    return copied


def _connected(database: Database) -> sqlite3.Connection:
    return sqlite3.connect(str(make_url(database.url).database))
