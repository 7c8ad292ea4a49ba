"""Caveats as values: the kind of each, its sentence, and the trial that it is about."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass


class CaveatKind(StrEnum):
    """The kind of a limit of the evidence; more kinds may come."""

    OTHER = "other"
    """A caveat of a recommendation that was made before they had kinds."""
    PARAMETER_GROUPS = "parameter_groups"
    """Some parameters had settings that what is pasted lacks."""
    ONE_SEED = "one_seed"
    """The values are those of the search."""
    CHANGED_IN_TRAINING = "changed_in_training"
    """A value was reached with a schedule of hyperparameters."""
    AT_THE_EDGE = "at_the_edge"
    """A config lies at the edge of what was searched."""
    ENDED_EARLY = "ended_early"
    """The job ended before it had all trials."""
    NO_BASELINE = "no_baseline"
    """There is nothing to compare with."""
    UNEQUAL_TRIALS = "unequal_trials"
    """A baseline had fewer trials than the search."""
    UNEQUAL_START = "unequal_start"
    """A baseline was given less to begin with than the search."""
    UNEQUAL_OPTIONS = "unequal_options"
    """The search chose options of the workload that a baseline did not."""
    DATA = "data"
    """A trial remarked something of its data."""
    OTHER_CURRENCY = "other_currency"
    """The verdict is by another currency than the one asked for."""
    UNEQUAL_TIME = "unequal_time"
    """Trials that were to take equally long did not."""
    FAILED_WITH_A_SEED = "failed_with_a_seed"
    """A config failed when it was trained again."""
    SEEDS_ALIKE = "seeds_alike"
    """All new seeds gave the same value."""
    STOPPED_COMPARING = "stopped_comparing"
    """The seeds contradicted each other beyond remedy."""
    NOT_CONFIRMED = "not_confirmed"
    """The confirmation did not begin, or not finish."""
    NO_FRONT = "no_front"
    """No trial measured all objectives."""
    MISSED_TARGET = "missed_target"
    """A config missed the target whose time is the objective."""
    SETBACK = "setback"
    """A config did worse over new seeds than when it was found."""


@dataclass(frozen=True, slots=True, config=ConfigDict(use_attribute_docstrings=True))
class Caveat:
    """A limit of the evidence."""

    kind: CaveatKind
    """The kind of limit; more kinds may come."""
    sentence: str
    """The limit, for a person."""
    trial: int | None = None
    """The number of the trial that it is about; null: of none, or of several."""


def _read(stored: Any) -> Any:
    return Caveat(CaveatKind.OTHER, stored) if isinstance(stored, str) else stored


StoredCaveat = Annotated[Caveat, BeforeValidator(_read)]
"""A caveat that any version has stored: before there were kinds it was a sentence."""
