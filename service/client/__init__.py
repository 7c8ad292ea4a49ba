"""A typed client of the HTTP API: what the command line uses, and anyone's Python can. Never what the API does."""

from __future__ import annotations

from trainers.installation.extras import needing

with needing("api", subject="service.client"):
    from service.client.async_client import AsyncClient
    from service.client.client import Client
    from service.client.errors import ApiError, ServiceBusy, ServiceUnreachable, WaitedTooLong
    from service.client.own_token import UnusableToken
    from service.client.stream import sse_messages
    from service.client.training.client import ExternalTrial, external_trials, suggest
    from service.client.tuning import Tuned, tune

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ExternalTrial",
    "ServiceBusy",
    "ServiceUnreachable",
    "Tuned",
    "UnusableToken",
    "WaitedTooLong",
    "external_trials",
    "sse_messages",
    "suggest",
    "tune",
]
