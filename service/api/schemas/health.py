"""Bodies about the health of a job."""

from __future__ import annotations

from pydantic import ConfigDict

from service.api import examples
from service.api.schemas.common import ReadModel
from service.evidence.health.cards import HealthCard


class JobHealth(ReadModel):
    """Findings about a job; none where nothing is wrong."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB_HEALTH]})

    items: list[HealthCard]
    """Warnings first."""
