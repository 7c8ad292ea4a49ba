"""Webhooks, and the messages that are sent to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, delete, func, select
from sqlalchemy.orm import Session

from service.domain import DeliveryState
from service.errors import NotFound
from service.store.models import Delivery, Event, Job, Webhook


class WebhookRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, webhook: Webhook) -> None:
        self._session.add(webhook)
        self._session.flush()

    def get(self, webhook_id: str, *, project: str | None) -> Webhook:
        """A webhook of a project; None: of any. Raises: NotFound."""
        found = self._session.get(Webhook, webhook_id)
        if found is None or (project is not None and found.project != project):
            raise NotFound("webhook", webhook_id)
        return found

    def count(self, project: str) -> int:
        return self._session.scalar(select(func.count()).where(Webhook.project == project)) or 0

    def page(self, *, project: str | None, after_id: str | None = None, limit: int) -> list[Webhook]:
        """Up to `limit` webhooks in the order in which they were made."""
        statement = select(Webhook).order_by(Webhook.id).limit(limit)
        if project is not None:
            statement = statement.where(Webhook.project == project)
        if after_id is not None:
            statement = statement.where(Webhook.id > after_id)
        return list(self._session.scalars(statement))

    def any_behind(self, last_event_id: int, *, max_waiting: int) -> bool:
        """True if `behind` has any, but for locks."""
        statement = select(Webhook.id).where(*_is_behind(last_event_id, max_waiting))
        return self._session.scalar(statement.limit(1)) is not None

    def behind(self, last_event_id: int, *, max_waiting: int, limit: int) -> list[Webhook]:
        """Enabled webhooks that have not come to this event, and to which fewer messages wait than may; locked, and
        those that others have locked are left out."""
        statement = (
            select(Webhook)
            .where(*_is_behind(last_event_id, max_waiting))
            .order_by(Webhook.last_event_id, Webhook.id)
            .limit(limit)
            .with_for_update(of=Webhook, skip_locked=True)
        )
        return list(self._session.scalars(statement))

    def events_for(self, webhook: Webhook, up_to: int, *, limit: int) -> list[Event]:
        """The next events, up to one of them, that a webhook is to be told, the oldest first."""
        statement = select(Event).where(
            Event.id > webhook.last_event_id, Event.id <= up_to, Event.kind.in_(webhook.kinds)
        )
        if webhook.job_id is not None:
            statement = statement.where(Event.job_id == webhook.job_id)
        else:
            statement = statement.join(Job, Job.id == Event.job_id).where(Job.project == webhook.project)
        return list(self._session.scalars(statement.order_by(Event.id).limit(limit)))

    def delete(self, webhook: Webhook) -> None:
        self._session.execute(delete(Webhook).where(Webhook.id == webhook.id))


class DeliveryRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add_all(self, deliveries: Collection[Delivery]) -> None:
        self._session.add_all(deliveries)
        self._session.flush()

    def get(self, webhook_id: str, delivery_id: str) -> Delivery:
        """Raises: NotFound."""
        found = self._session.get(Delivery, delivery_id)
        if found is None or found.webhook_id != webhook_id:
            raise NotFound("delivery", delivery_id)
        return found

    def get_locked(self, delivery_id: str) -> tuple[Delivery, Webhook] | None:
        """A message and its webhook, locked; None: they are gone."""
        statement = select(Webhook).join(Delivery, Delivery.webhook_id == Webhook.id)
        webhook = self._session.scalars(
            statement.where(Delivery.id == delivery_id).with_for_update(of=Webhook)
        ).one_or_none()
        found = self._session.get(Delivery, delivery_id, populate_existing=True)
        return None if webhook is None or found is None else (found, webhook)

    def num_waiting(self, webhook_id: str) -> int:
        return self._session.scalar(_num_waiting().where(Delivery.webhook_id == webhook_id)) or 0

    def any_due(self, now: datetime, *, busy: Collection[str]) -> bool:
        """True if `due` has any, but for locks."""
        statement = select(Delivery.id).join(Webhook, Webhook.id == Delivery.webhook_id).where(*_is_due(now, busy))
        return self._session.scalar(statement.limit(1)) is not None

    def due(self, now: datetime, *, busy: Collection[str], limit: int) -> list[tuple[Delivery, Webhook]]:
        """The next message to each enabled webhook that has one whose time has come, locked; those that others have
        locked are left out. Webhooks that answered last come before those that failed.

        Args:
            busy: ids of webhooks that are left out.
        """
        is_due = _is_due(now, busy)
        order = (Delivery.next_attempt_at, Delivery.event_id, Delivery.id)
        place = func.row_number().over(partition_by=Delivery.webhook_id, order_by=order).label("place")
        places = (
            select(Delivery.id, place)
            .join(Webhook, Webhook.id == Delivery.webhook_id)
            .where(*is_due)
            .subquery("places")
        )
        statement = (
            select(Delivery, Webhook)
            .join(Webhook, Webhook.id == Delivery.webhook_id)
            # `is_due` once more: of a row that another has taken meanwhile, PostgreSQL looks at these conditions anew.
            .where(Delivery.id.in_(select(places.c.id).where(places.c.place == 1)), *is_due)
            .order_by(Webhook.num_failures, *order)
            .limit(limit)
            .with_for_update(of=Delivery, skip_locked=True)
        )
        return [(row[0], row[1]) for row in self._session.execute(statement)]

    def page(self, webhook_id: str, *, before_id: str | None = None, limit: int) -> Sequence[Delivery]:
        """Up to `limit` messages to a webhook, newest first."""
        statement = select(Delivery).where(Delivery.webhook_id == webhook_id).order_by(Delivery.id.desc()).limit(limit)
        if before_id is not None:
            statement = statement.where(Delivery.id < before_id)
        return list(self._session.scalars(statement))

    def remove_oldest(self, webhook_id: str, *, num_kept: int) -> None:
        """Removes those that have ended, but for the newest."""
        ended = Delivery.state != DeliveryState.WAITING
        newest = select(Delivery.id).where(Delivery.webhook_id == webhook_id, ended).order_by(Delivery.id.desc())
        limit = self._session.scalar(newest.offset(num_kept).limit(1))
        if limit is not None:
            old = (Delivery.webhook_id == webhook_id, ended, Delivery.id <= limit)
            self._session.execute(delete(Delivery).where(*old))


def _is_behind(last_event_id: int, max_waiting: int) -> tuple[ColumnElement[bool], ...]:
    num_waiting = _num_waiting().where(Delivery.webhook_id == Webhook.id).correlate(Webhook).scalar_subquery()
    return (Webhook.disabled_at.is_(None), Webhook.last_event_id < last_event_id, num_waiting < max_waiting)


def _num_waiting() -> Select[int]:
    return select(func.count(Delivery.id)).where(Delivery.state == DeliveryState.WAITING)


def _is_due(now: datetime, busy: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    return (
        Delivery.state == DeliveryState.WAITING,
        Delivery.next_attempt_at <= now,
        Delivery.webhook_id.not_in(busy),
        Webhook.disabled_at.is_(None),
    )
