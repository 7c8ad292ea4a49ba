"""Use cases of webhooks: subscriptions, the outbox, and the delivery of each message.

Messages are made from events: a webhook stores the last event that it has a message for. The process that sends
messages also makes them, in the transaction that advances this last event. If a process dies while it sends, its
message is sent again: each is sent at least once, and has the same id each time. A process sends one message at a time
to a webhook, in the order of the events except for those that failed, so a server that hangs delays only its own
messages.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ulid import ULID

from service.domain import DeliveryState
from service.errors import Conflict
from service.store.models import Delivery, Event, Webhook
from service.store.repositories import EventRepository, JobRepository
from service.store.repositories.webhooks import DeliveryRepository, WebhookRepository
from service.store.session import Session
from service.use_cases.transitions import storable

TEST_KIND = "webhook.test"
"""The kind of a message without an event."""
MAX_WEBHOOKS = 20
"""Most webhooks of a project."""
MAX_WAITING = 1000
"""The most waiting messages of a webhook; further events wait to become messages."""
NUM_KEPT = 500
"""The most ended messages of a webhook that are listed."""
EVENTS_AT_ONCE = 100
"""Events of one webhook that become messages in one transaction, by judgement."""
WEBHOOKS_AT_ONCE = 20
"""Webhooks in the same transaction, by judgement: it stays short."""
LOST_SECONDS = 60.0
"""Seconds after which a message that is being sent counts as lost: far longer than sending takes."""
PAUSES = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0, 18000.0, 36000.0)
"""Seconds until a message is sent again, after each attempt that failed; then it has failed."""
FAILURES_UNTIL_DISABLED = 30
"""Failed requests in a row after which a webhook is disabled."""


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """A message that is to be sent now."""

    id: str
    webhook_id: str
    url: str
    secret: str
    body: bytes
    taken_at: datetime
    """The time in its signature, by the clock of the service."""


def add_webhook(
    session: Session,
    *,
    project: str,
    job_id: str | None,
    url: str,
    kinds: Sequence[str],
    secret: str,
    owner: str | None,
    now: datetime,
) -> Webhook:
    """Adds a webhook, which gets events from now on; a webhook of a job also gets its earlier events.

    Raises:
        Conflict: the project has as many as it may.
        NotFound: there is no such job.
    """
    webhooks = WebhookRepository(session)
    if webhooks.count(project) >= MAX_WEBHOOKS:
        raise Conflict(f"project {project!r} has {MAX_WEBHOOKS} webhooks already")
    if job_id is not None:
        JobRepository(session).check_exists(job_id)
    webhook = Webhook(
        id=f"hook_{ULID()}",
        project=project,
        job_id=job_id,
        url=url,
        kinds=list(dict.fromkeys(kinds)),
        secret=secret,
        owner=owner,
        created_at=now,
        last_event_id=0 if job_id is not None else EventRepository(session).last_id(),
    )
    webhooks.add(webhook)
    return webhook


def enable(session: Session, webhook: Webhook) -> None:
    """Enables a webhook that was disabled; its waiting messages are sent."""
    webhook.disabled_at = webhook.disabled_because = None
    webhook.num_failures = 0
    session.flush()


def send_test(session: Session, webhook: Webhook, *, now: datetime) -> Delivery:
    """Queues a test message, which contains only the webhook's id; returns the message.

    Raises:
        Conflict: it is disabled, or too many messages wait to be sent to it.
    """
    if webhook.disabled_at is not None:
        raise Conflict(f"webhook {webhook.id!r} is disabled: enable it first")
    deliveries = DeliveryRepository(session)
    if deliveries.num_waiting(webhook.id) >= MAX_WAITING:
        raise Conflict(f"{MAX_WAITING} messages wait for webhook {webhook.id!r} already: try again when some are sent")
    delivery = _message(webhook, TEST_KIND, {"webhook_id": webhook.id}, event_id=0, happened_at=now, now=now)
    deliveries.add_all([delivery])
    return delivery


def redeliver(session: Session, delivery: Delivery, *, now: datetime) -> None:
    """Sends a message again, as soon as possible. Raises: Conflict: it already waits to be sent."""
    if delivery.state is DeliveryState.WAITING:
        raise Conflict(f"message {delivery.id!r} waits to be sent already")
    delivery.state, delivery.attempts = DeliveryState.WAITING, 0
    delivery.next_attempt_at, delivery.finished_at = now, None
    session.flush()


def is_anything_to_do(session: Session, *, busy: Collection[str] = (), now: datetime) -> bool:
    """True if `fill_outbox` or `take_due` may have something to do."""
    if DeliveryRepository(session).any_due(now, busy=busy):
        return True
    last_id = EventRepository(session).last_id()
    return WebhookRepository(session).any_behind(last_id, max_waiting=MAX_WAITING)


def fill_outbox(session: Session, *, now: datetime) -> int:
    """Makes messages from new events for some webhooks; returns their number."""
    last_id = EventRepository(session).last_id()
    webhooks, deliveries = WebhookRepository(session), DeliveryRepository(session)
    made = 0
    for webhook in webhooks.behind(last_id, max_waiting=MAX_WAITING, limit=WEBHOOKS_AT_ONCE):
        room = MAX_WAITING - deliveries.num_waiting(webhook.id)
        limit = min(EVENTS_AT_ONCE, room)
        if limit <= 0:  # a test message was queued meanwhile
            continue
        events = webhooks.events_for(webhook, last_id, limit=limit)
        deliveries.add_all([_message_of(webhook, event, now=now) for event in events])
        webhook.last_event_id = events[-1].id if len(events) == limit else last_id
        deliveries.remove_oldest(webhook.id, num_kept=NUM_KEPT)
        made += len(events)
    session.flush()
    return made


def _message_of(webhook: Webhook, event: Event, *, now: datetime) -> Delivery:
    data = {"event_id": event.id, "job_id": event.job_id, **event.data}
    return _message(webhook, event.kind, data, event_id=event.id, happened_at=event.created_at, now=now)


def _message(
    webhook: Webhook, kind: str, data: Mapping[str, Any], *, event_id: int, happened_at: datetime, now: datetime
) -> Delivery:
    content = {"type": kind, "timestamp": happened_at.isoformat(), "data": data}
    return Delivery(
        id=f"msg_{ULID()}",
        webhook_id=webhook.id,
        event_id=event_id,
        kind=kind,
        body=json.dumps(content, separators=(",", ":")),
        state=DeliveryState.WAITING,
        next_attempt_at=now,
        created_at=now,
    )


def take_due(session: Session, *, busy: Collection[str] = (), limit: int, now: datetime) -> list[WebhookMessage]:
    """Messages to send now, up to `limit`, and one for each webhook; unless `note_answer` follows, other processes send
    them again later.

    Args:
        busy: ids of webhooks that are left out, because their last message is still being sent.
    """
    taken = DeliveryRepository(session).due(now, busy=busy, limit=limit)
    for delivery, _ in taken:
        delivery.attempts += 1
        delivery.next_attempt_at = now + timedelta(seconds=LOST_SECONDS)
    session.flush()
    return [
        WebhookMessage(delivery.id, webhook.id, webhook.url, webhook.secret, delivery.body.encode(), taken_at=now)
        for delivery, webhook in taken
    ]


def note_answer(
    session: Session, message_id: str, *, status: int | None, text: str, seconds: float, is_taken: bool, now: datetime
) -> None:
    """Records the result of sending a message: it is delivered, will be sent again later, or has failed."""
    found = DeliveryRepository(session).get_locked(message_id)
    if found is None:
        return
    delivery, webhook = found
    delivery.status, delivery.answer, delivery.seconds = status, storable(text), seconds
    if is_taken:
        delivery.state, delivery.finished_at = DeliveryState.DELIVERED, now
        webhook.num_failures = 0
    else:
        webhook.num_failures += 1
        if delivery.attempts > len(PAUSES):
            delivery.state, delivery.finished_at = DeliveryState.FAILED, now
        else:
            delivery.next_attempt_at = now + timedelta(seconds=PAUSES[delivery.attempts - 1])
        if webhook.num_failures >= FAILURES_UNTIL_DISABLED and webhook.disabled_at is None:
            answer = f"status {status}" if status is not None else text
            webhook.disabled_at = now
            webhook.disabled_because = storable(f"{webhook.num_failures} requests in a row failed; last: {answer}")[
                :1000
            ]
    session.flush()
