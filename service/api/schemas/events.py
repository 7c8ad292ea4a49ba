"""Bodies of events, as pages and live streams tell them."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, JsonValue

from service.api import examples
from service.api.schemas.common import ReadModel


class EventRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.EVENT]})

    id: int
    """Grows with time; what `Last-Event-ID` takes."""
    job_id: str
    """The id of the job that it happened to."""
    kind: str
    """`job.state`, `job.changed` (what PATCH changes, and what its run is asked for or waits for), `job.deleted`,
    `job.recommendation`, `trial.state`, `trial.changed` (its note) or `trial.measured`; more kinds may come."""
    data: dict[str, JsonValue]
    """The details, by its kind. `lost` in `job.state` says why the job's run died, when another run goes on."""
    created_at: datetime
    """The time at which it happened."""


class EventPage(ReadModel):
    """Events, the oldest first."""

    items: list[EventRead]
    """The oldest first."""
    next_after: int | None
    """`after` of the next page; null: these are all so far. What comes later has ids above that of the last item."""
