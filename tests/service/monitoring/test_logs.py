"""Logs: one JSON object or one readable line for each message, with ids, whatever others wrote."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.monitoring.logs import LogFormat, bound, is_json, set_up_job_log, set_up_logs
from service.store.session import Database
from tests.support.service.live import running
from tests.support.service.scenarios import submit

HOSTILE = "name\x1b[2J\r2026-01-01 ERROR root: made up\u202e"


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The root's handlers and level, put back."""
    root = logging.getLogger()
    earlier, level = root.handlers[:], root.level
    yield
    root.handlers[:] = earlier
    root.setLevel(level)


def _lines(log_format: LogFormat, **ids: str | int) -> io.StringIO:
    stream = io.StringIO()
    set_up_logs(log_format, stream=stream, **ids)
    return stream


def test_json_has_the_ids_of_process_block_and_message() -> None:
    stream = _lines("json", worker="worker_1")
    with bound(job="job_1"):
        logging.getLogger("service.x").info("took %d", 3, extra={"trial": 7})
    logging.getLogger("service.x").info("over")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first.pop("timestamp")
    assert first == {
        "event": "took 3",
        "level": "info",
        "logger": "service.x",
        "worker": "worker_1",
        "job": "job_1",
        "trial": 7,
    }
    assert "job" not in second


def test_a_line_for_a_person_has_them_at_its_end() -> None:
    stream = _lines("text", job="job_1")
    logging.getLogger("service.x").warning("late", extra={"trial": 7})
    assert stream.getvalue().endswith(" WARNING service.x: late [job=job_1 trial=7]\n")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_text_of_others_makes_no_line_and_moves_no_cursor(log_format: LogFormat) -> None:
    stream = _lines(log_format)
    try:
        raise ValueError(f"{HOSTILE}\n2026-01-01 INFO root: made up")
    except ValueError:
        logging.getLogger("service.x").exception(
            "failed: %s\n%s", HOSTILE, "2026-01-01 INFO root: made up", extra={"a": HOSTILE}
        )
    written = stream.getvalue()
    assert not {"\x1b", "\r", "\u202e"} & set(written)
    assert not [line for line in written.splitlines()[1:] if line.startswith("2026")]
    assert "Traceback" in written


def test_auto_is_text_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_json("auto", io.StringIO())
    assert not is_json("text", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert not is_json("auto", sys.stderr)
    assert is_json("json", sys.stderr)


@pytest.mark.parametrize(("log_format", "writes_json"), [("auto", False), ("text", False), ("json", True)])
def test_the_log_of_a_job_is_lines_unless_json_was_asked_for(
    log_format: LogFormat, writes_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_job_log(log_format, job="job_1")
    logging.getLogger("service.x").info("begins")
    assert capsys.readouterr().err.startswith("{") is writes_json


def _ask(url: str, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{url}{path}", headers=headers, trust_env=False, verify=False)


def test_each_answer_names_its_request_and_so_does_the_log(sqlite_database: Database) -> None:
    stream = _lines("json")
    submit(sqlite_database)
    with running(sqlite_database, log_requests=True) as url:
        given = _ask(url, "/v1/jobs", **{"X-Request-ID": "trace-1:a/b"})
        made = [_ask(url, "/healthz").headers["X-Request-ID"] for _ in range(2)]
        refused = _ask(url, "/v1/jobs", **{"X-Request-ID": "a b", "Host": "elsewhere"}).headers["X-Request-ID"]
    assert given.headers["X-Request-ID"] == "trace-1:a/b"
    assert len({*made, refused}) == 3
    assert all(request.startswith("req_") for request in (*made, refused))
    logged: list[dict[str, Any]] = [json.loads(line) for line in stream.getvalue().splitlines()]
    answers = [(line["request"], line["event"].partition(" in ")[0]) for line in logged if "request" in line]
    assert ("trace-1:a/b", "GET /v1/jobs: 200") in answers
    assert (refused, "GET /v1/jobs: 421") in answers


def test_a_failure_and_the_log_of_its_thread_have_the_id(
    sqlite_database: Database,
) -> None:
    stream = _lines("json")
    with sqlite_database.writing() as session:
        session.connection().exec_driver_sql("DROP TABLE recommendations")
    job_id = submit(sqlite_database)
    with running(sqlite_database) as url:
        answer = _ask(url, f"/v1/jobs/{job_id}/recommendation", **{"X-Request-ID": "mine"})
    assert (answer.status_code, answer.headers["X-Request-ID"]) in ((500, "mine"), (503, "mine"))
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["request"] for line in told if line["level"] == "error"] == ["mine"]


def test_threads_log_without_what_others_have_bound() -> None:
    stream = _lines("json")
    with bound(job="job_1"):
        other = threading.Thread(target=lambda: logging.getLogger("service.x").info("beside"))
        other.start()
        other.join()
    assert "job" not in json.loads(stream.getvalue())
