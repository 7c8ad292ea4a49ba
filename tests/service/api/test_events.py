"""Streams of events: complete, in order, resumable, and over when the job is."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import make_url

from service.api import events
from service.api.routers import events as routes
from service.client import sse_messages
from service.domain import Phase
from service.store.repositories import EventRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import NOW, claimed_job, run_trial, submit
from tests.support.waiting import PATIENCE_SECONDS, wait_until


@contextmanager
def _open(http: httpx.Client, path: str, last_event_id: int | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    headers = {"Accept-Encoding": "gzip"}
    if last_event_id is not None:
        headers["Last-Event-ID"] = str(last_event_id)
    with http.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Cache-Control"] == "no-cache"
        assert "Content-Encoding" not in response.headers  # a compressor would hold events back
        yield (json.loads(data) for _, data in sse_messages(response.iter_bytes()))


def _stored(database: Database, job_id: str | None = None) -> list[int]:
    with database.reading() as session:
        return [event.id for event in EventRepository(session).after(0, project=None, job_id=job_id, limit=1000)]


def test_a_jobs_stream_tells_all_of_it_and_ends_with_its_final_state(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    submit(database)
    with _open(http, f"/v1/jobs/{job_id}/events") as stream:
        told = list(stream)
    assert [event["id"] for event in told] == _stored(database, job_id)
    assert {event["job_id"] for event in told} == {job_id}
    assert told[0]["kind"] == "job.state"
    assert told[0]["data"]["state"] == "queued"
    assert told[-1]["data"]["state"] == "succeeded"


def test_a_stream_goes_on_after_last_event_id_without_loss_or_repetition(
    http: httpx.Client, database: Database
) -> None:
    job_id = finished_job(database)
    ids = _stored(database, job_id)
    with _open(http, f"/v1/jobs/{job_id}/events") as stream:
        first = [next(stream)["id"] for _ in range(5)]
    with _open(http, f"/v1/jobs/{job_id}/events", last_event_id=first[-1]) as stream:
        rest = [event["id"] for event in stream]
    assert first + rest == ids
    with _open(http, f"/v1/jobs/{job_id}/events?after={ids[-3]}") as stream:
        assert [event["id"] for event in stream] == ids[-2:]


def test_after_the_last_event_of_a_finished_job_there_is_no_content(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    last = _stored(database, job_id)[-1]
    answer = http.get(f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": str(last)})
    assert (answer.status_code, answer.content) == (204, b"")


def test_an_id_of_another_database_begins_anew(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    with _open(http, f"/v1/jobs/{job_id}/events", last_event_id=10**9) as stream:
        assert [event["id"] for event in stream] == _stored(database, job_id)


@pytest.fixture
def impatient_http(sqlite_http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> httpx.Client:
    """A client to which a stream that stays silent is an error."""
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", PATIENCE_SECONDS)
    sqlite_http.timeout = 20
    return sqlite_http


def _copied(source: str | Path, target: str | Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)


@pytest.mark.slow
def test_open_streams_go_on_in_an_older_database_that_takes_the_place_of_theirs(
    impatient_http: httpx.Client, sqlite_database: Database, tmp_path: Path
) -> None:
    file, backup = str(make_url(sqlite_database.url).database), tmp_path / "backup.sqlite3"
    lease = claimed_job(sqlite_database)
    _copied(file, backup)
    later_job = submit(sqlite_database)
    with (
        _open(impatient_http, "/v1/events") as all_jobs,
        _open(impatient_http, f"/v1/jobs/{lease.job_id}/events?after={_stored(sqlite_database)[-1]}") as one_job,
        _open(impatient_http, f"/v1/jobs/{later_job}/events") as missing_job,
    ):
        run_trial(sqlite_database, lease, 0, 0.5)
        lost = _stored(sqlite_database)[-1]
        for stream in (all_jobs, one_job):
            while next(stream)["id"] < lost:
                pass
        _copied(backup, file)
        time.sleep(3 * events.POLL_SECONDS)  # until the service has looked
        assert {event["job_id"] for event in missing_job} == {later_job}  # it has ended: there is no such job
        with _open(impatient_http, "/v1/events", last_event_id=lost) as late:
            told_before = _stored(sqlite_database)
            submit(sqlite_database)
            run_trial(sqlite_database, lease, 0, 0.25)
            new = _stored(sqlite_database)[len(told_before) :]
            assert new[0] < lost
            assert [next(all_jobs)["id"] for _ in new] == new
            assert [next(late)["id"] for _ in new] == new
            assert [next(one_job)["id"] for _ in new[1:]] == new[1:]


@pytest.mark.slow
def test_a_stream_is_told_nothing_of_a_database_that_was_replaced_while_nobody_listened(
    impatient_http: httpx.Client, sqlite_database: Database, tmp_path: Path
) -> None:
    file, backup = str(make_url(sqlite_database.url).database), tmp_path / "backup.sqlite3"
    lease = claimed_job(sqlite_database)
    _copied(file, backup)
    with _open(impatient_http, "/v1/events") as stream:
        run_trial(sqlite_database, lease, 0, 0.5)
        assert next(stream)
    time.sleep(3 * events.POLL_SECONDS)  # until it has no reader any more
    _copied(backup, file)
    with _open(impatient_http, "/v1/events") as stream:
        job_id = submit(sqlite_database)
        assert next(stream)["job_id"] == job_id


@pytest.mark.slow
def test_events_arrive_while_they_happen(http: httpx.Client, database: Database) -> None:
    lease = claimed_job(database)
    after = _stored(database)[-1]

    def run() -> None:
        time.sleep(0.3)
        run_trial(database, lease, 0, 0.5)
        run_trial(database, lease, 1, 0.4, Phase.BASELINE)
        with database.writing() as session:
            finish_job(session, lease, failure=None, now=NOW)

    thread = threading.Thread(target=run)
    with _open(http, f"/v1/jobs/{lease.job_id}/events?after={after}") as stream:
        thread.start()
        told = [event["id"] for event in stream]
    thread.join()
    assert told == [found for found in _stored(database, lease.job_id) if found > after]


def test_the_stream_of_all_jobs_begins_now(http: httpx.Client, database: Database) -> None:
    submit(database)
    with _open(http, "/v1/events") as stream:
        new = [submit(database), submit(database)]
        assert [next(stream)["job_id"] for _ in new] == new
    with _open(http, "/v1/events?after=0") as stream:
        assert [next(stream)["id"] for _ in range(3)] == _stored(database)


@pytest.mark.slow
def test_many_streams_share_one_look_at_the_database(
    sqlite_http: httpx.Client, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    look = EventRepository.last_id

    def counted(self: EventRepository) -> int:
        looks.append(1)
        return look(self)

    monkeypatch.setattr(EventRepository, "last_id", counted)

    def first_event() -> None:
        with _open(sqlite_http, "/v1/events") as stream:
            next(stream)

    threads = [threading.Thread(target=first_event) for _ in range(20)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    wait_until(lambda: len(looks) >= len(threads), "all streams to begin")
    time.sleep(1.5)
    submit(sqlite_database)
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    # One each at the start, and about five a second of the one that looks for all of them.
    assert len(looks) < len(threads) + 5 * (time.monotonic() - began + 2)


def test_a_quiet_stream_is_kept_alive_by_comments(sqlite_http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "HEARTBEAT_SECONDS", 0.1)
    with sqlite_http.stream("GET", "/v1/events") as response:
        text = b""
        for chunk in response.iter_bytes():
            text += chunk
            if text.count(b": ping\n\n") >= 2:
                break
    assert text.startswith(b"retry: 3000\n\n")


def test_open_streams_do_not_hold_up_a_stopping_server(sqlite_database: Database) -> None:
    with httpx.Client(trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as client, ExitStack() as server:
        url = server.enter_context(running(sqlite_database))
        with client.stream("GET", f"{url}/v1/events") as response:
            chunks = response.iter_bytes()
            assert next(chunks)
            server.close()
            assert list(chunks) == []  # its end, and no cut when the time for requests is over


def test_pages_of_events_have_the_ids_of_the_stream(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    submit(database)
    ids = _stored(database, job_id)
    json_alone = {"Accept": "application/json"}
    told: list[int] = []
    after: int | None = 0
    while after is not None:
        answer = http.get(f"/v1/jobs/{job_id}/events", params={"after": after, "page_size": 7}, headers=json_alone)
        assert answer.headers["Content-Type"] == "application/json"
        told += [event["id"] for event in answer.json()["items"]]
        after = answer.json()["next_after"]
    assert told == ids
    everything = http.get("/v1/events", params={"page_size": 200}, headers=json_alone).json()
    assert [event["id"] for event in everything["items"]] == _stored(database)
    assert http.get(f"/v1/jobs/{job_id}/events?after={ids[-1]}", headers=json_alone).json() == {
        "items": [],
        "next_after": None,
    }
