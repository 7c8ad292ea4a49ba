"""The simulation of searches of the whole family on tables of real curves."""

from __future__ import annotations

import json
import random

import pytest

from search_spaces import FAMILY_PRESETS
from tests.benchmarks.answers import family_cost
from tests.benchmarks.answers.family_cost import (
    Course,
    Need,
    Point,
    Told,
    by_hand,
    costs,
    costs_of_all,
    landscape_of,
    needed,
)
from tests.benchmarks.search.seed_tables import read_seed_table


@pytest.mark.parametrize("name", family_cost.TABLES)
def test_a_table_has_as_many_configs_of_each_member_with_three_seeds(name: str) -> None:
    table = read_seed_table(name)
    assert set(table.spaces) == set(FAMILY_PRESETS)
    counts = {side: sum(row.side == side for row in table.rows) for side in table.spaces}
    assert len(set(counts.values())) == 1
    assert {len(row.curves) for row in table.rows} == {3}
    for row in table.rows:
        table.spaces[row.side].assign(row.parameters)


@pytest.mark.slow
def test_a_config_of_the_family_has_the_curves_of_its_own_preset() -> None:
    landscape = landscape_of("digits-convnet-family")
    for name, (choices, space) in FAMILY_PRESETS.items():
        values = space.sample(random.Random(name))
        assert landscape.mean({**choices, **values}) == landscape.alone()[name].mean(values)
        assert landscape.curve({**choices, **values}, 3) == landscape.alone()[name].curve(values, 3)


def course(*means: float) -> Course:
    """A search that finds something better with every training, and begins two trials for each."""
    return Course(
        [
            Point(0, 0.0, float("inf"), 9.0),
            *(Point(2 * i, float(i), mean, mean) for i, mean in enumerate(means, start=1)),
        ]
    )


def test_what_the_family_needs_counts_from_the_first_point_that_is_as_good() -> None:
    family = [course(5.0, 3.0, 1.0), course(5.0, 3.0, 3.0)]
    assert needed(family, 3.0, 1.0) == Need(2.0, False)
    assert needed(family, 3.0, 2.0, by_trials=True) == Need(2.0, False)
    assert needed(family, 0.5, 10.0) == Need(family_cost.MOST / 10.0, True)
    assert str(needed(family, 0.5, 10.0)) == "over 4.00"
    alone = {"soap": [course(4.0, 3.0), course(4.0, 3.0)], "kl": [course(2.0), course(2.0)]}
    found = costs(family, alone, 1)
    assert (found.best, found.trainings, found.trials) == ("kl", Need(3.0, False), Need(3.0, False))
    assert costs_of_all(family, alone, 1) == Need(1.5, False)


def test_by_hand_all_presets_are_searched_for_so_long_and_then_the_best_one_alone() -> None:
    alone = {"soap": [course(4.0, 3.0, 2.0)], "kl": [course(5.0, 1.0, 0.5)]}
    (early,), (late,) = by_hand(alone, 1), by_hand(alone, 2)
    assert [early.after(trainings).mean for trainings in (1, 2, 3, 4)] == [9.0, 4.0, 3.0, 2.0]
    assert [late.after(trainings).mean for trainings in (2, 4, 5)] == [4.0, 1.0, 0.5]


@pytest.mark.slow
def test_searches_are_told_of_the_shipped_table_or_of_an_earlier_search_of_their_own_kind() -> None:
    sides = landscape_of("digits-convnet-family").alone()
    told = {prior: Told("digits-convnet-family", prior, "random") for prior in family_cost.PRIORS}
    assert not told["none"].known("kl", sides["kl"].space, 0)
    for name in ("shampoo", "kl"):
        assert told["tables"].known(name, sides[name].space, 0)
    assert not told["tables"].known("shampoo-sgd", sides["shampoo-sgd"].space, 0)
    (earlier,) = told["jobs"].known("kl", sides["kl"].space, 0)
    assert earlier.distance > 0
    sides["kl"].space.assign(earlier.parameters)


@pytest.mark.slow
def test_the_benchmark_prints_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    family_cost.main(["--tables", "digits-convnet-family", "--search", "random", "--searches", "1"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["benchmark"] == "family_cost"
    assert result["figures"]["digits-convnet-family.10.trainings"]["ratio"] > 0.0
