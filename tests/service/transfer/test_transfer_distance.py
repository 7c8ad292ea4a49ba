"""The benchmark that tells how far rules miss: the best learning rate of a grid, and exponents of width."""

from __future__ import annotations

import math

import pytest

from service.transfer.ranking import CONFIDENCE
from tests.benchmarks.answers.transfer_distance import AXES, Widened, best_of, pairs_of, read_between, width_claims
from tests.benchmarks.search.make_knowledge import PRESETS


def test_the_best_of_a_grid_lies_at_the_vertex_of_the_parabola() -> None:
    losses = {place: (place + 6.3) ** 2 for place in (-8, -7, -6, -5)}
    assert best_of(losses) == pytest.approx(2**-6.3)
    assert best_of({**losses, -5: math.inf}) == 2**-6  # beside what diverges, the point itself


def test_a_loss_between_two_points_of_a_grid_is_on_the_line_between() -> None:
    losses = {-8: 3.0, -7: 1.0}
    assert read_between(losses, 2**-8) == 3
    assert read_between(losses, 2**-7.25) == pytest.approx(1.5)


def test_an_exponent_is_judged_on_families_that_it_was_not_chosen_on() -> None:
    """Two families that fall by other powers of the width, and a rule that knows both."""
    powers = {"a": -1.0, "b": -0.5}
    widened = [Widened(family, "adamw", 8.0, 8.0**power, 8.0**power) for family, power in powers.items()]
    claims = width_claims(widened)
    assert claims["width_error.adam.rule"] == 0
    assert (claims["width_exponent.adam.a"], claims["width_exponent.adam.b"]) == (-0.5, -1)
    assert claims["width_error.adam.chosen"] == pytest.approx(0.5 * math.log(8))
    assert claims["width_error.adam.-0.75"] == pytest.approx(0.25 * math.log(8))


@pytest.mark.parametrize("axis", AXES)
def test_intervals_hold_as_often_as_they_say_for_members_that_differ_in_one_axis(axis: str) -> None:
    pairs = [pair for name in PRESETS for pair in pairs_of(name) if pair.only_axis == axis]
    assert sum(pair.is_in_interval for pair in pairs) >= CONFIDENCE * len(pairs) > 0
