"""What a session sees, on both databases."""

from __future__ import annotations

from service.store.repositories import JobRepository
from service.store.session import Database
from tests.service.scenarios import submit


def test_a_reading_session_sees_one_state_of_the_database(database: Database) -> None:
    submit(database)
    with database.reading() as session:
        before = JobRepository(session).page(limit=5)
        submit(database)
        assert len(JobRepository(session).page(limit=5)) == len(before) == 1
    with database.reading() as session:
        assert len(JobRepository(session).page(limit=5)) == 2
