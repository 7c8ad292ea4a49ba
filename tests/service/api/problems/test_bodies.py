"""Bodies that no job can be made of: a clear answer that names the field, and nothing changes."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.store.repositories import EventRepository, JobRepository
from service.store.session import Database
from tests.support.service.impossible_jobs import IMPOSSIBLE, WORKLOAD, own_space
from tests.support.service.live import running
from tests.support.service.scenarios import submit
from tests.support.waiting import PATIENCE_SECONDS

UNREADABLE: dict[str, tuple[bytes, str]] = {
    "cut off": (b'{"workload": {"name": "digi', "body"),
    "empty": (b"", "body"),
    "not UTF-8": (b'{"workload": "\xff\xfe"}', "body"),
    "NaN": (
        b'{"workload": {"name": "digits-mlp"}, "budget": {"wall_clock_seconds": NaN}}',
        "budget.wall_clock_seconds",
    ),
    "Infinity inside free JSON": (
        b'{"workload": {"name": "digits-mlp", "options": {"label_smoothing": Infinity}}}',
        "workload.options.label_smoothing",
    ),
    "half a surrogate pair": (b'{"workload": {"name": "digits-mlp"}, "name": "\\ud800"}', "name"),
    "half a surrogate pair in a name": (
        b'{"workload": {"name": "digits-mlp", "options": {"\\ud800": 1}}}',
        r"workload.options['\ud800']",
    ),
    "nested beyond the parser": (b"[" * 100_000 + b"]" * 100_000, "body"),
    "nested deep": (b'{"workload": {"name": "digits-mlp", "options": {"o": ' + b"[" * 400 + b"]" * 400 + b"}}}", "[0]"),
    "a name twice": (b'{"workload": {"name": "digits-mlp", "options": {}, "name": "digits-cnn"}}', "body"),
    "a number of 10,000 digits": (b'{"workload": ' + b"1" * 10_000 + b"}", "body"),
}


@pytest.fixture
def contents(database: Database) -> Iterator[tuple[int, int]]:
    """Holds at the end of a test that no job and no event was added."""

    def counts() -> tuple[int, int]:
        with database.reading() as session:
            return len(JobRepository(session).page(project=None, limit=100)), EventRepository(session).last_id()

    before = counts()
    yield before
    assert counts() == before


def _assert_names(answer: httpx.Response, status: int, field: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["instance"] == "/v1/jobs"
    assert problem["title"]
    fields = [error["field"] for error in problem["errors"]]
    assert any(found == field or (field.startswith("[") and found.endswith(field)) for found in fields), problem
    assert all(error["message"] for error in problem["errors"])


@pytest.mark.slow
@pytest.mark.usefixtures("contents")
def test_impossible_jobs_are_refused_naming_the_field(http: httpx.Client) -> None:
    for body, field in IMPOSSIBLE.values():
        _assert_names(http.post("/v1/jobs", json=body), 422, field)


@pytest.mark.usefixtures("contents")
def test_unreadable_bodies_are_refused(http: httpx.Client) -> None:
    for content, field in UNREADABLE.values():
        answer = http.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        _assert_names(answer, 422, field)


def test_a_list_in_place_of_changes_is_refused(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    path = f"/v1/jobs/{submit(sqlite_database)}"
    for body in ("[{}]", "[{}, {}]", '[{"notes": "x"}]', "[]"):
        answer = sqlite_http.patch(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, answer.text
        assert answer.json()["detail"].startswith("body: must be an object")


@pytest.mark.slow
def test_half_a_surrogate_pair_in_a_name_is_refused_by_every_address_that_takes_json(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    job = submit(sqlite_database)
    operations = [
        (method, re.sub(r"\{\w+\}", "0", path.replace("{job_id}", job)))
        for path, methods in sqlite_http.get("/openapi.json").json()["paths"].items()
        for method, operation in methods.items()
        if "application/json" in operation.get("requestBody", {}).get("content", ())
    ]
    assert {("post", "/v1/jobs"), ("post", f"/v1/jobs/{job}/trials/0/reports")} <= set(operations)
    for method, path in operations:
        for body in ('{"\\ud800": 1}', '{"tags": {"a/\\udfff": {}}}', '[{"\\ud800": [{"\\ud800": "\\ud800"}]}]'):
            answer = sqlite_http.request(method, path, content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code in (404, 422), (method, path, body, answer.text)
    told = sqlite_http.post("/v1/jobs", content='{"a/\\udfff": 1}', headers={"Content-Type": "application/json"})
    [error] = told.json()["errors"]
    assert (error["field"], error["pointer"]) == (r"['a/\udfff']", r"/a~1\udfff")


def test_a_refused_value_is_given_back_if_it_is_small(sqlite_http: httpx.Client) -> None:
    def value(body: object) -> object:
        return sqlite_http.post("/v1/jobs", json=body).json()["errors"][0].get("value")

    assert value({**WORKLOAD, "budget": {"num_trials": -3}}) == -3
    assert value(own_space(low=1, high=0.1)) == 1
    assert value({**WORKLOAD, "search_space": "x" * 500}) is None


@pytest.mark.slow
def test_a_large_body_that_is_all_wrong_is_answered_in_few_words(sqlite_http: httpx.Client) -> None:
    long = "x" * 900_000
    bodies: list[dict[str, Any]] = [
        {"workload": {"name": long}},
        {"workload": {"name": "digits-mlp", "options": {long: 1}}},
        {"workload": {"name": "digits-mlp"}, **{f"field{index}": 1 for index in range(40_000)}},
        {"workload": {"name": "digits-mlp", "options": {f"option{index}": 1 for index in range(40_000)}}},
    ]
    for body in bodies:
        answer = sqlite_http.post("/v1/jobs", json=body)
        assert answer.status_code == 422
        assert len(answer.content) < 20_000


def test_malformed_json_tells_where(sqlite_http: httpx.Client) -> None:
    answer = sqlite_http.post(
        "/v1/jobs", content='{\n  "workload": oops\n}', headers={"Content-Type": "application/json"}
    )
    assert "line 2, column 15" in answer.json()["detail"]


def test_another_content_type_is_refused(sqlite_http: httpx.Client) -> None:
    answer = sqlite_http.post("/v1/jobs", data={"workload": "digits-mlp"})
    _assert_names(answer, 415, "Content-Type")


def test_a_large_body_is_refused_whether_its_length_is_declared_or_not(sqlite_database: Database) -> None:
    body = json.dumps({**WORKLOAD, "name": "x" * 5000}).encode()

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(body), 500):
            yield body[start : start + 500]

    headers = {"Content-Type": "application/json"}
    with running(sqlite_database, max_request_bytes=4000) as url:
        declared = httpx.post(
            f"{url}/v1/jobs", content=body, headers=headers, trust_env=False, verify=False, timeout=PATIENCE_SECONDS
        )
        chunked = httpx.post(
            f"{url}/v1/jobs", content=chunks(), headers=headers, trust_env=False, verify=False, timeout=PATIENCE_SECONDS
        )
        _assert_names(declared, 413, "body")
        _assert_names(chunked, 413, "body")
        fits = httpx.post(f"{url}/v1/jobs", json=WORKLOAD, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
        assert fits.status_code == 201


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_client_that_sends_far_too_much_before_it_reads_has_its_answer_and_may_ask_again(
    sqlite_database: Database, is_declared: bool
) -> None:
    size = 20_000_000  # more than the buffers of both ends hold
    length = f"Content-Length: {size}" if is_declared else "Transfer-Encoding: chunked"
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
    body = bytes(size) if is_declared else b"%x\r\n%b\r\n0\r\n\r\n" % (size, bytes(size))
    with running(sqlite_database) as url:
        asked = httpx.URL(url)
        with socket.create_connection((asked.host, asked.port or 0), PATIENCE_SECONDS) as connection:
            connection.sendall(head.encode())
            connection.sendall(body)
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answers = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answers.startswith(b"HTTP/1.1 413 ")
    assert answers.count(b"HTTP/1.1 200 OK") == 1
