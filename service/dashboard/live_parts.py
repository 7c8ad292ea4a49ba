"""The parts of a page that change while it is open, as an answer of its own: a page asks for them, not for itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response

from service.dashboard.rendering import HEADERS, page


def live_parts(request: Request, template: str, context: Mapping[str, Any], known: str | None) -> Response:
    """Answers with what a template gives, or 304 if the browser has just that.

    Args:
        known: what `If-None-Match` says.
    """
    rendered = page(request, template, context)
    tag = f'"{hashlib.sha256(rendered.body).hexdigest()[:20]}"'
    headers = {**HEADERS, "ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in [given.strip().removeprefix("W/") for given in (known or "").split(",")]:
        return Response(status_code=304, headers=headers)
    rendered.headers.update(headers)
    return rendered
