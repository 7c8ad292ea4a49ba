"""Sessions of browsers: a signed cookie that stands for a token, and ends with it.

The cookie holds the token's prefix and the end of the session, signed with a key of the database; each request looks
the token up anew. The secret is never in it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from itsdangerous import BadSignature, URLSafeSerializer

COOKIE = "shampoo_tuner_session"
SIGNING_KEY = "sessions"
"""The name of the key in the database."""
LIFETIME = timedelta(hours=12)


def signed(prefix: str, *, key: str, now: datetime) -> str:
    """The value of a cookie for the token of this prefix."""
    return URLSafeSerializer(key, salt=COOKIE).dumps([prefix, int((now + LIFETIME).timestamp())])


def token_of(value: str, *, key: str, now: datetime) -> str | None:
    """The prefix of the token that a cookie stands for; None: it was not signed here, or the session is over."""
    try:
        prefix, until = URLSafeSerializer(key, salt=COOKIE).loads(value)
    except BadSignature:
        return None
    return str(prefix) if datetime.fromtimestamp(until, UTC) > now else None
