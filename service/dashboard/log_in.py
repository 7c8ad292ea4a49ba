"""The page on which a person logs in with a token, and the ends of sessions."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from starlette.responses import Response

from service.access.audit import record_deed
from service.access.caller import Caller, Scope
from service.access.sessions import LIFETIME, SIGNING_KEY, cookie_name, signed
from service.access.tokens import end_sessions, read_token_text
from service.api.dependencies import AuthenticationDependency, DatabaseDependency, Now, TurnsDependency, address_of
from service.dashboard.rendering import page
from service.store.repositories import SigningKeyRepository

router = APIRouter(include_in_schema=False)

MAX_FIELDS = 4
"""The form has one; a body of many is refused before all of it is parsed. By judgement."""
HOME = "/"
NextPage = Annotated[str, Query(max_length=2000)]
"""The page that comes after the log-in. In the address of the form, so that one that is refused leads back to it."""
# A path of this service. Browsers take `//host` and `/\host` for another one, and drop tabs and line ends.
_OWN_PATH = re.compile(r"/(?![/\\])[\x21-\x7e]{0,1999}", re.ASCII)


@router.get("/login")
async def log_in_page(
    request: Request,
    authentication: AuthenticationDependency,
    now: Now,
    next: NextPage = HOME,  # noqa: A002
) -> Response:
    """The form."""
    if await authentication.anybody(now) is not None:
        return RedirectResponse(_own(next), HTTPStatus.SEE_OTHER)  # nobody need say who asks
    return _form(request, next)


@router.post("/login")
async def log_in(
    request: Request,
    authentication: AuthenticationDependency,
    database: DatabaseDependency,
    turns: TurnsDependency,
    now: Now,
    next: NextPage = HOME,  # noqa: A002
) -> Response:
    """Begins a session, if the token of the form is valid. No other site's form comes here, for `OriginCheck`."""
    try:
        fields = parse_qs((await request.body()).decode("ascii"), max_num_fields=MAX_FIELDS)
    except ValueError:
        fields = {}
    text = read_token_text(fields.get("token", [""])[0].strip())
    caller = None if text is None else await authentication.by_token(text, now)
    if text is None or caller is None:
        return _form(request, next, problem="This is no valid token: it is not known here, or has ended.")
    if not caller.may(Scope.READ):
        return _form(request, next, problem="This token is not for pages: it lacks the scope read.")

    def begin(caller: Caller) -> str:
        with database.writing() as session:
            record_deed(session, caller, "log_in", text.prefix, address=address_of(request), now=now)
            return SigningKeyRepository(session).add_once(SIGNING_KEY, now)

    async with turns.one():
        key = await run_in_threadpool(begin, caller)
    response = RedirectResponse(_own(next), HTTPStatus.SEE_OTHER, {"Cache-Control": "no-store"})
    # Behind a proxy that speaks TLS the service is asked by http; the page's origin tells what the browser sees.
    is_secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
    response.set_cookie(
        _cookie_name(request),
        signed(text.prefix, key=key, now=now),
        max_age=int(LIFETIME.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=is_secure,
    )
    return response


@router.get("/session", status_code=HTTPStatus.NO_CONTENT)
async def session() -> None:
    """Answers whoever is let in with nothing: open pages ask whether their session lasts. `Guard`
    answers where it has ended."""


@router.post("/logout")
async def log_out(
    request: Request,
    authentication: AuthenticationDependency,
    database: DatabaseDependency,
    turns: TurnsDependency,
    now: Now,
) -> Response:
    """Ends the sessions of the token, on other machines, too, and has the browser forget this one."""
    cookie = request.cookies.get(_cookie_name(request))
    caller = None if cookie is None else await authentication.by_session(cookie, now)

    def end(caller: Caller, prefix: str) -> None:
        with database.writing() as session:
            end_sessions(session, prefix, now=now)
            record_deed(session, caller, "log_out", prefix, address=address_of(request), now=now)

    if caller is not None and caller.token is not None:
        async with turns.one():
            await run_in_threadpool(end, caller, caller.token)
        authentication.forget(caller.token)
    response = RedirectResponse("/login", HTTPStatus.SEE_OTHER, {"Cache-Control": "no-store"})
    response.delete_cookie(_cookie_name(request), httponly=True, samesite="lax")
    return response


def _form(request: Request, next_page: str, *, problem: str | None = None) -> Response:
    context = {"next": _own(next_page), "problem": problem, "hours": int(LIFETIME.total_seconds() // 3600)}
    status = HTTPStatus.OK if problem is None else HTTPStatus.UNAUTHORIZED
    return page(request, "login.html", context, status_code=status)


def _cookie_name(request: Request) -> str:
    return cookie_name(request.headers.get("host", ""))


def _own(next_page: str) -> str:
    """`next_page` if it is a path of this service, else the first page."""
    return next_page if _OWN_PATH.fullmatch(next_page) else HOME
