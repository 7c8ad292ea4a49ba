"""Checks of a request's `Host` and `Origin`, before anything else looks at it: 421 where it asks for another name than
the service's own, 403 where another site's page sends it and it may change something.

Where no tokens are asked for, whoever reaches the service may use it, and elsewhere a browser that has logged in may,
by its cookie (`service.server.guard`). A browser must not lend that to every page it shows. A page whose name was
pointed at the service (DNS rebinding) is of one origin with it for the browser, and could read everything; the `Host`
of its requests gives it away. Any page can send a form, or a `fetch`
of mode `no-cors`, anywhere; it cannot read the answer, but the job would be cancelled all the same. `Origin` and
`Sec-Fetch-Site` tell such requests, and programs, which are no browsers, send neither.

What is only read, a browser keeps from the scripts of other origins' pages, but it may load it for them, as an image or
by `no-cors`: whether that succeeds tells them that the service is here and what it has, and the bytes come into their
process. So each answer says that it is for pages of its own origin alone, and of the type that it names.
"""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access.required_scopes import READING
from service.api.problems import problem_response
from service.api.request_body import small
from service.api.schemas.common import FieldError
from service.hosts import Authority, is_allowed, is_origin_of, read_authority
from service.settings import ENV_PREFIX

SETTING = f"{ENV_PREFIX}ALLOWED_HOSTS"
OWN_PAGES = ("same-origin", "none")
"""Values of `Sec-Fetch-Site`: the page is one of ours, or there is none, as where a person types an address."""
FOR_OWN_PAGES = ((b"cross-origin-resource-policy", b"same-origin"), (b"x-content-type-options", b"nosniff"))
"""Headers of every answer."""


class OriginCheck:
    """ASGI middleware. Of HTTP alone: the server accepts no other protocol."""

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]) -> None:
        self._app = app
        self._allowed_hosts = frozenset(allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, _for_own_pages(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        given = headers.getlist("host")
        asked = read_authority(given[0]) if len(given) == 1 else None
        if asked is None or not is_allowed(asked.host, self._allowed_hosts):
            return _foreign_host(given, instance=scope["path"])
        if scope["method"] in READING:  # what they answer, a browser keeps from other origins' pages
            return None
        field = _field_of_another_site(headers, asked)
        return _cross_origin(field, headers[field], given[0], instance=scope["path"]) if field else None


def _for_own_pages(send: Send) -> Send:
    """Sends an answer with `FOR_OWN_PAGES`."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *FOR_OWN_PAGES]}
        await send(message)

    return send_with_headers


def _field_of_another_site(headers: Headers, asked: Authority) -> str | None:
    """The header by which a request was sent by a page of another origin, if it was."""
    if any(site not in OWN_PAGES for site in headers.getlist("sec-fetch-site")):
        return "Sec-Fetch-Site"
    # Also where Sec-Fetch-Site raises no doubt: browsers leave it out without TLS, except on this machine.
    if any(not is_origin_of(origin, asked) for origin in headers.getlist("origin")):
        return "Origin"
    return None


def _foreign_host(given: list[str], *, instance: str) -> Response:
    if len(given) == 1:
        message = f"{given[0][:100]!r} is no host that this service answers to; {SETTING} adds one"
    else:
        message = (
            f"must be given once, got {len(given)}; it is one that this service answers to, or that {SETTING} adds"
        )
    return problem_response(
        HTTPStatus.MISDIRECTED_REQUEST,
        "host-not-allowed",
        "The service does not answer to this host",
        f"Host: {message}",
        instance=instance,
        errors=[FieldError(field="Host", message=message, value=small(given[0]) if len(given) == 1 else None)],
    )


def _cross_origin(field: str, value: str, host: str, *, instance: str) -> Response:
    message = (
        f"{value[:100]!r} tells of a page of another origin than {host[:100]!r}, which may change nothing here "
        "(a proxy in front of the service must pass on the Host that it was asked for)"
    )
    return problem_response(
        HTTPStatus.FORBIDDEN,
        "cross-origin",
        "Another site's page sent the request",
        f"{field}: {message}",
        instance=instance,
        errors=[FieldError(field=field, message=message, value=small(value))],
    )
