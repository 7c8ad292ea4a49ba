"""Writing while the database is out of reach."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from service.store.repositories import WorkerRepository
from service.store.retry import write_with_retries
from service.store.session import Database
from service.use_cases.leases import register_worker
from tests.support.waiting import PATIENCE_SECONDS


class Outage:
    """Refuses so many transactions of a database, while it is entered."""

    def __init__(self, database: Database, *, length: int) -> None:
        self.left = length
        self.pauses: list[float] = []
        self._engine = database.engine

    def __enter__(self) -> Outage:
        event.listen(self._engine, "begin", self._refuse)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "begin", self._refuse)

    def _refuse(self, connection: Any) -> None:
        if self.left > 0:
            self.left -= 1
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database is locked"))

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def add_worker(session: Session) -> str:
    return register_worker(session, host="here", pid=1, now=datetime.now(UTC))


def test_a_write_is_done_once_when_the_database_comes_back(sqlite_database: Database) -> None:
    with Outage(sqlite_database, length=3) as outage:
        worker_id = write_with_retries(
            sqlite_database, add_worker, give_up_seconds=PATIENCE_SECONDS, sleep=outage.pause
        )
    assert worker_id.startswith("worker_")
    assert outage.pauses == pytest.approx([0.1, 0.2, 0.4])
    with sqlite_database.reading() as session:
        assert WorkerRepository(session).alive_since(datetime(2020, 1, 1, tzinfo=UTC)) == 1


def test_a_long_outage_is_an_error(sqlite_database: Database) -> None:
    with (
        Outage(sqlite_database, length=1000) as outage,
        pytest.raises(OperationalError, match="database is locked"),
    ):
        write_with_retries(sqlite_database, add_worker, give_up_seconds=0.05, sleep=outage.pause)


def test_nobody_waits_who_may_not(sqlite_database: Database) -> None:
    with Outage(sqlite_database, length=1000) as outage, pytest.raises(OperationalError):
        write_with_retries(sqlite_database, add_worker, give_up_seconds=60, may_wait=lambda: False, sleep=outage.pause)
    assert outage.pauses == []


def test_a_mistake_of_the_caller_is_not_tried_again(sqlite_database: Database) -> None:
    def add_twice(session: Session) -> None:
        worker_id = add_worker(session)
        session.execute(text("INSERT INTO workers SELECT * FROM workers WHERE id = :id"), {"id": worker_id})

    pauses: list[float] = []
    with pytest.raises(IntegrityError):
        write_with_retries(sqlite_database, add_twice, give_up_seconds=60, sleep=pauses.append)
    assert pauses == []
