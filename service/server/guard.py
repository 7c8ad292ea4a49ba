"""The one place where a request is let in or not: who asks, whether it may, and not too often.

It stands before every route, file and page, so that no route can forget it: 401 without a valid token, 403 without the
scope that `service.access.required_scopes` asks for, 429 for whoever asks too often. That a job is in the project of
whoever asks is checked in `service.api.dependencies`, once its id is known.

**Forged requests.** A browser sends the cookie of a session with whatever a page has it send here. `OriginCheck`, which
stands before, refuses changes that another origin's page asks for, as `Origin` and `Sec-Fetch-Site` tell; it lets
requests pass that have neither, as programs send them. A program sends a token, though, and a browser names the origin
of each request that is not GET or HEAD: so what a cookie authorises must have one of the two headers. `SameSite=Lax`
keeps the cookie from other sites' requests besides, but counts all ports of a host as one site. There is no secret in
the pages, which compression could betray.
"""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access.caller import Caller
from service.access.required_scopes import OPEN_BELOW, PROBES, READING, needed_scope
from service.access.sessions import cookie_name
from service.access.tokens import read_token_text
from service.api import problems
from service.api.authentication import Authentication
from service.api.dependencies import holder_of_address
from service.api.media_types import EVENT_STREAM
from service.api.problems import problem_response
from service.clock import Clock
from service.dashboard.error_pages import wants_page
from service.errors import ScopeMissing, ServiceError
from service.store.session import DATABASE_ERRORS

LOG_IN = "/login"
UNKNOWN = "unknown"
"""The address of those who have none."""
OF_BROWSERS = ("origin", "sec-fetch-site")
BEARER = 'Bearer realm="shampoo-tuner"'

logger = logging.getLogger(__name__)


class _LetInNoMore(Exception):
    """The caller that is being answered would not be let in any more."""


class Guard:
    """ASGI middleware. Whoever is let in stands in `request.state.caller`."""

    def __init__(self, app: ASGIApp, authentication: Authentication, clock: Clock) -> None:
        self._app = app
        self._authentication = authentication
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            refusal = await self._refusal(request)
        except (ServiceError, *DATABASE_ERRORS) as error:
            refusal = await problems.answer_to(request, error)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            await self._app(scope, receive, self._as_long_as_let_in(request, send))
        except _LetInNoMore:  # the server ends the connection: whoever reads sees that the answer is not whole
            logger.warning("an answer to %s ends: the token of its reader holds no more", request.scope["path"])

    def _as_long_as_let_in(self, request: Request, send: Send) -> Send:
        """Sends the answer to a request piece by piece, which can take hours, for as long as its caller is let in."""
        caller = getattr(request.state, "caller", None)
        if caller is None:
            return send
        looks_itself = False

        async def send_piece(message: Message) -> None:
            nonlocal looks_itself
            if message["type"] == "http.response.start":  # a stream of events ends in order
                kind = Headers(raw=message["headers"]).get("content-type", "")
                looks_itself = kind.startswith(EVENT_STREAM)
            if message.get("more_body") and not looks_itself and not await self._holds(caller):
                raise _LetInNoMore
            await send(message)

        return send_piece

    async def _holds(self, caller: Caller) -> bool:
        try:
            return await self._authentication.holds(caller, self._clock())
        except (ServiceError, *DATABASE_ERRORS):
            return True  # it is asked again at the next piece

    async def _refusal(self, request: Request) -> Response | None:
        method, path = request.method, request.scope["path"]
        needed = needed_scope(method, path)
        if needed is None:
            is_free = path in PROBES or path.startswith(OPEN_BELOW)
            return None if is_free or method in READING else self._too_often(request, None)
        now, address = self._clock(), holder_of_address(request) or UNKNOWN
        caller = await self._authentication.anybody(now)
        if caller is None:
            given = request.headers.get("authorization")
            cookie = request.cookies.get(cookie_name(request.headers.get("host", "")))
            if given is not None:
                scheme, _, text = given.partition(" ")
                token = read_token_text(text.strip()) if scheme.lower() == "bearer" else None
                caller = None if token is None else await self._authentication.by_token(token, now, address=address)
            elif cookie is not None:
                caller = await self._authentication.by_session(cookie, now)
            if caller is None:
                return self._too_often(request, None) or _unknown(request, given, cookie)
            if given is None and method not in READING and not any(name in request.headers for name in OF_BROWSERS):
                return _of_no_page(request)
        if refusal := self._too_often(request, caller):
            return refusal
        if not caller.may(needed):
            return await problems.answer_to(request, ScopeMissing(needed, f"{method} {path}"))
        request.state.caller = caller
        return None

    def _too_often(self, request: Request, caller: Caller | None) -> Response | None:
        wait = self._authentication.wait_seconds(caller, holder_of_address(request) or UNKNOWN)
        if not wait:
            return None
        seconds = math.ceil(wait)
        return problem_response(
            HTTPStatus.TOO_MANY_REQUESTS,
            "rate-limited",
            "Too many requests",
            f"whoever asks here asks too often; again in {seconds} s",
            instance=request.url.path,
            headers={"Retry-After": str(seconds)},
        )


def _unknown(request: Request, given: str | None, cookie: str | None) -> Response:
    """401; a browser that asks for a page is led to where it can log in.

    Args:
        given: the `Authorization`, which counts before a cookie.
        cookie: of a session that has ended, or that never was.
    """
    path = request.scope["path"]
    if request.method in READING and wants_page(request):
        query = request.scope["query_string"].decode("latin-1")
        wanted = quote(path + (f"?{query}" if query else ""), safe="/")
        return RedirectResponse(f"{LOG_IN}?next={wanted}", HTTPStatus.SEE_OTHER, {"Cache-Control": "no-store"})
    slug, title, challenge = "unauthenticated", "A valid token is needed", BEARER
    if given is not None:
        detail = "the token is not known here, has expired or was revoked"
        challenge = f'{BEARER}, error="invalid_token"'
    elif cookie is not None:
        slug, title = "session-ended", "The session has ended"
        detail = f"it has lasted its time, was logged out, or its token has ended; {LOG_IN} begins another one"
    else:
        detail = (
            "send a token as `Authorization: Bearer shampoo_...`; commands take it from SHAMPOO_TUNER_TOKEN, "
            "and `shampoo-tuner token create` makes one"
        )
    return problem_response(
        HTTPStatus.UNAUTHORIZED,
        slug,
        title,
        detail,
        instance=path,
        headers={"WWW-Authenticate": challenge},
    )


def _of_no_page(request: Request) -> Response:
    return problem_response(
        HTTPStatus.FORBIDDEN,
        "cross-origin",
        "No page of this service sent the request",
        "a change that a session authorises must name the page's Origin, as browsers do; programs send a token",
        instance=request.url.path,
    )
