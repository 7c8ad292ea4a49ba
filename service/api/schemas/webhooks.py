"""Bodies about webhooks, and about what is sent to them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, StringConstraints

from service.access.caller import Caller, Scope
from service.api import examples
from service.api.request_body import RequestModel
from service.api.schemas.common import ReadModel
from service.domain import DeliveryState
from service.webhooks.addresses import MAX_URL_LENGTH, without_path

if TYPE_CHECKING:
    from service.store.models import Webhook

EventKind: TypeAlias = Literal[
    "job.state", "job.changed", "job.deleted", "job.recommendation", "trial.state", "trial.changed", "trial.measured"
]


class WebhookCreate(RequestModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.WEBHOOK_CREATE]})

    url: Annotated[str, StringConstraints(min_length=1, max_length=MAX_URL_LENGTH)]
    """The address that messages are posted to: `https://...`, or `http://...` with nothing secret in it. A name is
    looked up each time; addresses that are not public are refused, unless the service's settings allow them."""
    kinds: Annotated[list[EventKind], Field(min_length=1, max_length=7)] = Field(
        default=["job.state", "job.recommendation"]
    )
    """The kinds of events to send."""
    job_id: Annotated[str, StringConstraints(max_length=40)] | None = None
    """The job whose events are sent, from its beginning; null: those of all jobs of the project, from now on."""


class WebhookRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.WEBHOOK]})

    id: str
    """The id of the webhook."""
    project: str
    """The project whose events are sent."""
    job_id: str | None
    """Null: all jobs of the project."""
    url: str
    """The address that events are sent to; without the scope `submit`, what follows the host is left out."""
    kinds: list[str]
    """The kinds of events that are sent."""
    owner: str | None
    """The name of the token that made it; null: the service asked for no token."""
    created_at: datetime
    """The time at which it was made."""
    num_failures: int
    """Requests in a row that failed. After 30 it is disabled."""
    disabled_at: datetime | None
    """The time at which it was disabled; null: it is enabled."""
    disabled_because: str | None
    """The reason why it was disabled, for a person."""

    @classmethod
    def shown_to(cls, caller: Caller, webhook: Webhook) -> WebhookRead:
        """The webhook as a caller may know it."""
        read = WebhookRead.model_validate(webhook)
        return read if caller.may(Scope.SUBMIT) else read.model_copy(update={"url": without_path(read.url)})


class WebhookCreated(WebhookRead):
    model_config = ConfigDict(json_schema_extra={"examples": [{**examples.WEBHOOK, "secret": examples.WEBHOOK_SECRET}]})

    secret: str
    """The secret with which messages are signed, as the Standard Webhooks specification says. It is shown only once."""


class DeliveryRead(ReadModel):
    """A message to a webhook."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.DELIVERY]})

    id: str
    """The header `webhook-id`, the same each time it is sent."""
    event_id: int
    """The id of the event that it tells; 0: it is a test."""
    kind: str
    """The kind of that event; `webhook.test`: it is a test."""
    body: str
    """The body as it is sent."""
    state: DeliveryState
    """The state of the delivery: still to be sent, delivered, or given up."""
    attempts: int
    """Times it was sent."""
    next_attempt_at: datetime
    """The time of the next attempt, while it waits."""
    status: int | None
    """The status of the last answer; null: there was none."""
    answer: str | None
    """The beginning of the last answer, or why there was none."""
    seconds: float | None
    """The seconds that the last request took."""
    created_at: datetime
    """The time at which it was made."""
    finished_at: datetime | None
    """The time at which it arrived or was given up; null: neither yet."""
