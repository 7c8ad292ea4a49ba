"""The base of the models that read a request's JSON."""

from __future__ import annotations

from pydantic import ConfigDict

from service.described_model import DescribedModel


class StrictModel(DescribedModel):
    """An immutable part of a specification; unknown fields and values of another type are errors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,  # "8" is no number and true is no 1
        frozen=True,
        allow_inf_nan=False,
    )
