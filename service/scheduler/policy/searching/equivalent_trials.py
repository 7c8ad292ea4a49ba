"""Trials that are the same training under different parameters, and the objective's resolution that follows from
them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from service.scheduler.policy.searching.curve_model import Posterior
from service.scheduler.policy.searching.encoding import Array

Beginning: TypeAlias = tuple[float, ...]
"""Values up to the first rung."""


def tells_twins(beginning: Beginning) -> bool:
    """True if equal beginnings mean equal trainings: not if nothing has moved yet, for instance at chance accuracy."""
    return len(set(beginning)) > 1


def ends_of_twins(
    finished: Iterable[tuple[Beginning, float]], paused: Iterable[tuple[int, Beginning]]
) -> dict[int, float]:
    """The final values of the paused trials that are twins of a finished one, by their numbers.

    Args:
        finished: beginning and final value of each, in their order.
        paused: number and beginning of each.
    """
    ends: dict[Beginning, float] = {}
    for beginning, final in finished:
        ends.setdefault(beginning, final)
    return {number: ends[beginning] for number, beginning in paused if tells_twins(beginning) and beginning in ends}


def resolution(beginnings: Sequence[Beginning | None], vectors: Array, posterior: Posterior) -> float:
    """The distance, in the model's length scales, within which most twins lie; 0 without twins.

    Args:
        beginnings: of the trials; None for those not yet at their first rung.
        vectors: (n, dimensions), their configs.
        posterior: gives the length scales.
    """
    groups: dict[Beginning, list[int]] = {}
    for index, beginning in enumerate(beginnings):
        if beginning is not None and tells_twins(beginning):
            groups.setdefault(beginning, []).append(index)
    found: list[float] = []
    for group in groups.values():
        if len(group) > 1:
            between = posterior.distances(vectors[group], vectors[group])
            between[np.triu_indices(len(group))] = np.inf  # each with those before it
            found.extend(between[1:].min(axis=1))
    return float(np.quantile(found, 0.75)) if found else 0.0
