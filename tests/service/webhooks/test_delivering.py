"""Messages to webhooks: made of events, sent to a real server, signed, and sent again after failures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from service.access.caller import Scope
from service.cli.commands import app
from service.client import ApiError, Client
from service.clock import utc_now
from service.domain import DeliveryState
from service.store.models import Delivery, Webhook
from service.store.repositories.webhooks import DeliveryRepository, WebhookRepository
from service.store.session import Database
from service.use_cases import webhooks
from service.use_cases.steer import pause_job
from service.webhooks import sending
from service.webhooks.delivering import keep_delivering
from service.webhooks.signing import new_secret, signed_headers
from tests.support.service.callers import asking, give_token
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, Clock, submit
from tests.support.service.webhooks import Receiver, deliver
from tests.support.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture
def hanging() -> Iterator[Receiver]:
    """A server that takes requests and answers none."""
    made = Receiver()
    made.is_slow = True
    yield made
    made.close()


@contextmanager
def delivering(database: Database) -> Iterator[None]:
    """Has the thread of a worker send messages meanwhile."""
    gone = threading.Event()
    thread = threading.Thread(target=lambda: keep_delivering(database, allows_private=True, gone=gone))
    thread.start()
    try:
        yield
    finally:
        gone.set()
        thread.join()


def add(database: Database, url: str, *, job_id: str | None = None, kinds: tuple[str, ...] = ("job.state",)) -> Webhook:
    with database.writing() as session:
        return webhooks.add_webhook(
            session,
            project="default",
            job_id=job_id,
            url=url,
            kinds=kinds,
            secret=new_secret(),
            owner=None,
            now=NOW,
        )


def messages(database: Database, webhook: Webhook) -> list[Delivery]:
    """Oldest first."""
    with database.reading() as session:
        return list(DeliveryRepository(session).page(webhook.id, limit=100))[::-1]


def stored(database: Database, webhook: Webhook) -> Webhook:
    with database.reading() as session:
        return WebhookRepository(session).get(webhook.id, project=None)


def test_events_of_a_project_are_told_from_then_on_and_signed(database: Database, receiver: Receiver) -> None:
    submit(database)
    webhook = add(database, receiver.url)
    job_id = submit(database)
    with database.writing() as session:
        pause_job(session, job_id, now=NOW)
    submit(database, project="another")
    clock = Clock()
    assert deliver(database, allows_private=True, clock=clock) == 2
    assert deliver(database, allows_private=True, clock=clock) == 0
    assert receiver.told() == ["queued", "paused"]
    for headers, body in receiver.requests:
        content = json.loads(body)
        assert (content["type"], content["data"]["job_id"]) == ("job.state", job_id)
        expected = signed_headers(
            webhook.secret,
            message_id=headers["webhook-id"],
            timestamp=int(clock.now.timestamp()),
            body=body,
        )
        assert headers["webhook-signature"] == expected["webhook-signature"]
        assert headers["host"] == receiver.url.split("/")[2]
    found = messages(database, webhook)
    assert [(each.state, each.attempts, each.status, each.answer) for each in found] == [
        (DeliveryState.DELIVERED, 1, 200, ("thanks" * 1000)[: sending.ANSWER_BYTES])
    ] * 2


def test_a_webhook_of_a_job_is_told_of_it_from_its_beginning(database: Database, receiver: Receiver) -> None:
    job_id, _ = submit(database), submit(database)
    add(database, receiver.url, job_id=job_id)
    assert deliver(database, allows_private=True, clock=Clock()) == 1
    assert [json.loads(body)["data"]["job_id"] for _, body in receiver.requests] == [job_id]


@pytest.mark.slow
def test_what_fails_is_sent_again_later_with_the_same_id_and_at_last_has_failed(
    database: Database, receiver: Receiver
) -> None:
    webhook, clock = add(database, receiver.url), Clock()
    submit(database)
    receiver.status = 500
    for pause in webhooks.PAUSES:
        assert deliver(database, allows_private=True, clock=clock) == 1
        assert deliver(database, allows_private=True, clock=clock) == 0
        [waiting] = messages(database, webhook)
        assert (waiting.state, waiting.next_attempt_at) == (
            DeliveryState.WAITING,
            clock.now + timedelta(seconds=pause),
        )
        clock.advance(pause)
    assert deliver(database, allows_private=True, clock=clock) == 1
    [failed] = messages(database, webhook)
    assert (failed.state, failed.status, failed.attempts) == (DeliveryState.FAILED, 500, len(webhooks.PAUSES) + 1)
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
    receiver.status = 204
    with database.writing() as session:
        webhooks.redeliver(session, DeliveryRepository(session).get(webhook.id, failed.id), now=clock.now)
    assert deliver(database, allows_private=True, clock=clock) == 1
    assert messages(database, webhook)[0].state is DeliveryState.DELIVERED
    assert stored(database, webhook).num_failures == 0


def test_a_message_whose_sender_was_killed_is_sent_again_and_not_before(database: Database, receiver: Receiver) -> None:
    add(database, receiver.url)
    submit(database)
    clock = Clock()
    with database.writing() as session:  # a process that dies with the message in its hands
        webhooks.fill_outbox(session, now=clock.now)
        [taken] = webhooks.take_due(session, limit=10, now=clock.now)
    assert deliver(database, allows_private=True, clock=clock) == 0
    clock.advance(webhooks.LOST_SECONDS)
    assert deliver(database, allows_private=True, clock=clock) == 1
    assert [headers["webhook-id"] for headers, _ in receiver.requests] == [taken.id]


def test_a_webhook_that_fails_again_and_again_is_disabled_until_it_is_enabled(
    sqlite_database: Database, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "FAILURES_UNTIL_DISABLED", 2)
    webhook, clock = add(sqlite_database, receiver.url), Clock()
    submit(sqlite_database)
    receiver.status = 503
    for _ in range(2):
        assert deliver(sqlite_database, allows_private=True, clock=clock) == 1
        clock.advance(webhooks.PAUSES[0])
    assert stored(sqlite_database, webhook).disabled_because == "2 requests in a row failed; last: status 503"
    clock.advance(1e6)
    submit(sqlite_database)
    assert deliver(sqlite_database, allows_private=True, clock=clock) == 0
    receiver.status = 200
    with sqlite_database.writing() as session:
        webhooks.enable(session, WebhookRepository(session).get(webhook.id, project=None))
    assert deliver(sqlite_database, allows_private=True, clock=clock) == 2


@pytest.mark.slow
def test_a_server_that_hangs_delays_its_own_messages_alone(
    database: Database, receiver: Receiver, hanging: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SENDING_SECONDS", PATIENCE_SECONDS)
    stuck = add(database, hanging.url)
    jobs = [submit(database) for _ in range(10)]
    quick = add(database, receiver.url)
    with delivering(database):
        wait_until(lambda: hanging.requests, "the server that hangs is sent a message")
        jobs += [submit(database) for _ in range(10)]
        wait_until(
            lambda: [each.state for each in messages(database, quick)] == [DeliveryState.DELIVERED] * 10,
            "the other is sent all of its own, and each is noted",
        )
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE_SECONDS / 10, "the end waits for the server that hangs"
    assert [json.loads(body)["data"]["job_id"] for _, body in receiver.requests] == jobs[10:]
    [(headers, _)] = hanging.requests
    assert [each.attempts for each in messages(database, stuck)] == [1] + [0] * 19
    hanging.is_slow = False
    clock = Clock(utc_now())
    clock.advance(webhooks.LOST_SECONDS)
    assert deliver(database, allows_private=True, clock=clock) == 20
    told = [sent["webhook-id"] for sent, _ in hanging.requests]
    assert sorted(told) == sorted([headers["webhook-id"], *(each.id for each in messages(database, stuck))])


def test_messages_are_sent_in_the_order_of_events_and_of_one_webhook_not_two_at_once(database: Database) -> None:
    first, second = (add(database, "http://localhost:1/") for _ in range(2))
    for _ in range(3):
        submit(database)
    with database.writing() as session:
        assert webhooks.fill_outbox(session, now=NOW) == 6
    with database.writing() as session:
        WebhookRepository(session).get(first.id, project=None).num_failures = 1
    taken: list[tuple[str, int]] = []
    for _ in range(3):
        with database.writing() as session:
            found = webhooks.take_due(session, limit=10, now=NOW)
            events = [DeliveryRepository(session).get(each.webhook_id, each.id).event_id for each in found]
        taken += zip([each.webhook_id for each in found], events, strict=True)
    assert [webhook_id for webhook_id, _ in taken] == [second.id, first.id] * 3  # those that fail come last
    assert [event for _, event in taken] == sorted(event for _, event in taken)
    with database.reading() as session:
        assert not webhooks.is_anything_to_do(session, now=NOW)


def test_a_webhook_that_is_sent_a_message_is_left_out(sqlite_database: Database) -> None:
    busy, other = (add(sqlite_database, "http://localhost:1/") for _ in range(2))
    submit(sqlite_database)
    with sqlite_database.writing() as session:
        webhooks.fill_outbox(session, now=NOW)
        assert webhooks.is_anything_to_do(session, busy={busy.id}, now=NOW)
        [message] = webhooks.take_due(session, busy={busy.id}, limit=10, now=NOW)
        assert message.webhook_id == other.id
        assert not webhooks.is_anything_to_do(session, busy={busy.id, other.id}, now=NOW)


def test_webhooks_whose_outbox_is_full_keep_no_other_from_its_messages(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_WAITING", 2)
    monkeypatch.setattr(webhooks, "WEBHOOKS_AT_ONCE", 1)
    full = add(database, "http://localhost:1/")
    for _ in range(3):
        submit(database)
    with database.writing() as session:
        assert [webhooks.fill_outbox(session, now=NOW) for _ in range(2)] == [2, 0]
        assert not webhooks.is_anything_to_do(session, busy={full.id}, now=NOW)
    other = add(database, "http://localhost:1/")
    submit(database)
    with database.writing() as session:
        assert webhooks.fill_outbox(session, now=NOW) == 1
    assert [len(messages(database, each)) for each in (full, other)] == [2, 1]


def test_a_backlog_is_bounded_and_loses_nothing(
    sqlite_database: Database, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_WAITING", 3)
    monkeypatch.setattr(webhooks, "NUM_KEPT", 2)
    webhook, clock = add(sqlite_database, receiver.url), Clock()
    jobs = [submit(sqlite_database) for _ in range(7)]
    with sqlite_database.writing() as session:
        assert [webhooks.fill_outbox(session, now=NOW) for _ in range(2)] == [3, 0]
    while deliver(sqlite_database, allows_private=True, clock=clock):
        pass
    assert sorted(json.loads(body)["data"]["job_id"] for _, body in receiver.requests) == sorted(jobs)
    assert len(messages(sqlite_database, webhook)) <= 5


def test_webhooks_over_http(database: Database, receiver: Receiver) -> None:
    clock = Clock()
    with running(database, webhook_private_addresses=True) as address, client(address) as http:
        job_id = submit(database)
        made = http.post("/v1/webhooks", json={"url": receiver.url, "job_id": job_id})
        assert made.status_code == 201, made.text
        webhook = made.json()
        assert webhook["secret"].startswith("whsec_")
        assert webhook["kinds"] == ["job.state", "job.recommendation"]
        path = made.headers["Location"]
        assert "secret" not in http.get(path).json()
        assert [each["id"] for each in http.get("/v1/webhooks").json()["items"]] == [webhook["id"]]
        assert deliver(database, allows_private=True, clock=clock) == 1
        [delivery] = http.get(f"{path}/deliveries").json()["items"]
        assert (delivery["state"], delivery["status"]) == ("delivered", 200)
        again = http.post(f"{path}/deliveries/{delivery['id']}/redeliver")
        assert (again.status_code, again.json()["state"]) == (200, "waiting")
        twice = http.post(f"{path}/deliveries/{delivery['id']}/redeliver")
        assert twice.status_code == 409
        assert twice.json()["detail"].endswith("waits to be sent already")
        clock.advance(1e9)
        assert deliver(database, allows_private=True, clock=clock) == 1
        assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
        assert http.post(f"{path}/enable").json()["disabled_at"] is None
        assert http.delete(path).status_code == 204
        assert http.get(path).status_code == 404
        assert http.get(f"{path}/deliveries").status_code == 404


def test_the_commands_of_webhooks(sqlite_database: Database, receiver: Receiver) -> None:
    with running(sqlite_database, webhook_private_addresses=True) as address:

        def say(*arguments: str) -> str:
            told = CliRunner().invoke(app, ["webhook", *arguments, "--url", address])
            assert told.exit_code == 0, told.output
            return told.stdout

        job_id = submit(sqlite_database)
        made = say("add", receiver.url, "--job", job_id, "--kind", "job.state")
        webhook = made.split()[1]
        assert "signed with whsec_" in made
        assert say("list") == f"{webhook}  {receiver.url}  {job_id}  job.state  on\n"
        deliver(sqlite_database, allows_private=True)
        sent = say("sent", webhook)
        assert sent.endswith("  job.state  delivered  attempts: 1  200\n")
        assert "waits to be sent" in say("redeliver", webhook, sent.split()[0])
        assert "goes on" in say("enable", webhook)
        assert "is removed" in say("remove", webhook)
        assert say("list") == ""
        added = json.loads(say("add", receiver.url, "--json"))["id"]
        assert json.loads(say("remove", added, "--json")) == {"id": added}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"url": "http://127.0.0.1:8730/"}, "url"),
        ({"url": "gopher://example.org"}, "url"),
        ({"url": "https://example.org", "kinds": ["job.stat"]}, "kinds[0]"),
        ({"url": "https://example.org", "kinds": []}, "kinds"),
        ({"url": "https://example.org", "secret": "mine"}, "secret"),
    ],
)
def test_webhooks_that_are_refused_name_the_field(sqlite_database: Database, body: dict[str, Any], field: str) -> None:
    with running(sqlite_database) as address, client(address) as http:
        answer = http.post("/v1/webhooks", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"] == field


def test_webhooks_are_of_one_project(database: Database) -> None:
    ours = give_token(database, "ours", Scope.SUBMIT, project="ours")
    theirs = give_token(database, "theirs", Scope.SUBMIT, project="theirs")
    their_job = submit(database, project="theirs")
    with asking(database) as asked, asked.client(ours) as our_http, asked.client(theirs) as their_http:
        path = their_http.post("/v1/webhooks", json={"url": "https://example.org"}).headers["Location"]
        assert our_http.get("/v1/webhooks").json()["items"] == []
        for method, address in [
            ("GET", path),
            ("DELETE", path),
            ("POST", f"{path}/enable"),
            ("GET", f"{path}/deliveries"),
            ("POST", f"{path}/deliveries/msg_1/redeliver"),
        ]:
            assert our_http.request(method, address).status_code == 404, address
        stolen = our_http.post("/v1/webhooks", json={"url": "https://example.org", "job_id": their_job})
        assert stolen.status_code == 404
        assert their_http.get(path).json()["project"] == "theirs"


@contextmanager
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http:
        yield http


def test_a_test_message_is_sent_and_tells_of_no_event(sqlite_database: Database, receiver: Receiver) -> None:
    with running(sqlite_database, webhook_private_addresses=True) as url, Client(url) as client:
        made = client.add_webhook(receiver.url)
        message = client.test_webhook(made.id)
        assert (message.state, message.kind, message.event_id) == (DeliveryState.WAITING, "webhook.test", 0)
        assert deliver(sqlite_database, allows_private=True) == 1
        ((headers, body),) = receiver.requests
        assert headers["webhook-id"] == message.id
        assert json.loads(body)["data"] == {"webhook_id": made.id}
        assert [sent.state for sent in client.deliveries(made.id)] == [DeliveryState.DELIVERED]
        with sqlite_database.writing() as session:
            stored_webhook = WebhookRepository(session).get(made.id, project=None)
            stored_webhook.disabled_at, stored_webhook.disabled_because = NOW, "it failed"
        with pytest.raises(ApiError, match="enable it first"):
            client.test_webhook(made.id)
        told = CliRunner().invoke(app, ["webhook", "test", made.id, "--url", url])
        assert told.exit_code == 1
        client.enable_webhook(made.id)
        told = CliRunner().invoke(app, ["webhook", "test", made.id, "--url", url])
        assert "is on its way" in told.stdout
