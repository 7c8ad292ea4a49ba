"""What all requests of the client have in common: the connection, errors, pages, streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from service.api.schemas.common import Problem
from service.api.schemas.jobs import Page
from service.client.errors import ApiError, ServiceBusy, ServiceUnreachable
from service.client.own_token import find_token
from service.client.stream import StreamOver, sse_messages
from service.errors import ServiceError
from service.hosts import DEFAULT_URL

TIMEOUT_SECONDS = 30.0
# Longer than the pause between the server's heartbeats: silence for so long is a dead connection.
STREAM_TIMEOUT_SECONDS = 45.0

Read = TypeVar("Read", bound=BaseModel)
Params = Mapping[str, str | int | Sequence[str]]


class Requests:
    """A connection to one service."""

    def __init__(
        self, base_url: str = DEFAULT_URL, *, token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        """A client; nothing is asked yet.

        Args:
            token: None: that of the environment, `SHAMPOO_TUNER_TOKEN` or the file that `SHAMPOO_TUNER_TOKEN_FILE`
                names, if there is one.

        Raises:
            UnusableToken: the token is none, or others can read its file.
        """
        own_token = find_token(token)
        self.base_url = base_url.rstrip("/")
        scheme, host = urlsplit(self.base_url).scheme, urlsplit(self.base_url).hostname or ""
        # A proxy of the environment cannot reach this machine's loopback.
        on_loopback = host == "localhost" or host.startswith("127.") or host == "::1"
        self._http = httpx.Client(
            base_url=self.base_url,
            timeout=TIMEOUT_SECONDS,
            transport=transport,
            headers={} if own_token is None else {"Authorization": f"Bearer {own_token}"},
            trust_env=not on_loopback,
            verify=not on_loopback or scheme != "http",  # reading all certificates would take 20 ms for nothing
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _stream(
        self, schema: type[Read], path: str, after: int | None, *, params: Params | None = None
    ) -> Iterator[Read | None]:
        headers = {"Accept": "text/event-stream"}
        if after is not None:
            headers["Last-Event-ID"] = str(after)
        timeout = httpx.Timeout(TIMEOUT_SECONDS, read=STREAM_TIMEOUT_SECONDS)
        try:
            with self._http.stream("GET", path, params=params, headers=headers, timeout=timeout) as response:
                if response.status_code == httpx.codes.NO_CONTENT:
                    raise StreamOver
                if not response.is_success:
                    response.read()
                    raise self._error(response)
                yield None
                for _, data in sse_messages(response.iter_bytes()):
                    yield schema.model_validate_json(data)
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error

    def _items(self, page_type: type[Page[Read]], path: str, params: Mapping[str, Any]) -> Iterator[Read]:
        token: str | None = None
        while True:
            page = self._read(page_type, "GET", path, params={**params, **({"page_token": token} if token else {})})
            yield from page.items
            token = page.next_page_token
            if token is None:
                return

    def read(
        self,
        schema: type[Read],
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Read:
        """The answer to one request, for what has no method of its own.

        Raises:
            ApiError, ServiceUnreachable
        """
        return self._read(schema, method, path, params=params, body=body, headers=headers)

    def _read(
        self,
        schema: type[Read],
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Read:
        response = self._ask(method, path, params=params, body=body, content=content, headers=headers)
        try:
            return schema.model_validate_json(response.content)
        except ValidationError as error:
            raise ServiceUnreachable(self.base_url, f"its answer is not ours: {error.errors()[0]['msg']}") from error

    def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        if body is not None:
            content = json.dumps(body, allow_nan=False).encode()
        sent = {"Content-Type": "application/json", **(headers or {})} if content else headers
        try:
            response = self._http.request(method, path, params=params, content=content, headers=sent)
        except httpx.ReadTimeout as error:
            raise ServiceBusy(self.base_url, TIMEOUT_SECONDS) from error
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error
        if not response.is_success:
            raise self._error(response)
        return response

    def _error(self, response: httpx.Response) -> ServiceError:
        try:
            return ApiError(Problem.model_validate_json(response.content))
        except ValidationError:
            return ServiceUnreachable(self.base_url, f"status {response.status_code} without a problem document")
