"""The table of what the trials of jobs tell of their hyperparameters."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models.base import Base


class JobInsightsRow(Base):
    """The insights into a job when its run last looked."""

    __tablename__ = "job_insights"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    content: Mapped[dict[str, Any]]
    """A `service.evidence.insights.JobInsights` as JSON."""
    computed_at: Mapped[datetime]
