"""Signatures of what is sent, as the Standard Webhooks specification has them: whoever has the secret can tell that the
service sent a body, and when (https://github.com/standard-webhooks/standard-webhooks, spec 1.0).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32
"""The specification asks for 24 to 64; as many as the SHA-256 of the signature has."""


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signed_headers(secret: str, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers with which a body is sent.

    Args:
        secret: as `new_secret` made it.
        message_id: the same each time the message is sent, so that its reader can tell that it has it.
        timestamp: the time of the sending, in seconds since 1970.
    """
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }
