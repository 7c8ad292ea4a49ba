"""The media types that a request accepts, by its `Accept`."""

from __future__ import annotations

import re

EVENT_STREAM = "text/event-stream"
JSON = "application/json"

_WEIGHT = re.compile(r"[01](?:\.[0-9]{0,3})?")


def weights_of(accept: str) -> dict[str, float]:
    """{media type: how much it is wanted, from 0 to 1}, of those that are named."""
    weights = dict[str, float]()
    for choice in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in choice.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        weights[media_type] = float(weight) if _WEIGHT.fullmatch(weight) else 0.0
    return weights


def prefers(accept: str, one: str, other: str) -> bool:
    """True if `one` is named and wanted more than `other`."""
    weights = weights_of(accept)
    return weights.get(one, 0.0) > weights.get(other, 0.0)
