"""Which configs of a side are trained again: the best, and unlike each other where the values allow it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from search_spaces import Categorical, Float, Scalar, SearchSpace, preset
from service.domain import Direction, Phase
from service.scheduler.policy.candidates import Candidate, chosen_candidates
from service.scheduler.policy.confirmation import Confirmation

LR = SearchSpace("adamw", (Float("lr", 1e-4, 1.0, scale="log"),))
FAMILY = SearchSpace(
    "shampoo",
    (
        Categorical("preconditioner", ("shampoo", "soap", "kl")),
        Float("lr", 1e-4, 1.0, scale="log"),
        Float("epsilon", 1e-10, 1e-4, scale="log", when={"preconditioner": ("shampoo",)}),
    ),
)


def candidates(space: SearchSpace, *found: tuple[float, Mapping[str, Scalar]]) -> list[Candidate]:
    return [Candidate(number, space.defaults(values), value) for number, (value, values) in enumerate(found)]


def of_rate(*found: tuple[float, float]) -> list[Candidate]:
    return candidates(LR, *((value, {"lr": lr}) for value, lr in found))


BAD = [(9.0, 1e-4), (9.1, 2e-4), (9.2, 3e-4), (9.3, 4e-4), (9.4, 5e-4)]
"""They set the median."""


def test_the_best_of_each_member_goes_before_the_second_of_the_same() -> None:
    bad: list[tuple[float, Mapping[str, Scalar]]] = [(value, {"preconditioner": "kl", "lr": lr}) for value, lr in BAD]
    found = candidates(
        FAMILY,
        (1.0, {"preconditioner": "shampoo", "lr": 0.1}),
        (1.1, {"preconditioner": "shampoo", "lr": 1e-3}),  # of another region, but of the same member
        (1.3, {"preconditioner": "soap", "lr": 0.1}),
        *bad,
    )
    assert chosen_candidates(found, 2, FAMILY) == [0, 2]
    assert chosen_candidates(found, 3, FAMILY) == [0, 2, 1]
    assert chosen_candidates(found, 3, None) == [0, 1, 2]


def test_a_member_without_a_chance_does_not() -> None:
    found = candidates(
        FAMILY,
        (1.0, {"preconditioner": "shampoo", "lr": 0.1}),
        (1.1, {"preconditioner": "shampoo", "lr": 0.11}),
        (3.0, {"preconditioner": "soap", "lr": 0.1}),  # half of the way to the median, 4.0, is 2.5
        (5.0, {"preconditioner": "kl", "lr": 0.1}),
        (6.0, {"preconditioner": "kl", "lr": 0.2}),
        (4.0, {"preconditioner": "kl", "lr": 0.3}),
        (4.0, {"preconditioner": "kl", "lr": 0.4}),
    )
    assert chosen_candidates(found, 2, FAMILY) == [0, 1]


def test_of_one_region_the_second_gives_way_to_another_region() -> None:
    found = of_rate((1.0, 0.1), (1.1, 0.12), (1.2, 0.002), *BAD)
    assert chosen_candidates(found, 2, LR) == [0, 2]
    assert chosen_candidates(found, 3, LR) == [0, 2, 1]
    far_too_bad = of_rate((1.0, 0.1), (1.1, 0.12), (8.0, 0.002), *BAD)
    assert chosen_candidates(far_too_bad, 2, LR) == [0, 1]


@pytest.mark.parametrize("num", [1, 2, 3, 5])
def test_the_best_one_is_always_the_first_and_few_are_all(num: int) -> None:
    found = of_rate((2.0, 0.1), (1.0, 0.5), (3.0, 0.1), (1.0, 0.01))
    chosen = chosen_candidates(found, num, LR)
    assert chosen[0] == 1  # the earlier one of two equal values
    assert chosen == [1, 3, 0][:num]  # trial 2 had the parameters of trial 0
    assert chosen_candidates([], num, LR) == []


def test_a_confirmation_goes_by_the_spaces_of_its_sides_in_either_direction() -> None:
    confirmation = Confirmation(
        top_k=2,
        choosing=[1],
        comparing=[2, 3],
        direction=Direction.MAXIMIZE,
        spaces={Phase.SEARCH: LR},
    )
    for one in of_rate((1.0, 0.1), (1.1, 0.12), (1.2, 0.002), *BAD):
        confirmation.add(one.number, Phase.SEARCH, one.parameters, -one.value)
        confirmation.add(one.number + 100, "sgd", one.parameters, -one.value)
    assert [repeats.number for repeats in confirmation.left()] == [0, 2, 100, 101]
    confirmation.add(50, Phase.SEARCH, LR.defaults({"lr": 0.003}), -0.5)
    assert [repeats.number for repeats in confirmation.left()][:2] == [50, 0]


def test_members_are_what_the_family_branches_by() -> None:
    member = preset("family").member
    assert member is not None
    assert member.name == "preconditioner"
    assert LR.member is None
