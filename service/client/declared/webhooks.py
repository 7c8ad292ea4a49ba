"""The requests about webhooks, each declared once for both clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from service.api.schemas.common import Page
from service.api.schemas.webhooks import DeliveryRead, WebhookCreated, WebhookRead
from service.client.calls import Call, Pages, nothing, page_of, reading

PATH = "/v1/webhooks"


def add_webhook(url: str, *, kinds: Sequence[str] = (), job_id: str | None = None) -> Call[WebhookCreated]:
    """Sends events to an address; only this answer has the secret with which messages are signed.

    Args:
        kinds: kinds of events; none: `job.state` and `job.recommendation`.
        job_id: the job whose events it is told; None: all jobs of the project.

    Raises:
        ApiError: 409: the project has as many as it may; 422: the problem names the field.
    """
    body: dict[str, Any] = {"url": url, "job_id": job_id, **({"kinds": list(kinds)} if kinds else {})}
    return Call(reading(WebhookCreated), "POST", PATH, body=body)


def webhooks() -> Pages[WebhookRead]:
    """The webhooks of the project, the oldest first."""
    return Pages(page_of(Page[WebhookRead]), PATH)


def enable_webhook(webhook_id: str) -> Call[WebhookRead]:
    """Goes on with a webhook that was disabled after many failures. Raises: ApiError (404)."""
    return Call(reading(WebhookRead), "POST", f"{_path_of(webhook_id)}/enable")


def remove_webhook(webhook_id: str) -> Call[None]:
    """Raises: ApiError (404)."""
    return Call(nothing, "DELETE", _path_of(webhook_id))


def deliveries(webhook_id: str) -> Pages[DeliveryRead]:
    """Messages that a webhook was sent, newest first. Raises: ApiError (404)."""
    return Pages(page_of(Page[DeliveryRead]), f"{_path_of(webhook_id)}/deliveries")


def redeliver(webhook_id: str, delivery_id: str) -> Call[DeliveryRead]:
    """Sends a message again. Raises: ApiError (404; 409: it waits to be sent)."""
    path = f"{_path_of(webhook_id)}/deliveries/{quote(delivery_id, safe='')}/redeliver"
    return Call(reading(DeliveryRead), "POST", path)


def test_webhook(webhook_id: str) -> Call[DeliveryRead]:
    """Sends a message of the kind `webhook.test` to a webhook. Raises: ApiError (404; 409: it is disabled)."""
    return Call(reading(DeliveryRead), "POST", f"{_path_of(webhook_id)}/test")


def _path_of(webhook_id: str) -> str:
    return f"{PATH}/{quote(webhook_id, safe='')}"
