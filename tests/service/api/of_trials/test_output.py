"""The output of ranks, over HTTP: pages, the last lines, and a stream that ends with the trial."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from service.api.routers.of_trials import output
from service.cli.commands import app
from service.client import Client
from service.domain import FailureReason, OutputStream, TrialState
from service.store.session import Database
from service.use_cases.trials.rank_output import Printed, keep_output
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial
from tests.support.waiting import PATIENCE_SECONDS

OUT, ERR = OutputStream.STDOUT, OutputStream.STDERR


def keep(
    database: Database,
    job_id: str,
    *lines: str,
    rank: int = 0,
    stream: OutputStream = OUT,
    minutes: float = 0,
    omitted_bytes: int = 0,
) -> None:
    printed = Printed(0, rank, stream, "file", 0, omitted_bytes, lines)
    with database.writing() as session:
        keep_output(session, job_id, [printed], bytes_per_rank=100_000, now=NOW + timedelta(minutes=minutes))


def printing_job(database: Database) -> str:
    """A job with a trial that runs and has printed five lines."""
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    keep(database, lease.job_id, "one", "two")
    keep(database, lease.job_id, "three", rank=1, stream=ERR, minutes=1, omitted_bytes=7)
    keep(database, lease.job_id, "four", "five", minutes=2)
    return lease.job_id


def lines(page: dict[str, Any]) -> list[str]:
    return [line for chunk in page["items"] for line in chunk["lines"]]


def test_output_is_read_by_rank_stream_time_and_from_its_end(http: httpx.Client, database: Database) -> None:
    job_id = printing_job(database)

    def read(**params: Any) -> dict[str, Any]:
        answer = http.get(f"/v1/jobs/{job_id}/trials/0/logs", params=params)
        assert answer.status_code == 200, answer.text
        page: dict[str, Any] = answer.json()
        assert page["ranks"] == [0, 1]
        return page

    everything = read()
    assert lines(everything) == ["one", "two", "three", "four", "five"]
    assert [(chunk["rank"], chunk["stream"], chunk["omitted_bytes"]) for chunk in everything["items"]] == [
        (0, "stdout", 0),
        (1, "stderr", 7),
        (0, "stdout", 0),
    ]
    assert everything["next_after"] is None
    assert lines(read(rank=1)) == lines(read(stream="stderr")) == ["three"]
    assert lines(read(rank=5)) == []
    assert lines(read(since="2026-03-01T13:02:00+01:00")) == ["four", "five"]
    assert lines(read(contains="O")) == ["one", "two", "four"]
    assert lines(read(contains="o", tail=2)) == ["two", "four"]
    assert lines(read(contains="o", rank=1)) == []
    assert lines(read(tail=1)) == ["five"]
    assert lines(read(tail=4)) == ["two", "three", "four", "five"]
    assert lines(read(tail=100, rank=0)) == ["one", "two", "four", "five"]
    assert lines(read(after=everything["items"][0]["id"])) == ["three", "four", "five"]


def test_pages_and_tails_of_long_output(
    sqlite_http: httpx.Client, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = printing_job(sqlite_database)
    monkeypatch.setattr(output, "CHUNKS_PER_PAGE", 2)
    with Client(str(sqlite_http.base_url)) as client:
        assert [line for chunk in client.logs(job_id, 0) for line in chunk.lines] == [
            "one",
            "two",
            "three",
            "four",
            "five",
        ]
        assert next(line for chunk in client.logs(job_id, 0, tail=5) for line in chunk.lines) == "one"


@pytest.mark.parametrize(
    ("params", "field", "said"),
    [
        ({"tail": 0}, "tail", "greater than or equal to 1"),
        ({"tail": 5, "after": 1}, "tail", "counts back from the end, and after says where to begin: give one of them"),
        ({"since": "2026-03-01"}, "since", "time"),
        ({"rank": -1}, "rank", "greater than or equal to 0"),
    ],
)
def test_what_cannot_be_asked_names_the_parameter(
    sqlite_http: httpx.Client, sqlite_database: Database, params: dict[str, Any], field: str, said: str
) -> None:
    answer = sqlite_http.get(f"/v1/jobs/{printing_job(sqlite_database)}/trials/0/logs", params=params)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert field in error["field"]
    assert said in error["message"]


@pytest.mark.slow
def test_a_stream_follows_a_trial_to_its_end_and_goes_on_after_an_id(
    http: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LINGERING_SECONDS", 0.3)
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    keep(database, lease.job_id, "one", "two")
    told: list[str] = []
    first, ended = threading.Event(), threading.Event()

    def follow() -> None:
        with Client(str(http.base_url)) as client:
            for chunk in client.follow_logs(lease.job_id, 0, tail=1):
                told.extend(chunk.lines)
                first.set()
        ended.set()

    reader = threading.Thread(target=follow)
    reader.start()
    assert first.wait(PATIENCE_SECONDS)
    keep(database, lease.job_id, "three")
    end_trial(database, lease, 0, TrialState.FAILED, reason=FailureReason.ERROR)
    assert ended.wait(PATIENCE_SECONDS)
    reader.join()
    assert told == ["two", "three"]
    path = f"/v1/jobs/{lease.job_id}/trials/0/logs"
    wants_stream = {"Accept": "text/event-stream"}
    page = http.get(path).json()
    with http.stream("GET", path, headers={**wants_stream, "Last-Event-ID": str(page["items"][0]["id"])}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = answer.read().decode()
    assert '"three"' in text
    assert '"two"' not in text
    last = {**wants_stream, "Last-Event-ID": str(page["items"][-1]["id"])}
    assert http.get(path, headers=last).status_code == 204


def test_the_end_of_the_output_stands_beside_a_failure(http: httpx.Client, database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    path = f"/v1/jobs/{lease.job_id}/trials/0"
    keep(database, lease.job_id, *(f"line {index}" for index in range(30)))
    assert http.get(path).json()["last_lines"] == []
    keep(database, lease.job_id, "Traceback", rank=1, stream=ERR)
    end_trial(database, lease, 0, TrialState.FAILED, reason=FailureReason.ERROR)
    told = http.get(path).json()["last_lines"]
    assert (len(told), told[-2:]) == (12, ["[rank 0] line 29", "[rank 1] Traceback"])


def test_a_page_and_the_command_line_show_output(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    job_id = printing_job(sqlite_database)
    keep(sqlite_database, job_id, "<script>alert(1)</script>")
    job_page = sqlite_http.get(f"/jobs/{job_id}").text
    assert f'href="/jobs/{job_id}/trials/0/logs"' in job_page
    page = sqlite_http.get(f"/jobs/{job_id}/trials/0/logs?rank=0").text
    assert "&lt;script&gt;alert(1)" in page
    assert "three" not in page
    asked = CliRunner().invoke(app, ["logs", job_id, "0", "--tail", "4", "--url", str(sqlite_http.base_url)])
    assert asked.exit_code == 0
    assert asked.stdout == "[rank 0] four\n[rank 0] five\n[rank 0] <script>alert(1)</script>\n"
    assert asked.stderr == "[rank 1] ... (7 bytes were not kept)\n[rank 1] three\n"
