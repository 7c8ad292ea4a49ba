"""Parts of pages that are sent only if they have changed: scripts ask for them again and again."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Header, Response

KnownTag = Annotated[str | None, Header(alias="If-None-Match", max_length=200)]
"""The `ETag` of the part that the page shows."""


def unless_known(part: Response, known: str | None) -> Response:
    """The part with its `ETag`, or 304 without content if that is the known one."""
    tag = f'"{hashlib.sha256(part.body).hexdigest()[:20]}"'
    part.headers["ETag"] = tag
    return Response(status_code=304, headers={"ETag": tag}) if known == tag else part
