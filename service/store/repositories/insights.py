"""What the trials of jobs tell of their hyperparameters, as a job's run last found it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from service.store.insight_models import JobInsightsRow


class InsightsRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def of_job(self, job_id: str) -> JobInsightsRow | None:
        return self._session.get(JobInsightsRow, job_id)

    def put(self, job_id: str, content: Mapping[str, Any], *, now: datetime) -> None:
        """Stores what was found of a job in place of what was found before."""
        row = self.of_job(job_id)
        if row is None:
            self._session.add(JobInsightsRow(job_id=job_id, content=dict(content), computed_at=now))
        else:
            row.content, row.computed_at = dict(content), now
        self._session.flush()
