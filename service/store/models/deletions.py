"""The table of jobs that were deleted: what must be known of them when all else is gone."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models.base import Base


class DeletedJob(Base):
    """A job that was deleted: whose files may go wherever they turn up, and what counts against its project."""

    __tablename__ = "deleted_jobs"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    project: Mapped[str] = mapped_column(String(64), index=True)
    rank_seconds: Mapped[float]
    """Training time of all its trials times their ranks: they stay spent."""
    deleted_at: Mapped[datetime]
