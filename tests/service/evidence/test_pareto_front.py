"""Fronts: what is on them, in which order, and what is left out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain import Direction, Objective, Phase
from service.evidence.pareto_front import FrontPoint, dominates, front_of, pareto_front

MIN, MAX = Direction.MINIMIZE, Direction.MAXIMIZE

VALUES = st.lists(st.tuples(*[st.integers(0, 5).map(float)] * 3), max_size=12)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((1.0, 5.0), (2.0, 4.0), True),
        ((1.0, 5.0), (1.0, 4.0), True),
        ((1.0, 5.0), (1.0, 5.0), False),
        ((1.0, 4.0), (2.0, 5.0), False),
        ((2.0, 4.0), (1.0, 5.0), False),
    ],
)
def test_dominating_is_to_be_as_good_in_all_and_better_in_one(
    ours: tuple[float, ...], theirs: tuple[float, ...], expected: bool
) -> None:
    assert dominates(ours, theirs, (MIN, MAX)) is expected


def test_a_front_is_sorted_by_the_first_objective_in_its_direction() -> None:
    values = {"a": (0.9, 3.0), "b": (0.5, 1.0), "c": (0.7, 2.0), "d": (0.7, 2.5), "e": (0.4, 1.5)}
    assert pareto_front(values, (MAX, MIN)) == ["a", "c", "b"]
    assert pareto_front({}, (MIN,)) == []


def test_of_equals_the_first_is_kept_and_what_is_not_finite_is_left_out() -> None:
    assert pareto_front({2: (1.0, 1.0), 1: (1.0, 1.0), 0: (math.nan, 0.0), 3: (0.0, math.inf)}, (MIN, MIN)) == [2]


@given(VALUES, st.tuples(*[st.sampled_from(Direction)] * 3))
def test_the_front_is_what_nothing_dominates(
    values: list[tuple[float, ...]], directions: tuple[Direction, ...]
) -> None:
    front = pareto_front(dict(enumerate(values)), directions)
    undominated = [own for own in values if not any(dominates(other, own, directions) for other in values)]
    assert {values[number] for number in front} == set(undominated)
    assert len(front) == len(set(undominated))


def test_the_front_of_trials_is_of_search_and_baseline_with_all_objectives() -> None:
    objectives = [Objective("loss", MIN), Objective("speed", MAX)]
    points = front_of(
        [
            (0, Phase.SEARCH, {"loss": 0.5, "speed": 3.0, "other": 1.0}),
            (1, Phase.BASELINE, {"loss": 0.2, "speed": 1.0}),
            (2, Phase.SEARCH, {"loss": 0.6, "speed": 2.0}),
            (3, Phase.SEARCH, {"loss": 0.1, "speed": None}),
            (4, Phase.SEARCH, {"loss": 0.1}),
            (5, Phase.CONFIRMATION, {"loss": 0.1, "speed": 9.0}),
        ],
        objectives,
    )
    assert points == [
        FrontPoint(1, Phase.BASELINE, {"loss": 0.2, "speed": 1.0}),
        FrontPoint(0, Phase.SEARCH, {"loss": 0.5, "speed": 3.0}),
    ]
