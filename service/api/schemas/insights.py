"""Bodies about what the trials of a job tell: of its hyperparameters, and of its health."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import ConfigDict

from service.api import examples
from service.api.schemas.common import ReadModel
from service.domain import Direction
from service.evidence.health.cards import HealthCard
from service.evidence.insights import SideInsights

if TYPE_CHECKING:
    from service.store.models import JobInsightsRow


class InsightsRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.INSIGHTS]})

    job_id: str
    """The id of the job."""
    metric: str
    """The metric of the objective that counts first; the others are not looked at."""
    direction: Direction
    """The direction in which the objective is better."""
    num_ended: int
    """Trials of search and baselines that had ended when this was computed."""
    sides: list[SideInsights]
    """The search first, then the baselines in their order."""
    computed_at: datetime
    """The time at which the job's run last looked."""

    @classmethod
    def of(cls, stored: JobInsightsRow) -> InsightsRead:
        found = stored.insights
        return cls(
            job_id=stored.job_id,
            metric=found.metric,
            direction=found.direction,
            num_ended=found.num_ended,
            sides=found.sides,
            computed_at=stored.computed_at,
        )


class JobHealth(ReadModel):
    """The findings about a job; empty if nothing is wrong."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.JOB_HEALTH]})

    items: list[HealthCard]
    """Warnings first."""
