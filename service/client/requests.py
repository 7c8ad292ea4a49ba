"""Common to all requests of the client: the connection, errors, pages, streams."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, cast
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel

from service.client.attempts import Attempts, read_answer, refusal
from service.client.calls import Call, Pages, Params, reading
from service.client.errors import ServiceUnreachable
from service.client.own_token import find_token
from service.client.stream import StreamOver, sse_messages
from service.hosts import DEFAULT_URL, URL

TIMEOUT_SECONDS = 30.0
"""Longest wait for the answer to an ordinary request, by judgement: more than it may wait for its turn at the service
(`capacity.WAIT_SECONDS`)."""
# Longer than the pause between the server's heartbeats: silence for so long is a dead connection.
STREAM_TIMEOUT_SECONDS = 45.0
GIVE_UP_SECONDS = 15.0
"""Longer than a service that is away or busy asks to wait."""

Read = TypeVar("Read", bound=BaseModel)
Result = TypeVar("Result")
Item = TypeVar("Item")
P = ParamSpec("P")


class Requests:
    """A connection to one service."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        give_up_seconds: float = GIVE_UP_SECONDS,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Prepares a client; nothing is asked yet.

        Args:
            base_url: None: that of the environment, `SHAMPOO_TUNER_URL`, or else of a service that was started without
                options on this machine.
            token: None: that of the environment, `SHAMPOO_TUNER_TOKEN` or the file that `SHAMPOO_TUNER_TOKEN_FILE`
                names, if there is one.
            give_up_seconds: for so long, a request that failed is sent again where that may help and harms nothing; 0:
                never.

        Raises:
            UnusableToken: the token is none, or others can read its file.
            ValueError: the URL is none of HTTP, or has a port that cannot be.
        """
        connecting = Connecting.to(base_url, token)
        self.base_url = connecting.base_url
        self._give_up_seconds = give_up_seconds
        self._timeout_seconds = TIMEOUT_SECONDS
        self._http = httpx.Client(
            base_url=self.base_url,
            timeout=TIMEOUT_SECONDS,
            transport=transport,
            headers=connecting.headers,
            trust_env=connecting.trusts_environment,
            verify=connecting.verifies,
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
                    raise refusal(response, self.base_url)
                yield None
                for _, data in sse_messages(response.iter_bytes()):
                    yield schema.model_validate_json(data)
        except httpx.TransportError as error:
            raise ServiceUnreachable(self.base_url, error) from error

    def call(self, call: Call[Result]) -> Result:
        """The answer to a request, which is sent again while that may help and harms nothing.

        Raises:
            ApiError, ServiceUnreachable
        """
        attempts = Attempts(
            call, self.base_url, give_up_seconds=self._give_up_seconds, timeout_seconds=self._timeout_seconds
        )
        while True:
            try:
                response = self._http.request(
                    call.method, call.path, params=call.params, content=call.content, headers=call.sent_headers
                )
            except httpx.TransportError as error:
                pause = attempts.after_error(error)
            else:
                found = attempts.after_answer(response)
                if found is None:
                    return cast("Result", read_answer(call, response, self.base_url))
                pause = found
            time.sleep(pause)

    def pages(self, pages: Pages[Item]) -> Iterator[Item]:
        """The items of a list, page after page.

        Raises:
            ApiError, ServiceUnreachable
        """
        part = self.call(pages.page())
        yield from part.items
        while part.following is not None:
            part = self.call(pages.page(part.following))
            yield from part.items

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
        call = Call(reading(schema), method, path, params=params or {}, body=body, headers=headers or {})
        return self.call(call)


def answered(declared: Callable[P, Call[Result]]) -> Callable[Concatenate[Requests, P], Result]:
    """A method that sends a request and gives its answer."""

    @wraps(declared)
    def method(client: Requests, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return client.call(declared(*args, **kwargs))

    return method


def listed(declared: Callable[P, Pages[Item]]) -> Callable[Concatenate[Requests, P], Iterator[Item]]:
    """A method that gives the items of a list, and asks for its pages as they are needed."""

    @wraps(declared)
    def method(client: Requests, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[Item]:
        return client.pages(declared(*args, **kwargs))

    return method


@dataclass(frozen=True, slots=True)
class Connecting:
    """The settings of a client's connection, of which both clients make one of httpx."""

    base_url: str
    token: str | None

    @classmethod
    def to(cls, base_url: str | None, token: str | None) -> Connecting:
        """The settings for what a client was given.

        Raises: UnusableToken, ValueError.
        """
        address = base_url or os.environ.get(URL) or DEFAULT_URL
        _check(address)
        return cls(address.rstrip("/"), find_token(token))

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    @property
    def trusts_environment(self) -> bool:
        """False for this machine's loopback: a proxy of the environment cannot reach it."""
        host = urlsplit(self.base_url).hostname or ""
        return not (host == "localhost" or host.startswith("127.") or host == "::1")

    @property
    def verifies(self) -> bool | ssl.SSLContext:
        """The certificates to trust: those that the environment names (`SSL_CERT_FILE`), on this machine as well. False
        where there are none: reading all of them would take 20 ms for nothing."""
        if not self.trusts_environment and urlsplit(self.base_url).scheme == "https":
            return httpx.create_ssl_context()
        return self.trusts_environment


def _check(url: str) -> None:
    """Raises: ValueError: no service can have this URL."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} must begin with http:// or https:// and name a host")
    try:
        is_none = parts.port == 0
    except ValueError:
        is_none = True
    if is_none:
        raise ValueError(f"{url!r}: its port must be from 1 to 65535, got {parts.netloc.rpartition(':')[2]!r}")
