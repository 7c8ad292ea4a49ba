"""What all responses have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ReadModel(BaseModel):
    """A response. A client reads it with `extra="ignore"`, so that fields can be added."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True, from_attributes=True)
