"""The simulation that holds what jobs say of members against searches of each member alone."""

from __future__ import annotations

import json
import math
import random

import pytest

from search_spaces import Scalar
from tests.benchmarks.answers import member_calibration
from tests.benchmarks.answers.member_calibration import Answer, answered, classes, summary, surely_best
from tests.benchmarks.search.job_simulation import Size
from tests.benchmarks.search.member_landscapes import Alone, landscape_of


def test_the_member_whose_searches_find_the_best_is_the_best_and_of_level_ones_each_half() -> None:
    assert surely_best({"soap": [1.0, 1.1, 1.2], "kl": [2.0, 2.1, math.nan]})["soap"] == pytest.approx(1.0)
    assert surely_best({"soap": [1.0], "kl": [1.0]}) == {"soap": pytest.approx(0.5), "kl": pytest.approx(0.5)}


def test_saying_the_same_of_all_scores_one_and_what_is_sure_and_wrong_more() -> None:
    truth: dict[Scalar, float] = {"soap": 1.0, "kl": 0.0}
    same: dict[Scalar, float] = {"soap": 0.5, "kl": 0.5}
    wrong: dict[Scalar, float] = {"soap": 0.1, "kl": 0.9}
    found = summary(
        [Answer("table", 8, 3.0, "kl", same, wrong, truth), Answer("other", 8, 1.0, "soap", same, same, truth)]
    )
    assert (found["said"], found["true"]) == (0.5, 0.25)
    assert found["score"] == pytest.approx(1.0)
    assert found["unconfirmed"] == pytest.approx(0.75 * math.log(0.1) / math.log(0.5) + 0.25)
    assert classes([Answer("table", 8, 1.0, "kl", wrong, wrong, truth)]) == [(0.1, 1.0, 1), (0.9, 0.0, 1)]
    assert classes([Answer("table", 8, 1.0, "kl", wrong, wrong, truth)], of_winners=True) == [(0.9, 0.0, 1)]


@pytest.mark.parametrize("name", ["plain", "conditional"])
def test_a_member_alone_has_the_curves_that_it_has_in_the_family(name: str) -> None:
    landscape = landscape_of(name, 1)
    member = landscape.space.member
    assert member is not None
    assert len(member.choices) > 2
    for choice in member.choices:
        alone = Alone(landscape, choice)
        values = alone.space.sample(random.Random(0))
        assert values[member.name] == choice
        assert landscape.space.check(values) == values
        assert alone.curve(values, 3) == pytest.approx(landscape.curve(values, 3), nan_ok=True)


@pytest.mark.slow
def test_a_job_without_confirmation_says_something_of_members_too() -> None:
    told = answered(landscape_of("digits-convnet-family"), "random", Size(8, 2, 7), 1)
    assert told is not None
    for branches in told:
        known = [own.probability_best_alone or 0.0 for own in branches.choices]
        assert sum(known) == pytest.approx(1.0)
        assert max(known) < 0.9


@pytest.mark.slow
def test_the_benchmark_prints_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--jobs", "1", "--searches", "1", "--tasks", "1", "--synthetic", "loss"]
    member_calibration.main(["--tables", "stdlib-gpt", "--search", "random", *sizes])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["benchmark"] == "member_calibration"
    assert 0.0 <= result["figures"]["stdlib-gpt.16"]["true"] <= 1.0
    assert result["figures"]["synthetic.32"]["score"] > 0.0
