"""The configs of a side that are trained again with new seeds: its best ones, chosen to differ from each other. Pure.

Two configs near each other say hardly more than the better one alone: with new seeds, they do well or badly together.
If the best config was only lucky, a nearly equal config of another kind may still be good.
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
be the best one. On curves of five presets (`tests.benchmarks.search.job_simulation`), a quarter of the way gains less,
and the whole way gains no more."""

_Unlike = Callable[["Candidate", "Candidate"], bool]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A completed trial of a side."""

    number: int
    parameters: Mapping[str, Scalar]
    value: float
    """Its objective; smaller is better."""


def chosen_candidates(found: Sequence[Candidate], num: int, space: SearchSpace | None) -> list[int]:
    """The numbers of the `num` configs of a side that will be trained again, in the order of the choice; all, if there
    are fewer.

    The best one is always the first. Each further one is chosen among the configs with a chance (`REACH`): the best
    that uses another member of the space's family than the earlier choices; else the best in another region of the
    space, as far away from them as `search_luck` counts regions; else the best remaining one. Of trials with equal
    parameters only the best counts, and of equal values the earlier one.

    Args:
        space: the side's space; None: configs are chosen only by value.
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
