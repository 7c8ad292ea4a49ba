"""The best of each choice of the parameter that a space branches by, as each member of a family."""

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
    probability_best: float | None
    """The probability that the best config tried, on average over seeds, is of this choice. It takes into account what
    all trials reached, the luck of seeds as the confirmation shows it, and that the ends of pruned trials are only
    expected; not that searched alone, a choice may find configs that were not tried. None: nothing was trained with two
    new seeds, or nothing of it was measured."""


@dataclass(frozen=True, slots=True)
class Branches:
    """The choices of the parameter that a space branches by, and which of them won."""

    parameter: str
    """The parameter whose values open the branches."""
    winner: str | int | float | bool | None
    """The choice of the recommended config."""
    choices: list[BranchBest]
    """The choices in the order of the space."""
