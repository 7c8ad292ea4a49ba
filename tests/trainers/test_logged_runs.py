"""Runs of a benchmark that broke off are taken from its log, and others are trained and written there."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from tests.benchmarks.training.training_runs import Curve, Recipe, RunLog, Task, Trainers
from trainers.config import AveragingConfig, OptimizerConfig, ScheduleConfig

RECIPE = Recipe(
    OptimizerConfig("adamw", {"lr": 0.01, "betas": [0.9, 0.95]}),
    ScheduleConfig(warmup_fraction=0.05),
    {"averaging": AveragingConfig("ema", {"decay": 0.9})},
)
CONFIG = Task("digits-autoencoder", num_steps=4, num_evaluations=2).config(RECIPE, seed=1)


@pytest.fixture(autouse=True)
def _threads_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what trainers set for the processes that they start."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")


@pytest.mark.parametrize("curve", [Curve((2, 4), (0.1, 0.2), (9.0, 8.0)), Curve((), (), (), diverged=True)])
def test_a_run_of_the_log_is_not_trained_again(tmp_path: Path, curve: Curve) -> None:
    RunLog(tmp_path / "runs.jsonl").add(CONFIG, curve)
    again = RunLog(tmp_path / "runs.jsonl")
    with Trainers(1, log=again) as trainers:
        assert trainers.start(CONFIG).result() == curve
    assert again.curve_of(dataclasses.replace(CONFIG, seed=2)) is None


@pytest.mark.processes
def test_a_run_is_in_the_log_once_it_is_trained(tmp_path: Path) -> None:
    with Trainers(1, log=RunLog(tmp_path / "runs.jsonl")) as trainers:
        curve = trainers.start(CONFIG).result()
    assert curve.steps == (2, 4)
    assert math.isfinite(curve.best)
    assert RunLog(tmp_path / "runs.jsonl").curve_of(CONFIG) == curve
