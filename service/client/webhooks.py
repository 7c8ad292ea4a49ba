"""Requests about webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from service.api.schemas.jobs import Page
from service.api.schemas.webhooks import DeliveryRead, WebhookCreated, WebhookRead
from service.client.requests import Requests

PATH = "/v1/webhooks"


class WebhookRequests(Requests):
    """Who is told what happens."""

    def add_webhook(self, url: str, *, kinds: Sequence[str] = (), job_id: str | None = None) -> WebhookCreated:
        """Has an address told of events; the answer alone has the secret with which messages are signed.

        Args:
            kinds: of the events; none: `job.state` and `job.recommendation`.
            job_id: None: of all jobs of the project.

        Raises:
            ApiError: 409: the project has as many as it may; 422: the problem names the field.
        """
        body: dict[str, Any] = {"url": url, "job_id": job_id, **({"kinds": list(kinds)} if kinds else {})}
        return self._read(WebhookCreated, "POST", PATH, body=body)

    def webhooks(self) -> Iterator[WebhookRead]:
        """The webhooks of the project, the oldest first."""
        return self._items(Page[WebhookRead], PATH, {})

    def enable_webhook(self, webhook_id: str) -> WebhookRead:
        """Goes on with a webhook that was disabled after many failures. Raises: ApiError (404)."""
        return self._read(WebhookRead, "POST", f"{_path_of(webhook_id)}/enable")

    def remove_webhook(self, webhook_id: str) -> None:
        """Raises: ApiError (404)."""
        self._send("DELETE", _path_of(webhook_id))

    def deliveries(self, webhook_id: str) -> Iterator[DeliveryRead]:
        """What a webhook was sent, newest first. Raises: ApiError (404)."""
        return self._items(Page[DeliveryRead], f"{_path_of(webhook_id)}/deliveries", {})

    def redeliver(self, webhook_id: str, delivery_id: str) -> DeliveryRead:
        """Has a message sent again. Raises: ApiError (404; 409: it waits to be sent)."""
        path = f"{_path_of(webhook_id)}/deliveries/{quote(delivery_id, safe='')}/redeliver"
        return self._read(DeliveryRead, "POST", path)


def _path_of(webhook_id: str) -> str:
    return f"{PATH}/{quote(webhook_id, safe='')}"
