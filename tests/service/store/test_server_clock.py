"""The time of the service where machines' clocks differ: that of the database's server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from service.clock import utc_now
from service.store import server_clock
from service.store.session import Database

SLACK = timedelta(seconds=1.5)
"""Time that a busy machine may take between two looks at clocks, and less than is told of."""


class Machine:
    """A clock that is off."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(server_clock, "utc_now", machine)
    return machine


@pytest.fixture
def server(postgresql_url: str) -> Iterator[Database]:
    with closing(Database(postgresql_url)) as database:
        yield database


def use(database: Database) -> None:
    with database.reading() as session:
        session.execute(text("SELECT 1"))


def is_right(moment: datetime) -> bool:
    return abs(moment - datetime.now(UTC)) < SLACK


@pytest.mark.parametrize(("ahead", "told"), [(3600, "3600 s ahead of that of"), (-3600, "3600 s behind that of")])
def test_a_machine_whose_clock_is_off_goes_by_the_servers_and_is_told_once(
    ahead: float,
    told: str,
    server: Database,
    machine: Machine,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_clock, "LOOK_SECONDS", 0.0)
    machine.ahead = timedelta(seconds=ahead)
    assert not is_right(server.now()), "nothing was asked of the server yet"
    with caplog.at_level(logging.WARNING):
        use(server)
        use(server)
    assert is_right(server.now())
    assert [told in message for message in caplog.messages] == [True]


def test_a_clock_that_is_set_while_the_service_runs_is_looked_at_again_and_not_at_each_use(
    server: Database, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(server)
    machine.ahead = timedelta(hours=1)
    use(server)
    assert not is_right(server.now())
    monkeypatch.setattr(server_clock, "LOOK_SECONDS", 0.0)
    use(server)
    assert is_right(server.now())


def test_looks_leave_the_isolation_of_sessions_as_it_is(server: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_clock, "LOOK_SECONDS", 0.0)
    with server.reading() as reading, server.writing() as writing:
        levels = [session.execute(text("SHOW transaction_isolation")).scalar() for session in (reading, writing)]
    assert levels == ["repeatable read", "read committed"]


def test_an_embedded_database_has_the_clock_of_its_machine(sqlite_database: Database) -> None:
    assert sqlite_database.now is utc_now
