"""What a search found with each choice of the parameter that its space branches by, as each member of a family."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BranchBest:
    """What a search found with one choice of the parameter that its space branches by, as a member of a family."""

    choice: str | int | float | bool | None
    num_tried: int
    """Its trials that completed or were pruned."""
    number: int | None
    """The trial with its best value; None: none completed."""
    value: float | None
    """That value, with one seed."""
    probability_best: float | None
    """That a search as long as this one, spent on this choice alone, would find a better config than with any other.
    It takes into account what each choice's trials reached, the luck of seeds as the confirmation shows it, that the
    ends of pruned trials are only expected, and that a choice with few trials may have better configs that were not
    tried. None: nothing was trained with two new seeds, or nothing of it was measured."""


@dataclass(frozen=True, slots=True)
class Branches:
    """Which choice won of the parameter that a space branches by."""

    parameter: str
    winner: str | int | float | bool | None
    """That of the recommended config."""
    choices: list[BranchBest]
    """In the order of the space."""
