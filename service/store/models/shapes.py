"""The table of the shapes of models."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models.base import Base


class ModelShapeRow(Base):
    """The parameters of a model that a trial had, by kind and size. It names no job and no project: recommendations say
    who may see what was tuned for it."""

    __tablename__ = "model_shapes"

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Of the model (`service.specification.identity`)."""
    content: Mapped[dict[str, Any]]
    """`parameters`: a `trainers.identity.values.ModelShape` as JSON."""
