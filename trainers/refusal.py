"""The part of a trial that a refusal of its config is about, as values that go from process to process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from trainers.config_part import InvalidConfig


class RefusedPart(StrEnum):
    """The part of a trial that is at fault."""

    WORKLOAD = "workload"
    """There is no such workload, or it is none."""
    OPTIONS = "options"
    """The workload refuses its options."""
    OPTIMIZER = "optimizer"
    """The optimizer is not for the workload's model."""
    ARGUMENTS = "arguments"
    """The optimizer refuses its arguments."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal of a trial's config."""

    part: RefusedPart
    message: str
    """The reason, for a person."""
    option: str = ""
    """The option of the workload that is at fault, or an element of it; empty: none, or which one is not known."""

    @classmethod
    def of(cls, error: InvalidConfig) -> Self:
        """The refusal that an error is."""
        section, _, below = error.field.partition(".")
        match section:
            case "workload":
                return cls(RefusedPart.WORKLOAD, error.message)
            case "workload_options":
                return cls(RefusedPart.OPTIONS, error.message, below)
            case "optimizer":
                return cls(RefusedPart.OPTIMIZER if below == "name" else RefusedPart.ARGUMENTS, error.message)
            case _:
                return cls(RefusedPart.OTHER, error.message)
