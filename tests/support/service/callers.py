"""Callers with their own tokens, and the service that requires them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from service.access.caller import Scope
from service.access.projects import Quotas, create_project
from service.access.tokens import create_token
from service.clock import Clock, utc_now
from service.store.repositories import ProjectRepository, TokenRepository
from service.store.session import Database
from tests.support.service.live import running
from tests.support.waiting import PATIENCE_SECONDS


def give_token(
    database: Database, name: str, *scopes: Scope, project: str = "default", clock: Clock = utc_now, **quotas: int
) -> str:
    """The text of a new token; its project is made with these quotas if there is none.

    A token with only the scope `code` can no longer be created: it is stored as earlier versions did.
    """
    with database.writing() as session:
        if ProjectRepository(session).find(project) is None:
            create_project(session, project, Quotas(**quotas), now=clock())
        made = {*scopes, Scope.SUBMIT} if set(scopes) == {Scope.CODE} else set(scopes)
        text = create_token(session, name, project=project, scopes=made, expires_at=None, now=clock())
        token = TokenRepository(session).named(name)
        assert token is not None
        token.scopes = sorted(scope.value for scope in scopes)
        return str(text)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A service that requires tokens."""

    url: str

    def client(self, token: str | None = None) -> httpx.Client:
        """Without TLS, whose certificates take longer to read than most tests."""
        headers = {} if token is None else bearer(token)
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)


@contextmanager
def asking(database: Database, *, clock: Clock = utc_now, **settings: object) -> Iterator[Asked]:
    """A service on `database` that requires a token, and limits no rate unless told to."""
    values = {"access": "tokens", "requests_per_second": 0.0, **settings}
    with running(database, clock=clock, **values) as url:  # type: ignore[arg-type] # pydantic checks them
        yield Asked(url)
