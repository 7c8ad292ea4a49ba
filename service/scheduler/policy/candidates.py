"""The configs of a side that are trained again with new seeds: its best ones, and unlike each other. Pure.

Two configs near each other hardly tell more than the better of them alone: with new seeds, they do well or badly
together. A config of another kind that was found nearly as good may hold where that one was lucky.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from search_spaces import Scalar, SearchSpace
from service.evidence.luck.search_luck import NEAR
from service.evidence.luck.searched_side import point_of, typical_distance

REACH = 0.5
"""Share of the way from a side's best value to the median of its completed trials within which a config has a chance to
be the best one. On curves of five presets (`tests.benchmarks.search.job_simulation`), a quarter gains less, and all of
the way no more."""

_Unlike = Callable[["Candidate", "Candidate"], bool]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A completed trial of a side."""

    number: int
    parameters: Mapping[str, Scalar]
    value: float
    """Its objective; smaller is better."""


def chosen_candidates(found: Sequence[Candidate], num: int, space: SearchSpace | None) -> list[int]:
    """The numbers of the `num` configs of a side that are to be trained again, in the order of the choice; all, if
    there are fewer.

    The best one is always the first. Each further one is the best of the configs with a chance (`REACH`) that is of
    another member of the space's family than those before it; else the best in another region of the space, as far from
    them as `search_luck` counts regions; else the best that is left. The best of trials with equal parameters stands
    for all of them, and where values are equal the earlier one.

    Args:
        space: the side's space; None: configs go by value alone.
    """
    by_config: dict[frozenset[tuple[str, Scalar]], Candidate] = {}
    for candidate in sorted(found, key=lambda one: (one.value, one.number)):
        by_config.setdefault(frozenset(candidate.parameters.items()), candidate)
    left = list(by_config.values())
    if not left or space is None:
        return [one.number for one in left[:num]]
    best = left[0].value
    limit = best + REACH * (statistics.median(one.value for one in left) - best)
    with_chance = list(itertools.takewhile(lambda one: one.value <= limit, left))
    kinds = _kinds_of_unlikeness(space)
    chosen: list[Candidate] = []
    while left and len(chosen) < num:
        unlike = (one for kind in kinds for one in with_chance if all(kind(one, other) for other in chosen))
        following = next(unlike, left[0])
        chosen.append(following)
        left.remove(following)
    return [one.number for one in chosen]


def _kinds_of_unlikeness(space: SearchSpace) -> list[_Unlike]:
    points: dict[int, tuple[float, ...]] = {}

    def point(one: Candidate) -> tuple[float, ...]:
        if one.number not in points:
            points[one.number] = point_of(space, one.parameters)
        return points[one.number]

    def is_of_another_region(one: Candidate, other: Candidate) -> bool:
        return math.dist(point(one), point(other)) > NEAR * typical_distance(len(point(one)))

    member = space.member
    if member is None:
        return [is_of_another_region]
    name = member.name
    return [lambda one, other: one.parameters[name] != other.parameters[name], is_of_another_region]
