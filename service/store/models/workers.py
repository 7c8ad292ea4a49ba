"""The tables of who runs jobs: workers, and the shares that their runs have of a cluster."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String, true
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models.base import Base


class Worker(Base):
    """A process that runs jobs; its jobs are its own only while it renews their leases."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    host: Mapped[str] = mapped_column(String(255))
    pid: Mapped[int]
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    """The time at which it ended in order; None: it lives, or was killed."""
    allows_code: Mapped[bool] = mapped_column(server_default=true(), default=True)
    """True if it takes jobs that name code of users."""


class ClusterShare(Base):
    """The share that a job's run has of a cluster which others use too, and whether it wants more."""

    __tablename__ = "cluster_shares"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int]
    """The attempt of the job when this was written: what an earlier run had means nothing."""
    cluster: Mapped[str] = mapped_column(String(255))
    num_groups: Mapped[int]
    group_share: Mapped[float]
    """The part of the cluster that one rank group takes."""
    wants_since: Mapped[datetime | None]
    short_of: Mapped[list[Any]]
    """Names of the resources of which too little is free for another rank group."""
