"""Bodies about what the ranks of a trial print."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict

from service.api import examples
from service.api.schemas.common import ReadModel
from service.domain import OutputStream


class OutputRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.OUTPUT]})

    id: int
    """Grows with time; what `after` and `Last-Event-ID` take."""
    rank: int
    """The rank that printed it."""
    stream: OutputStream
    """Where it printed it."""
    recorded_at: datetime
    """When the lines were read, within seconds after they were printed."""
    omitted_bytes: int
    """Printed by this rank right before them, and not kept: there was too much of it."""
    lines: list[str]
    """Without escape sequences of terminals; control characters as `\\x07`."""


class OutputPage(ReadModel):
    """Lines that ranks printed, the oldest first."""

    items: list[OutputRead]
    """In the order in which they were printed."""
    ranks: list[int]
    """Those of the trial that have printed anything."""
    next_after: int | None
    """`after` of the next page; null: this is all so far. What comes later has ids above that of the last item."""
