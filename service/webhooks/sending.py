"""One request of a webhook: to the address that was looked at, bounded in time and size, following nothing."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx

from service.webhooks.addresses import ForbiddenAddress, WebhookUrl, read_url, resolve

SENDING_SECONDS = 15.0
"""Longest time of a whole request, the search for its address included."""
ANSWER_BYTES = 1000
"""Read of an answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of a request."""

    status: int | None
    """None: none came."""
    text: str
    """The beginning of the answer, or why there is none."""
    seconds: float

    @property
    def is_taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


async def send(url: str, body: bytes, headers: dict[str, str], *, allows_private: bool) -> Reply:
    """Posts a body. Never raises: what goes wrong is the answer."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(SENDING_SECONDS):
            target = read_url(url)
            address = await resolve(target, allows_private=allows_private)
            status, text = await _post(target, address, body, headers)
    except TimeoutError:
        status, text = None, f"there was no whole answer within {SENDING_SECONDS:g} s"
    except (ForbiddenAddress, httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        status, text = None, f"{type(error).__name__}: {error}"
    return Reply(status, text[:ANSWER_BYTES], time.monotonic() - began)


async def _post(target: WebhookUrl, address: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    host = f"[{address}]" if ":" in address else address
    sent = {"Content-Type": "application/json", "User-Agent": "shampoo-tuner", **headers, "Host": target.authority}
    # No proxy of the environment: it would look the name up anew, within its own network.
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=SENDING_SECONDS) as http:
        request = http.build_request(
            "POST",
            f"{target.scheme}://{host}:{target.port}{target.path}",
            content=body,
            headers=sent,
            extensions={"sni_hostname": target.host},  # the certificate must be of the name
        )
        response = await http.send(request, stream=True)
        try:
            content = b""
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) >= ANSWER_BYTES:
                    break
        finally:
            await response.aclose()
    text = content[:ANSWER_BYTES].decode(errors="replace").replace("\0", "\ufffd")
    if response.is_redirect:
        text = f"redirects are not followed: {text}"
    return response.status_code, text
