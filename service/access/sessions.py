"""Sessions of browsers: a signed cookie that stands for a token, and ends with it.

The cookie holds the token's prefix and the end of the session, signed with a key of the database; each request looks
the token up anew. The secret is never in it. Logging out ends all sessions of the token: the database then knows that
each of them, and every copy of a cookie, began before.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from itsdangerous import BadSignature, URLSafeSerializer

from service.hosts import read_authority

COOKIE = "shampoo_tuner_session"
"""The cookie's name, or the beginning of it: `cookie_name`."""
SIGNING_KEY = "sessions"
"""The name of the key in the database."""
LIFETIME = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Session:
    """The content of a session's cookie."""

    prefix: str
    """The prefix of the token that it stands for."""
    begun_at: datetime


def cookie_name(host: str) -> str:
    """The name of the cookie where a service is asked for by this `Host`.

    A browser sends the cookies of a host to all its ports. With the port in the name, the sessions of two services on
    one host, as of two tunnels that begin at `localhost`, do not take each other's place.
    """
    asked = read_authority(host)
    return COOKIE if asked is None or asked.port is None else f"{COOKIE}_{asked.port}"


def signed(prefix: str, *, key: str, now: datetime) -> str:
    """The value of a cookie for the token of this prefix."""
    return URLSafeSerializer(key, salt=COOKIE).dumps([prefix, (now + LIFETIME).timestamp()])


def session_of(value: str, *, key: str, now: datetime) -> Session | None:
    """The session of a cookie; None: it was not signed here, or is over."""
    try:
        prefix, until = URLSafeSerializer(key, salt=COOKIE).loads(value)
    except BadSignature:
        return None
    ends_at = datetime.fromtimestamp(until, UTC)
    session = Session(str(prefix), ends_at - LIFETIME)
    return None if is_over(session.begun_at, now) else session


def is_over(begun_at: datetime, now: datetime) -> bool:
    """True of a session that has lasted its time."""
    return begun_at + LIFETIME <= now
