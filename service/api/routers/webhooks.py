"""Webhooks: made, listed and removed, and what was sent to them. They are sent by the workers, never from here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from service.api import problems
from service.api.dependencies import (
    CallerDependency,
    DeedDependency,
    Now,
    ReadSession,
    SettingsDependency,
    WriteSession,
)
from service.api.one_thread import OneThreadRoute
from service.api.paging import DEFAULT_PAGE_SIZE, PageSize, PageToken, cut, decode_token, encode_token
from service.api.schemas.common import Page
from service.api.schemas.webhooks import DeliveryRead, WebhookCreate, WebhookCreated, WebhookRead
from service.api.strict_json import refuse_repeated_names
from service.errors import InvalidInput, JobNotFound
from service.store.repositories import JobRepository
from service.store.repositories.webhooks import DeliveryRepository, WebhookRepository
from service.use_cases import webhooks as use_cases
from service.webhooks.addresses import ForbiddenAddress, check_url
from service.webhooks.signing import new_secret

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=OneThreadRoute)

WebhookId = Annotated[
    str, Path(max_length=40, description="The webhook's id.", examples=["hook_01KAJ5M0T3XQ8Z7V6R5N4M3K2J"])
]
DeliveryId = Annotated[
    str, Path(max_length=40, description="The delivery's id.", examples=["msg_01KAJ5M0T3XQ8Z7V6R5N4M3K2J"])
]


@router.post(
    "",
    status_code=201,
    summary="Make a webhook",
    dependencies=[Depends(refuse_repeated_names)],
    response_model=WebhookCreated,
    responses={
        201: {
            "description": "The webhook, with its secret, which is never shown again.",
            "headers": {"Location": {"description": "The webhook's path.", "schema": {"type": "string"}}},
        },
        **problems.documented(403, 404, 408, 409, 413, 415, 422, 503),
    },
)
def create_webhook(
    body: WebhookCreate,
    session: WriteSession,
    settings: SettingsDependency,
    caller: CallerDependency,
    deed: DeedDependency,
    now: Now,
    response: Response,
) -> WebhookCreated:
    """Sends the events of a job, or of all jobs of the caller's project, to an address: by POST, with a body like
    `{"type": "job.state", "timestamp": "...", "data": {"event_id": 117, "job_id": "...", "state": "succeeded"}}`.

    Messages are signed as the [Standard Webhooks](https://www.standardwebhooks.com) specification says: the header
    `webhook-signature` is `v1,` and the Base64 of HMAC-SHA256 over `ID.TIMESTAMP.BODY`, ID and TIMESTAMP being the
    headers `webhook-id` and `webhook-timestamp`, with the bytes behind `whsec_` in the secret, decoded, as the key. Any
    answer from 200 to 299 within 15 seconds accepts a message; otherwise it is sent again after 5 seconds, 30 seconds,
    2 minutes, 10 minutes and so on, eight times in all. Each is sent at least once, mostly in order; a repeated one has
    the same `webhook-id`. Redirects are not followed.
    """
    try:
        check_url(body.url, allows_private=settings.webhook_private_addresses)
    except ForbiddenAddress as error:
        raise InvalidInput("url", str(error)) from None
    project = caller.project
    if body.job_id is not None:
        found = JobRepository(session).project_of(body.job_id)
        if found is None or caller.sees not in (None, found):
            raise JobNotFound(body.job_id)
        project = found
    secret = new_secret()
    webhook = use_cases.add_webhook(
        session,
        project=project,
        job_id=body.job_id,
        url=body.url,
        kinds=body.kinds,
        secret=secret,
        owner=caller.name,
        now=now,
    )
    deed.target = webhook.id
    response.headers["Location"] = f"/v1/webhooks/{webhook.id}"
    return WebhookCreated.model_validate(webhook)


@router.get("", summary="List webhooks", responses=problems.documented(422, 503))
def list_webhooks(
    session: ReadSession,
    caller: CallerDependency,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
    page_token: PageToken = None,
) -> Page[WebhookRead]:
    """The webhooks that the caller sees, the oldest first."""
    after_id = None if page_token is None else decode_token("webhook", page_token)
    rows = WebhookRepository(session).page(project=caller.sees, after_id=after_id, limit=page_size + 1)
    found, token = cut(rows, page_size, lambda webhook: encode_token("webhook", webhook.id))
    return Page[WebhookRead](items=[WebhookRead.shown_to(caller, each) for each in found], next_page_token=token)


@router.get("/{webhook_id}", summary="Read a webhook", responses=problems.documented(404, 422, 503))
def read_webhook(session: ReadSession, caller: CallerDependency, webhook_id: WebhookId) -> WebhookRead:
    """Everything but its secret."""
    return WebhookRead.shown_to(caller, WebhookRepository(session).get(webhook_id, project=caller.sees))


@router.post("/{webhook_id}/enable", summary="Enable a webhook", responses=problems.documented(403, 404, 409, 422, 503))
def enable_webhook(session: WriteSession, caller: CallerDependency, webhook_id: WebhookId) -> WebhookRead:
    """Enables a webhook that was disabled after many failures; events that happened meanwhile are sent, too."""
    webhook = WebhookRepository(session).get(webhook_id, project=caller.sees)
    use_cases.enable(session, webhook)
    return WebhookRead.model_validate(webhook)


@router.delete(
    "/{webhook_id}",
    status_code=204,
    summary="Remove a webhook",
    responses={204: {"description": "It is gone, with its messages."}, **problems.documented(403, 404, 422, 503)},
)
def delete_webhook(session: WriteSession, caller: CallerDependency, webhook_id: WebhookId) -> None:
    """Removes a webhook with its messages, also those still to be sent."""
    webhooks = WebhookRepository(session)
    webhooks.delete(webhooks.get(webhook_id, project=caller.sees))


@router.get(
    "/{webhook_id}/deliveries", summary="List what a webhook was sent", responses=problems.documented(404, 422, 503)
)
def list_deliveries(
    session: ReadSession,
    caller: CallerDependency,
    webhook_id: WebhookId,
    page_size: PageSize = DEFAULT_PAGE_SIZE,
    page_token: PageToken = None,
) -> Page[DeliveryRead]:
    """The messages to a webhook with what was answered, newest first: all that wait, and the last 500 others."""
    webhook = WebhookRepository(session).get(webhook_id, project=caller.sees)
    before_id = None if page_token is None else decode_token("delivery", page_token)
    rows = DeliveryRepository(session).page(webhook.id, before_id=before_id, limit=page_size + 1)
    found, token = cut(rows, page_size, lambda delivery: encode_token("delivery", delivery.id))
    return Page[DeliveryRead](items=[DeliveryRead.model_validate(each) for each in found], next_page_token=token)


@router.post(
    "/{webhook_id}/test",
    status_code=201,
    summary="Send a test message",
    response_model=DeliveryRead,
    responses={
        201: {"description": "The message, which a worker sends."},
        **problems.documented(403, 404, 409, 422, 503),
    },
)
def test_webhook(session: WriteSession, caller: CallerDependency, now: Now, webhook_id: WebhookId) -> DeliveryRead:
    """Sends a message of the kind `webhook.test` from a worker, signed like all others: `{"type": "webhook.test",
    "timestamp": "...", "data": {"webhook_id": "..."}}`. The list of deliveries tells what was answered."""
    webhook = WebhookRepository(session).get(webhook_id, project=caller.sees)
    return DeliveryRead.model_validate(use_cases.send_test(session, webhook, now=now))


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/redeliver",
    summary="Send a message again",
    responses=problems.documented(403, 404, 409, 422, 503),
)
def redeliver(
    session: WriteSession, caller: CallerDependency, now: Now, webhook_id: WebhookId, delivery_id: DeliveryId
) -> DeliveryRead:
    """Sends a delivered or failed message once more, with the same `webhook-id`."""
    webhook = WebhookRepository(session).get(webhook_id, project=caller.sees)
    delivery = DeliveryRepository(session).get(webhook.id, delivery_id)
    use_cases.redeliver(session, delivery, now=now)
    return DeliveryRead.model_validate(delivery)
