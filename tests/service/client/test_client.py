"""The typed client against the real API."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from service.client import ApiError, AsyncClient, Client, ServiceUnreachable, WaitedTooLong, sse_messages, tune
from service.client import requests as client_module
from service.client.requests import Connecting
from service.domain import JobState, Phase, TrialState
from service.hosts import DEFAULT_URL
from service.store.repositories import EventRepository
from service.store.session import Database
from tests.support import event_loop
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import begin_trial, claimed_job, measure, specification, submit
from tests.support.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture
def client(sqlite_database: Database, warm_process: None) -> Iterator[Client]:  # noqa: ARG001 # the service forks it
    with running(sqlite_database) as url, Client(url) as client:
        yield client


def test_submit_gives_the_job_and_an_idempotency_key_gives_it_again(client: Client) -> None:
    first = client.submit(specification(), name="a", tags={"x": "y"}, idempotency_key="k")
    again = client.submit(specification().model_dump(mode="json"), name="a", tags={"x": "y"}, idempotency_key="k")
    assert first.id == again.id
    assert (first.name, first.tags, first.state) == ("a", {"x": "y"}, JobState.QUEUED)
    assert first.specification == specification()


def test_a_refusal_names_its_fields(client: Client) -> None:
    with pytest.raises(ApiError, match=r"budget\.num_trials: must be") as caught:
        client.submit({"workload": {"name": "digits-mlp"}, "budget": {"num_trials": -1}})
    assert caught.value.status == 422
    assert caught.value.problem.errors[0].value == -1


def test_a_client_that_is_given_no_address_takes_that_of_the_environment(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(sqlite_database) as url:
        monkeypatch.setenv("SHAMPOO_TUNER_URL", url + "/")
        job = submit(sqlite_database)
        with Client() as client:
            assert client.job(job).id == job
        tuned = tune("digits-mlp", budget=2, wait=False)
        with tuned.client:
            assert tuned.client.base_url == url

        async def asked() -> str:
            async with AsyncClient() as client:
                return (await client.job(job)).id

        assert event_loop.run(asked()) == job
        with Client("http://127.0.0.1:1", give_up_seconds=0) as client, pytest.raises(ServiceUnreachable):
            client.job(job)  # what is given goes before the environment
    monkeypatch.setenv("SHAMPOO_TUNER_URL", "")
    with Client() as client:
        assert client.base_url == DEFAULT_URL


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_tune_tells_the_page_of_the_job_and_what_the_service_warns_of(
    sqlite_database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(sqlite_database, allow_code=True, data_are_here=True) as url:
        found = tune("tests.support.trainers.picky_model:FindsNoData", budget=2, wait=False, url=url)
        found.client.close()
    page, warning = capsys.readouterr().err.splitlines()
    assert page == f"job {found.job.id}: {url}/jobs/{found.job.id}"
    assert warning.startswith("warning: THE WORKLOAD CANNOT BE BUILT: its code raised FileNotFoundError")
    assert str(found).splitlines()[-1] == warning.replace("warning", "Warning", 1)
    assert "<th>Warning</th>" in found._repr_html_()


def test_what_does_not_exist_is_an_api_error(client: Client) -> None:
    with pytest.raises(ApiError, match=r"no job .a b.") as caught:
        client.job("a b")
    assert caught.value.status == 404


@pytest.mark.slow
def test_lists_are_followed_over_pages(client: Client, sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    ids = [submit(sqlite_database) for _ in range(60)]
    assert [job.id for job in client.jobs(states=[JobState.QUEUED])] == sorted(ids, reverse=True)
    assert [job.id for job in client.jobs(states=[JobState.SUCCEEDED], workload="digits-mlp")] == [job_id]
    assert [trial.number for trial in client.trials(job_id, states=[TrialState.COMPLETED])] == [0, 1, 2, 3]
    assert [trial.number for trial in client.trials(job_id, phase=Phase.BASELINE)] == [1]
    assert [measured.step for measured in client.measurements(job_id, 0, after_step=10)] == [20, 30, 40]
    assert client.trial(job_id, 2).value == 0.2


def test_recommendations_and_the_catalogue_are_typed(client: Client, sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    assert client.recommendation(job_id) == client.recommendations("digits-mlp")[0]
    assert client.recommendation(job_id).evidence.best.number == 2
    assert "digits-mlp" in [workload.name for workload in client.workloads()]
    assert "shampoo" in [space.name for space in client.search_spaces()]
    assert client.readiness().num_workers == 0


def test_cancel_then_wait_gives_the_cancelled_job(client: Client, sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    with pytest.raises(WaitedTooLong):
        client.wait(job_id, timeout_seconds=0.2, poll_seconds=0.05)
    assert client.cancel(job_id).state is JobState.CANCELLED
    assert client.wait(job_id, timeout_seconds=PATIENCE_SECONDS).state is JobState.CANCELLED


@pytest.mark.slow
def test_events_of_a_job_end_with_it(client: Client, sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    told = list(client.events(job_id))
    assert told[-1].data["state"] == "succeeded"
    assert list(client.events(job_id, after=told[-2].id)) == told[-1:]
    assert list(client.events(job_id, after=told[-1].id)) == []


@pytest.mark.slow
def test_events_survive_a_restart_of_the_service(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = ExitStack()
    url = server.enter_context(running(sqlite_database, port=port))
    told: list[int] = []

    def stored() -> list[int]:
        with sqlite_database.reading() as session:
            return [
                event.id for event in EventRepository(session).after(0, project=None, job_id=lease.job_id, limit=100)
            ]

    def listen() -> None:
        with Client(url) as client:
            told.extend(event.id for event in client.events(lease.job_id))

    listener = threading.Thread(target=listen)
    listener.start()
    wait_until(lambda: told == stored(), "what happened before")
    server.close()
    measure(sqlite_database, lease, 0, 10, 0.5)
    with running(sqlite_database, port=port):
        wait_until(lambda: told == stored(), "what happened meanwhile")
        measure(sqlite_database, lease, 0, 20, 0.4)
        with Client(url) as client:
            client.cancel(lease.job_id)
        listener.join(PATIENCE_SECONDS)
        assert not listener.is_alive()
    assert told == stored()


def test_no_service_is_told_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_SECONDS", 2.0)
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:1")  # a proxy is not asked for this machine's own services
    with (
        Client("http://127.0.0.1:1", give_up_seconds=0.0) as client,
        pytest.raises(ServiceUnreachable, match=r"no service answers at http://127\.0\.0\.1:1 .*serve"),
    ):
        client.readiness()


def test_an_authority_of_the_users_own_is_trusted_on_this_machine_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = httpx.create_ssl_context(trust_env=False).get_ca_certs(binary_form=True)[0]
    (tmp_path / "own.pem").write_text(ssl.DER_cert_to_PEM_cert(some))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "own.pem"))
    trusted = Connecting.to("https://localhost:8443", None).verifies
    assert isinstance(trusted, ssl.SSLContext)
    assert len(trusted.get_ca_certs()) == 1


def test_nobody_is_told_to_start_a_service_with_tls() -> None:
    with (
        Client("https://127.0.0.1:1", give_up_seconds=0.0) as client,
        pytest.raises(ServiceUnreachable, match=r"no service answers at https://127\.0\.0\.1:1 \([^;]*\)$"),
    ):
        client.readiness()


def test_a_trial_is_given_a_note(client: Client, sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    assert client.change_trial(job_id, 1, note="odd").note == "odd"

    async def read_and_forget() -> tuple[str | None, str | None]:
        async with AsyncClient(client.base_url) as awaiting:
            [_, found, *_] = [trial async for trial in awaiting.trials(job_id)]
            return found.note, (await awaiting.change_trial(job_id, 1, note="")).note

    assert event_loop.run(read_and_forget()) == ("odd", None)
    with pytest.raises(ApiError) as refused:
        client.change_trial(job_id, 99, note="odd")
    assert refused.value.status == 404


def test_messages_are_split_at_line_feeds_only() -> None:
    text = (
        ": comment\n\nevent: a\r\ndata: one\u2028two\ndata: three\r\nid: 7\n\ndata:bare\n\n: ping\n\ndata: cut".encode()
    )
    pieces = [text[start : start + 3] for start in range(0, len(text), 3)]
    assert list(sse_messages(iter(pieces))) == [("a", "one\u2028two\nthree"), ("message", "bare")]


def test_jobs_are_kept_cloned_and_deleted(client: Client) -> None:
    first = client.submit(specification(), name="a", tags={"team": "vision"})
    clone = client.clone(first.id, {"name": "b", "tags": {"team": None}, "budget": {"num_trials": 6}})
    assert (clone.name, clone.tags, clone.num_trials, clone.cloned_from) == ("b", {}, 6, first.id)
    assert client.change(clone.id, notes="*good*").notes == "*good*"
    assert [job.id for job in client.jobs(tag="team=vision", model=None)] == [first.id]
    assert [job.id for job in client.jobs(text="GOOD")] == [clone.id]
    assert client.archive(first.id).archived_at is not None
    assert [job.id for job in client.jobs()] == [clone.id]
    assert client.unarchive(first.id).archived_at is None
    with pytest.raises(ApiError) as refused:
        client.delete(first.id)
    assert refused.value.status == 409
    outcomes = client.each("cancel", [first.id, "job_x"])
    assert [(outcome.job_id, outcome.state) for outcome in outcomes] == [
        (first.id, JobState.CANCELLED),
        ("job_x", None),
    ]
    assert outcomes[1].problem is not None
    client.delete(first.id)
    assert [job.id for job in client.jobs(archived="all")] == [clone.id]
