"""Tokens: made, revoked, and looked up.

A token reads `shampoo_PREFIX_SECRET`, so that whoever searches text for lost secrets can find it. The prefix is no
secret: it finds the row, and names the token to people. The secret is 256 random bits, of which the database has the
SHA-256. A slow digest such as argon2 protects words that people choose, which can be guessed one by one; here there is
nothing to guess, and each request would pay for it. Digests are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from service.access.caller import Caller, Scope
from service.domain import DEFAULT_PROJECT
from service.errors import Conflict, InvalidInput, ServiceError, UnknownName
from service.store.models import Token
from service.store.repositories import ProjectRepository, TokenRepository
from service.store.session import Session

_TEXT = re.compile(r"shampoo_(?P<prefix>[0-9a-f]{12})_(?P<secret>[0-9a-f]{64})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}", re.ASCII)

FILE_TOKEN = "admin-token-file"
"""The name of the token that the settings give as a file."""


class BadToken(ServiceError):
    """A text is no token."""


@dataclass(frozen=True, slots=True)
class TokenText:
    """The text of a token, in its parts."""

    prefix: str
    secret: str

    def __str__(self) -> str:
        return f"shampoo_{self.prefix}_{self.secret}"

    def __repr__(self) -> str:
        return f"TokenText(shampoo_{self.prefix}_***)"

    @property
    def digest(self) -> str:
        """SHA-256 of the secret, in hexadecimal."""
        return hashlib.sha256(self.secret.encode()).hexdigest()


def new_token_text() -> TokenText:
    """A token that nobody has."""
    return TokenText(secrets.token_hex(6), secrets.token_hex(32))


def read_token_text(text: str) -> TokenText | None:
    """The parts of a token; None: `text` is none."""
    found = _TEXT.fullmatch(text)
    return None if found is None else TokenText(found["prefix"], found["secret"])


def create_token(
    session: Session,
    name: str,
    *,
    project: str,
    scopes: Collection[Scope],
    expires_at: datetime | None,
    now: datetime,
    text: TokenText | None = None,
) -> TokenText:
    """Stores a new token; its text, which is known nowhere else.

    Args:
        name: says in jobs and in the audit trail who did something. Of the tokens that are not revoked, one has it.
        expires_at: None: never.
        text: where it was made elsewhere.

    Raises:
        InvalidInput: names the field.
        UnknownName: there is no such project.
        Conflict: another token has the name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput("name", f"{name!r} must be letters, digits and . _ @ -, at most 100, not a sign first")
    if not scopes:
        raise InvalidInput("scopes", f"must name at least one of {', '.join(Scope)}")
    if Scope.CODE in scopes and not {Scope.SUBMIT, Scope.ADMIN} & set(scopes):
        raise InvalidInput("scopes", f"{Scope.CODE.value!r} adds to {Scope.SUBMIT.value!r}: alone it allows nothing")
    if expires_at is not None and expires_at <= now:
        raise InvalidInput("expires_at", f"must lie in the future, got {expires_at.isoformat()}")
    projects, tokens = ProjectRepository(session), TokenRepository(session)
    projects.lock_names()
    if projects.find(project) is None:
        hint = f"`shampoo-tuner project create {project}` makes it"
        raise UnknownName("project", project, [known.name for known in projects.all()], hint=hint)
    if (other := tokens.named(name)) is not None:
        raise Conflict(f"token {other.prefix} is called {name!r}; `shampoo-tuner token revoke {name}` ends it")
    text = text or new_token_text()
    tokens.add(
        Token(
            prefix=text.prefix,
            digest=text.digest,
            name=name,
            project=project,
            scopes=sorted(scope.value for scope in scopes),
            created_at=now,
            expires_at=expires_at,
        )
    )
    return text


def revoke_token(session: Session, name_or_prefix: str, *, now: datetime) -> Token:
    """Ends a token, found by its name or its prefix; one that has ended already stays as it is.

    Raises:
        UnknownName: there is none of that name or prefix.
    """
    tokens = TokenRepository(session)
    token = tokens.named(name_or_prefix) or tokens.find(name_or_prefix)
    if token is None:
        alive = [known.name for known in tokens.all() if known.revoked_at is None]
        raise UnknownName("token", name_or_prefix, alive)
    token.revoked_at = token.revoked_at or now
    session.flush()
    return token


def end_sessions(session: Session, prefix: str, *, now: datetime) -> None:
    """Ends all sessions of a token that have begun; the token itself stays."""
    token = TokenRepository(session).find(prefix)
    if token is not None:
        token.sessions_ended_at = now
        session.flush()


def store_file_token(session: Session, text: TokenText, *, now: datetime) -> bool:
    """Registers the token of a secret file, with every scope; False: it is registered already, or was revoked. That of
    an earlier content of the file is revoked.

    Raises:
        BadToken: another token has its prefix.
    """
    tokens = TokenRepository(session)
    known = tokens.find(text.prefix)
    if known is not None:
        if not hmac.compare_digest(known.digest, text.digest):
            raise BadToken(f"the token {text.prefix} of the file has another secret than the one of that prefix")
        return False
    if (earlier := tokens.named(FILE_TOKEN)) is not None:
        revoke_token(session, earlier.prefix, now=now)
    create_token(session, FILE_TOKEN, project=DEFAULT_PROJECT, scopes=set(Scope), expires_at=None, now=now, text=text)
    return True


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token that was not revoked, as the database knows it."""

    prefix: str
    digest: str
    caller: Caller
    expires_at: datetime | None
    last_used_at: datetime | None
    sessions_ended_at: datetime | None
    """The time at which somebody last logged out; None: nobody has."""

    def is_of(self, text: TokenText) -> bool:
        """True if it is the token of this text; takes as long whatever the text."""
        return hmac.compare_digest(self.digest, text.digest)

    def has_ended(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def holds(self, logged_in_at: datetime) -> bool:
        """True of a session that nobody has ended by logging out."""
        return self.sessions_ended_at is None or logged_in_at > self.sessions_ended_at

    def used(self, now: datetime) -> KnownToken:
        """The token, last used now."""
        return replace(self, last_used_at=now)


def look_up(session: Session, prefix: str) -> KnownToken | None:
    """The token of this prefix; None: there is none, or it was revoked."""
    token = TokenRepository(session).find(prefix)
    if token is None or token.revoked_at is not None:
        return None
    scopes = frozenset(Scope(value) for value in token.scopes)
    caller = Caller(token.name, token.project, scopes, token.prefix)
    return KnownToken(token.prefix, token.digest, caller, token.expires_at, token.last_used_at, token.sessions_ended_at)
