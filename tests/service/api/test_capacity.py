"""More requests than the service has connections and threads for, on both databases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from service.api import capacity
from service.store.repositories import JobRepository
from service.store.session import Database
from tests.support import event_loop
from tests.support.service.live import running
from tests.support.service.scenarios import submit

NUM_CONNECTIONS = 3
PATIENCE_SECONDS = 120.0


@pytest.fixture
def small_database(migrated_database_url: str) -> Iterator[Database]:
    """A migrated database of each kind with few connections."""
    database = Database(migrated_database_url, num_connections=NUM_CONNECTIONS)
    yield database
    database.close()


@contextmanager
def _locked(database: Database, job_id: str) -> Iterator[None]:
    """Another process holds the job's row: on SQLite, all writing."""
    other = Database(database.url, num_connections=1)
    with other.writing() as session:
        JobRepository(session).get_locked(job_id)
        yield
    other.close()


async def _until_all_connections_are_taken(database: Database) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while database.engine.pool.checkedout() < NUM_CONNECTIONS:  # type: ignore[attr-defined] # a QueuePool has it
        assert time.monotonic() < deadline, "the requests did not get there"
        await asyncio.sleep(0.05)


def _client(url: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS, limits=limits)


async def _pause_from_all_sides(url: str, database: Database, job_id: str) -> None:
    """Far more requests than there are threads wait for a locked job; probes and pages without SQL answer meanwhile."""
    async with _client(url) as http:
        with _locked(database, job_id):
            requests = [asyncio.create_task(http.post(f"/v1/jobs/{job_id}/pause")) for _ in range(80)]
            await _until_all_connections_are_taken(database)
            ready = await asyncio.gather(*(http.get("/readyz") for _ in range(10)))
            assert [(answer.status_code, answer.json()["num_workers"]) for answer in ready] == [(200, 0)] * 10
            for path in ("/healthz", "/docs", "/static/icon.svg", "/v1/search-spaces"):
                assert (await http.get(path)).status_code == 200, path
            assert not any(request.done() for request in requests)
        answers = await asyncio.gather(*requests)
    assert {answer.status_code for answer in answers} <= {200, 409}, answers[-1].text
    assert any(answer.status_code == 200 for answer in answers)


@pytest.mark.slow
def test_requests_wait_for_their_turn_and_probes_do_not(small_database: Database) -> None:
    job_id = submit(small_database)
    with running(small_database) as url:
        event_loop.run(_pause_from_all_sides(url, small_database, job_id))


async def _ask_while_all_connections_are_taken(url: str, database: Database, job_id: str) -> None:
    async with _client(url) as http:
        with _locked(database, job_id):
            requests = [asyncio.create_task(http.post(f"/v1/jobs/{job_id}/pause")) for _ in range(NUM_CONNECTIONS)]
            await _until_all_connections_are_taken(database)
            answer = await http.get("/v1/jobs")
        assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
        assert int(answer.headers["Retry-After"]) > 0
        problem = answer.json()
        assert (problem["type"], problem["title"]) == ("urn:shampoo-tuner:problem:busy", "The service is busy")
        assert f"works on {NUM_CONNECTIONS} requests at once" in problem["detail"]
        await asyncio.gather(*requests)
        assert (await http.get("/v1/jobs")).status_code == 200


@pytest.mark.slow
def test_a_request_that_gets_no_turn_is_told_that_the_service_is_busy(
    small_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = submit(small_database)
    with running(small_database) as url:
        monkeypatch.setattr(capacity, "WAIT_SECONDS", 0.5)
        event_loop.run(_ask_while_all_connections_are_taken(url, small_database, job_id))
