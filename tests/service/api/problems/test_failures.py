"""Failures of the service itself: an answer without internals, and never one of success."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Body, FastAPI
from httpx import ASGITransport, AsyncClient
from sqlalchemy import event

from service.api.dependencies import WriteSession
from service.errors import InvalidInput, ServiceBusy, ServiceError
from service.server.app import create_app
from service.settings import Access, Settings
from service.store.repositories import JobRepository, WorkerRepository
from service.store.session import Database
from service.use_cases.leases import register_worker
from tests.support import event_loop
from tests.support.service.databases.full_database import full
from tests.support.service.scenarios import NOW, submit


def _app_with(database: Database, path: str, endpoint: Any) -> FastAPI:
    app = create_app(Settings(allowed_hosts=("test",), access=Access.OPEN), database)
    app.post(path)(endpoint)
    return app


def _post(app: FastAPI, path: str, body: object = None) -> httpx.Response:
    async def post() -> httpx.Response:
        transport = ASGITransport(app, raise_app_exceptions=False)
        async with AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(path, json=body)

    return event_loop.run(post())


async def _fails() -> None:
    raise RuntimeError("secret")


def test_an_unexpected_error_is_a_500_without_internals(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    answer = _post(_app_with(sqlite_database, "/fails", _fails), "/fails")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def _takes_a_number(number: Annotated[int, Body(embed=True)]) -> int:
    return number


@pytest.mark.parametrize(("error", "status"), [(InvalidInput("number", "is odd"), 422), (ServiceBusy(2, 1.0), 503)])
def test_an_error_on_the_way_to_the_answer_of_an_invalid_body_is_answered(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, error: ServiceError, status: int
) -> None:
    async def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("service.api.problems.handlers.invalid_request", fails)
    answer = _post(_app_with(sqlite_database, "/number", _takes_a_number), "/number", {"number": "a"})
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert str(error) in answer.json()["detail"]


def _fails_at_commit(session: WriteSession) -> dict[str, bool]:
    # A job of no existing worker: the foreign key refuses it, on PostgreSQL and SQLite, when it is flushed.
    job = JobRepository(session).page(project=None, limit=1)[0]
    job.lease_worker_id = "worker_nope"
    return {"done": True}


def test_a_commit_that_fails_is_not_answered_with_success(database: Database) -> None:
    job_id = submit(database)
    answer = _post(_app_with(database, "/fails", _fails_at_commit), "/fails")
    assert answer.status_code == 500
    with database.reading() as session:
        assert JobRepository(session).get(job_id).lease_worker_id is None
        assert WorkerRepository(session).alive_since(NOW) == 0


def _grows(session: WriteSession) -> dict[str, bool]:
    for number in range(1000):  # more than fits in pages that are there
        register_worker(session, host="h" * 200, pid=number, now=NOW)
    return {"done": True}


def test_a_full_disk_of_the_database_is_told_as_such(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    with full(database):
        answer = _post(_app_with(database, "/grows", _grows), "/grows")
    assert (answer.status_code, answer.json()["detail"]) == (503, "the disk of the database is full")
    assert answer.headers["Retry-After"]
    assert "the disk of the database is full: " in caplog.text


def test_a_database_that_can_only_be_read_is_told_as_such(database: Database) -> None:
    of_sqlite = database.engine.dialect.name == "sqlite"
    reads_alone = "PRAGMA query_only=ON" if of_sqlite else "SET TRANSACTION READ ONLY"
    with closing(Database(database.url)) as standby:
        event.listen(standby.engine, "begin", lambda connection: connection.exec_driver_sql(reads_alone))
        answer = _post(_app_with(standby, "/grows", _grows), "/grows")
    assert (answer.status_code, answer.json()["detail"]) == (503, "the database can only be read")


def test_a_damaged_database_is_told_as_such(tmp_path: Path) -> None:
    file = tmp_path / "damaged.sqlite3"
    file.write_bytes(b"no database" * 1000)
    with closing(Database(f"sqlite:///{file}")) as damaged:
        answer = _post(_app_with(damaged, "/grows", _grows), "/grows")
    assert (answer.status_code, answer.json()["detail"]) == (503, "the database is damaged")
