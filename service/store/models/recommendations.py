"""The tables of what jobs give: recommendations, insights, and the shapes of the models that these are about."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from service.domain import DEFAULT_PROJECT
from service.evidence.insights import JobInsights, insights_from_json
from service.evidence.recommended import (
    RecommendedConfig,
    evidence_from_json,
    recommendation_from_json,
)
from service.evidence.types import Evidence, EvidenceStatus
from service.store.models.base import Base
from trainers.identity.values import Environment


class RecommendationRow(Base):
    """The config a job recommends, with its evidence, and what it holds for. It answers its own project alone.

    The key of what it holds for are fingerprint, data digest, batch size, steps, precision and objective. What is None
    was not known when it was made.
    """

    __tablename__ = "recommendations"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), unique=True)
    project: Mapped[str] = mapped_column(String(64), server_default=DEFAULT_PROJECT)
    workload: Mapped[str] = mapped_column(String(200), index=True)
    model: Mapped[str | None] = mapped_column(String(200), index=True)
    """The user's own name of the model."""
    optimizer: Mapped[str] = mapped_column(String(40))
    status: Mapped[EvidenceStatus]
    fingerprint: Mapped[str | None] = mapped_column(String(64), index=True)
    """The fingerprint of the recommended trial's model."""
    data_digest: Mapped[str | None] = mapped_column(String(64))
    batch_size: Mapped[int | None]
    num_steps: Mapped[int | None]
    """Steps of a full trial."""
    precision: Mapped[str | None] = mapped_column(String(20))
    objective: Mapped[str] = mapped_column(String(200))
    """The metric that decided."""
    device: Mapped[str | None] = mapped_column(String(20))
    """`cpu` or `cuda`."""
    world_size: Mapped[int | None]
    score: Mapped[float | None]
    """The value of the config, of which more is better (`service.evidence.best_values.score_of`)."""
    measured_by: Mapped[str | None] = mapped_column(String(64))
    """Digest of the code that measured it: scores with another one are of something else. None: there is no score, or
    it is not known what measured it."""
    environment: Mapped[dict[str, Any] | None]
    """The `trainers.identity.values.Environment` of the recommended trial as JSON."""
    content: Mapped[dict[str, Any]]
    """A `service.evidence.recommended.RecommendedConfig` as JSON."""
    created_at: Mapped[datetime]

    @property
    def recommended(self) -> RecommendedConfig:
        """`content` as readers have it; read anew each time."""
        return recommendation_from_json(self.content)

    @property
    def evidence(self) -> Evidence:
        """The evidence in `content` alone; read anew each time."""
        return evidence_from_json(self.content["evidence"])

    @property
    def stored_environment(self) -> Environment | None:
        """The environment as readers have it; read anew each time."""
        return None if self.environment is None else Environment.from_json(self.environment)


class JobInsightsRow(Base):
    """The insights into a job when its run last looked."""

    __tablename__ = "job_insights"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    content: Mapped[dict[str, Any]]
    """A `service.evidence.insights.JobInsights` as JSON."""
    computed_at: Mapped[datetime]

    @property
    def insights(self) -> JobInsights:
        """`content` as readers have it; read anew each time."""
        return insights_from_json(self.content)


class ModelShapeRow(Base):
    """The parameters of a model that a trial had, by kind and size. It names no job and no project: recommendations say
    who may see what was tuned for it."""

    __tablename__ = "model_shapes"

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    """The fingerprint of the model (`service.specification.identity`)."""
    content: Mapped[dict[str, Any]]
    """`parameters`: a `trainers.identity.values.ModelShape` as JSON."""
