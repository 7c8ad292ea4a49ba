"""The state of a token: whether it is let in. Needs no database, so that the client, which shows it, loads none."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.store.models import Token


class TokenState(StrEnum):
    """The state of a token; only a valid one is let in."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


def state_of(token: Token, now: datetime) -> TokenState:
    """The state that a token is in now."""
    if token.revoked_at is not None:
        return TokenState.REVOKED
    has_expired = token.expires_at is not None and token.expires_at <= now
    return TokenState.EXPIRED if has_expired else TokenState.VALID
