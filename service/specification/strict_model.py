"""The base of the models that read a request's JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """An immutable part of a specification; unknown fields and values of another type are errors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,  # "8" is no number and true is no 1
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )
