"""The cost of a job, estimated from its plan and from earlier jobs like it."""

from __future__ import annotations

from typing import Any

import pytest

from service.cli.terminal import estimate_lines
from service.domain import Phase, TrialState
from service.specification.estimate import Estimate
from service.specification.planning import plan_job
from service.store.session import Database
from service.use_cases.estimates import estimate_job
from service.use_cases.leases import Lease
from service.use_cases.run import TrialMeasurements, record_measurements
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, specification
from trainers.config import Measurement


def _estimate(database: Database, **fields: Any) -> Estimate:
    with database.reading() as session:
        return estimate_job(session, plan_job(specification(**fields)))


def _run(database: Database, lease: Lease, number: int, step_seconds: float, state: TrialState) -> None:
    begin_trial(database, lease, number)
    metrics = {
        "validation_loss": 0.5,
        "step_seconds": step_seconds,
        "peak_memory_bytes": 1000.0 + number,
        "optimizer_state_bytes": 100.0 - number,
    }
    reported = Measurement(step=40, epoch=1.0, seconds=40 * step_seconds, metrics=metrics)
    with database.writing() as session:
        record_measurements(session, lease, [TrialMeasurements(number, [reported])], now=NOW)
    end_trial(database, lease, number, state)


def test_without_an_earlier_job_only_counts_are_known(database: Database) -> None:
    estimate = _estimate(database, budget={"num_trials": 8})
    assert estimate == Estimate(
        num_trials={Phase.SEARCH: 6, Phase.BASELINE: 2},
        num_steps=40,
        max_steps=320,
        measured=None,
        max_device_hours=None,
    )
    assert _estimate(database, budget={"num_trials": 8, "device_hours": 0.5}).max_device_hours == 0.5


def test_the_share_of_the_confirmation_is_told_before_anything_is_trained(database: Database) -> None:
    estimate = _estimate(database, budget={"num_trials": 20}, baseline={})
    assert estimate.confirmation_share == 16 / 36
    assert estimate.max_steps == 36 * 40
    assert any(line.startswith("16 of them, 44%, train the best configs again") for line in estimate_lines(estimate))


def test_the_completed_trials_of_the_newest_job_like_it_tell_times_and_bytes(database: Database) -> None:
    lease = claimed_job(database, training={"num_steps": 40, "evaluate_every": 10, "seed": 7})
    for number, seconds in enumerate([0.1, 0.3, 0.2]):
        _run(database, lease, number, seconds, TrialState.COMPLETED)
    _run(database, lease, 3, 9.0, TrialState.PRUNED)
    for fields in (
        {"resources": {"workers_per_trial": 2}},
        {"training": {"num_steps": 40, "evaluate_every": 10, "batch_size": 32}},
        {"workload": {"name": "digits-mlp", "options": {"dropout": 0.5}}},
        {"workload": {"name": "digits-convnet"}},
    ):
        assert _estimate(database, **fields).measured is None, fields
    estimate = _estimate(database, budget={"num_trials": 10}, resources={"parallel_trials": 3})
    measured = estimate.measured
    assert measured is not None
    assert (measured.job_id, measured.num_trials, measured.step_seconds) == (lease.job_id, 3, 0.2)
    assert (measured.peak_memory_bytes, measured.optimizer_state_bytes) == (1002.0, 100.0)
    assert estimate.max_device_hours == pytest.approx(10 * 40 * 0.2 / 3600)
    limited = _estimate(database, budget={"num_trials": 10, "device_hours": 0.001})
    assert limited.max_device_hours == 0.001
