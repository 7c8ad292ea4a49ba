"""The best config of each choice of the parameter that a space branches by, such as each member of a family."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BranchBest:
    """The best with one choice of the parameter that a space branches by, as a member of a family."""

    choice: str | int | float | bool | None
    """The value that opens the branch."""
    num_tried: int
    """The trials of the choice that completed or were pruned."""
    number: int | None
    """The trial with its best value; None: none completed."""
    value: float | None
    """The best value, with one seed."""
    probability_best_alone: float | None = None
    """The probability that of searches of each choice alone, with as many trials as this search, that of this choice
    ends with the best config, on average over such searches and over seeds. It takes into account what all trials
    reached, how few they were of each choice, the luck of seeds as far as the confirmation shows it, and that the ends
    of pruned trials are only expected. None: too little was measured, or the evidence is older than this."""


@dataclass(frozen=True, slots=True)
class Branches:
    """The choices of the parameter that a space branches by, and whether it is decided which one suits best."""

    parameter: str
    """The parameter whose values open the branches."""
    winner: str | int | float | bool | None
    """The choice of the recommended config."""
    choices: list[BranchBest]
    """The choices in the order of the space."""
    is_decided: bool = False
    """True if the choice of the recommended config would do best by itself with a probability of 95% at least, and the
    search had as many trials as any verdict takes."""
