"""The simulation of whole jobs on tables of real curves."""

from __future__ import annotations

import json
import math
import random

import pytest

from tests.benchmarks.answers import recommendation_regret
from tests.benchmarks.answers.recommendation_regret import calibration, coverage
from tests.benchmarks.search.landscapes import synthetic_pair
from tests.benchmarks.search.seed_tables import SIDES, read_seed_table


@pytest.mark.parametrize("name", recommendation_regret.TABLES)
def test_each_row_of_a_table_has_a_curve_for_every_seed(name: str) -> None:
    table = read_seed_table(name)
    assert {row.side for row in table.rows} == set(SIDES) == set(table.spaces)
    assert {len(row.curves) for row in table.rows} == {8}
    lengths = {len(curve) for row in table.rows for curve in row.curves if curve is not None}
    assert len(lengths) == 1
    for row in table.rows:
        table.spaces[row.side].assign(row.parameters)


def test_a_seed_changes_the_noise_of_a_synthetic_task_and_not_its_mean() -> None:
    landscape, other = synthetic_pair("noisy", 1)
    config = landscape.space.sample(random.Random(0))
    first, second = landscape.curve(config, 1), landscape.curve(config, 2)
    assert first != second
    assert landscape.curve(config, 1) == first
    assert landscape.mean(config) == pytest.approx(first[-1], abs=0.2)
    assert len(first) == landscape.num_units
    assert math.isfinite(other.mean(other.space.sample(random.Random(1))))


def test_coverage_and_calibration_count() -> None:
    assert coverage([(0.0, 1.0), (2.0, 3.0)], [[0.5, 2.0], [2.0, 3.0]]) == 0.75
    assert calibration([(0.1, False), (0.1, True), (1.0, True)]) == [(0.1, 0.5, 2), (1.0, 1.0, 1)]


def test_a_single_job_which_no_other_one_repeats_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        recommendation_regret.main(["--tables", "", "--jobs", "1"])
    assert "--jobs must be 2 or more" in capsys.readouterr().err


@pytest.mark.slow
def test_the_benchmark_prints_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    recommendation_regret.main(["--tables", "digits-mlp", "--searches", "random", "--trials", "8", "--jobs", "3"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["benchmark"] == "recommendation_regret"
    assert set(result["ratios"]) == {"seeds.tables.random.8", "repeats.tables.random.8"}
    assert 0.0 <= result["figures"]["random.8"]["digits-mlp"]["regret"] < 1.0
