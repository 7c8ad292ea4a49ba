"""Requests that are sent again, and those that are not."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx
import pytest

from service.api import examples, preparation
from service.client import ApiError, AsyncClient, Client, ServiceBusy, ServiceUnreachable, attempts
from service.client import requests as requests_module
from service.domain import JobState
from service.store.session import Database
from tests.support.service.live import running
from tests.support.service.scenarios import specification

JOB = httpx.Response(200, json=examples.JOB)


def _problem(status: int, **headers: str) -> httpx.Response:
    body = {"type": "urn:x", "title": "later", "status": status, "detail": "later"}
    return httpx.Response(status, json=body, headers=headers)


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_job_whose_check_takes_longer_than_a_request_may_is_waited_for(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "ANSWER_SECONDS", 0.0)  # a busy machine may take its time to see that more is over
    slow = {"workload": {"name": "tests.support.trainers.broken_workloads:TakesLongToBuild"}}
    with running(sqlite_database, allow_code=True) as url:
        answered = httpx.post(f"{url}/v1/jobs", json=slow, verify=False)
        told = (answered.status_code, answered.headers.get("Retry-After"), answered.json()["type"])
        assert told == (503, "1", "urn:shampoo-tuner:problem:not-done-yet")
        with Client(url, give_up_seconds=0.0) as client:
            assert client.submit(slow).state is JobState.QUEUED
            assert len(list(client.jobs())) == 1


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Client, list[httpx.Request]]]:
    """A client whose requests get these answers, and the requests as they come."""
    monkeypatch.setattr(attempts, "FIRST_PAUSE_SECONDS", 0.0)

    def make(*given: httpx.Response | Exception) -> tuple[Client, list[httpx.Request]]:
        left, asked = iter(given), list[httpx.Request]()

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request)
            found = next(left)
            if isinstance(found, Exception):
                raise found
            return found

        return Client("http://127.0.0.1:1", transport=httpx.MockTransport(answer)), asked

    return make


Answers = Callable[..., tuple[Client, list[httpx.Request]]]


def test_reading_goes_on_through_broken_connections_and_a_busy_service(answers: Answers) -> None:
    client, asked = answers(
        httpx.ConnectError("refused"), httpx.ReadError("broken"), _problem(503, **{"Retry-After": "0"}), JOB
    )
    assert client.job("job_1").id == examples.JOB["id"]
    assert len(asked) == 4


def test_a_submission_is_repeated_with_its_key(answers: Answers) -> None:
    client, asked = answers(httpx.ReadError("broken"), JOB)
    client.submit(specification())
    first, second = (request.headers["Idempotency-Key"] for request in asked)
    assert first == second
    client, other = answers(JOB)
    client.submit(specification())
    assert other[0].headers["Idempotency-Key"] != first


def test_what_may_have_been_done_is_not_repeated(answers: Answers) -> None:
    for broken in (httpx.ReadError("broken"), _problem(503, **{"Retry-After": "0"})):
        client, asked = answers(broken)
        with pytest.raises((ServiceUnreachable, ApiError)):
            client.pause("job_1")
        assert len(asked) == 1
    client, asked = answers(httpx.ConnectError("refused"), _problem(429, **{"Retry-After": "0"}), JOB)
    client.pause("job_1")
    assert len(asked) == 3


def test_an_answer_of_another_program_is_told_as_such(answers: Answers) -> None:
    for answer, why in (
        (httpx.Response(200, json={"hello": "world"}), "Field required"),
        (httpx.Response(404, text="no such file"), "status 404 without a problem document"),
    ):
        client, _ = answers(answer)
        told = (
            rf"what answers is another program, or another version: {why}\); SHAMPOO_TUNER_URL names another address$"
        )
        with pytest.raises(ServiceUnreachable, match=told):
            client.job("job_1")


def test_a_wait_that_is_too_long_is_not_begun(answers: Answers) -> None:
    client, asked = answers(_problem(503, **{"Retry-After": "3600"}))
    with pytest.raises(ApiError, match="later"):
        client.job("job_1")
    client, asked = answers(_problem(404), JOB)
    with pytest.raises(ApiError):
        client.job("job_1")
    assert len(asked) == 1


def test_a_service_that_does_not_answer_in_time_is_busy_and_not_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(address, give_up_seconds=0.0) as client, pytest.raises(ServiceBusy, match="is there and busy"):
            client.job("job_1")


def test_both_clients_have_the_same_methods() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(AsyncClient) == public(Client)
