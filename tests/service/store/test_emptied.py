"""The PostgreSQL database that one test after the other finds new."""

from __future__ import annotations

import pytest
from sqlalchemy import select, text

from service.access.projects import Quotas, create_project
from service.domain import DEFAULT_PROJECT
from service.store.models import Event, Job, Project
from service.store.session import Database
from tests.support.service.databases.emptied import EmptiedDatabases
from tests.support.service.scenarios import NOW, submit


@pytest.fixture
def emptied(emptied_databases: EmptiedDatabases) -> EmptiedDatabases:
    return emptied_databases


def _content(database: Database) -> tuple[list[int], int, list[str], str | None]:
    """The events, the number of jobs, the projects, and why nothing was written."""
    with database.reading() as session:
        return (
            list(session.scalars(select(Event.id))),
            len(session.scalars(select(Job.id)).all()),
            list(session.scalars(select(Project.name))),
            database.writes.why_not,
        )


def _write(database: Database) -> None:
    with database.writing() as session:
        create_project(session, "other", Quotas(), now=NOW)
    submit(database, project="other")


def test_the_next_borrower_finds_what_migrations_make_and_the_first_numbers(emptied: EmptiedDatabases) -> None:
    with emptied.lent() as database:
        assert _content(database) == ([], 0, [DEFAULT_PROJECT], None)
        _write(database)
        first = _content(database)
        assert first[1:3] == (1, [DEFAULT_PROJECT, "other"])
        with database.writing() as session:
            session.execute(text("DELETE FROM projects"))
    with emptied.lent() as again:
        assert again is database
        assert _content(again) == ([], 0, [DEFAULT_PROJECT], None)
        _write(again)
        assert _content(again) == first


def test_what_a_borrower_has_left_open_holds_nothing_and_writes_nothing(emptied: EmptiedDatabases) -> None:
    with emptied.lent() as database:
        other = Database(database.url)
        left = other.engine.connect()
        left.execute(text("LOCK TABLE projects IN ACCESS EXCLUSIVE MODE"))
    with emptied.lent() as database:
        assert _content(database) == ([], 0, [DEFAULT_PROJECT], None)
    left.invalidate()
    left.close()
    other.close()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE jobs ADD COLUMN more INTEGER",
        "ALTER TABLE jobs ALTER COLUMN owner TYPE VARCHAR(7)",
        "DROP TABLE recommendations",
        "CREATE INDEX more ON jobs (owner)",
        "ALTER TABLE jobs ADD CONSTRAINT more CHECK (priority < 7)",
    ],
)
def test_a_database_whose_tables_were_changed_is_lent_no_more(emptied: EmptiedDatabases, change: str) -> None:
    with emptied.lent() as database, database.writing() as session:
        session.execute(text(change))
    with emptied.lent() as another:
        assert another.url != database.url
        assert _content(another) == ([], 0, [DEFAULT_PROJECT], None)
