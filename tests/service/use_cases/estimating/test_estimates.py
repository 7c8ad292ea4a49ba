"""The cost of a job, estimated from its plan and from earlier jobs like it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from service.domain import Phase, TrialState
from service.specification.estimate import Estimate, StartUp
from service.specification.estimate_lines import estimate_lines
from service.specification.planning import plan_job
from service.store.session import Database
from service.use_cases.estimating.estimates import ASSUMED_START_UP_SECONDS, estimate_job
from service.use_cases.leases import Lease
from service.use_cases.run import TrialMeasurements, record_measurements
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, specification
from trainers.config import Measurement


def _estimate(database: Database, **fields: Any) -> Estimate:
    with database.reading() as session:
        return estimate_job(session, plan_job(specification(**fields)), project="default")


def _run(
    database: Database,
    lease: Lease,
    number: int,
    step_seconds: float,
    state: TrialState,
    *,
    phase: Phase = Phase.SEARCH,
    began: float = 0.0,
    overhead: float = 0.0,
    batch_size: int | None = None,
) -> None:
    """A trial that began and was measured some seconds after the job, and trained for less than it took."""
    trained = 40 * step_seconds
    values = None if batch_size is None else {"training.batch_size": batch_size}
    begin_trial(database, lease, number, phase, values=values, now=NOW + timedelta(seconds=began))
    now = NOW + timedelta(seconds=began + trained + overhead)
    metrics = {
        "validation_loss": 0.5,
        "step_seconds": step_seconds,
        "peak_memory_bytes": 1000.0 + number,
        "optimizer_state_bytes": 100.0 - number,
        "optimizer_share": 0.5,
    }
    reported = Measurement(step=40, epoch=1.0, seconds=trained, metrics=metrics)
    with database.writing() as session:
        record_measurements(session, lease, [TrialMeasurements(number, [reported])], now=now)
    end_trial(database, lease, number, state, now=now)


def test_without_an_earlier_job_only_counts_are_known(database: Database) -> None:
    estimate = _estimate(database, budget={"num_trials": 8})
    assert estimate == Estimate(
        num_trials={Phase.SEARCH: 6, Phase.BASELINE: 2},
        num_baseline_trials={"adamw": 2},
        num_steps=40,
        max_steps=320,
        measured=None,
        start_up=StartUp(ASSUMED_START_UP_SECONDS, None),
        max_device_hours=None,
    )
    assert _estimate(database, budget={"num_trials": 8, "device_hours": 0.5}).max_device_hours == 0.5


def test_the_share_of_the_confirmation_is_told_before_anything_is_trained(database: Database) -> None:
    estimate = _estimate(database, budget={"num_trials": 20}, baseline={})
    assert estimate.confirmation_share == 16 / 36
    assert estimate.max_steps == 36 * 40
    assert any(line.startswith("16 of them, 44%, train the best configs again") for line in estimate_lines(estimate))
    without = estimate_lines(_estimate(database, budget={"num_trials": 8}, baseline={}))
    assert "Nothing is trained again with new seeds: the answer will be provisional." in without


def test_trials_that_do_not_divide_are_left_over_and_told(database: Database) -> None:
    estimate = _estimate(database, budget={"num_trials": 20}, baselines=[{}, {"search_space": "muon"}])
    assert (sum(estimate.num_baseline_trials.values()), estimate.num_trials[Phase.SEARCH]) == (12, 6)
    assert estimate.num_left_over == 2
    told = "2 trials of the budget are left over, so that search and baselines get equally many."
    assert told in estimate_lines(estimate)
    even = _estimate(database, budget={"num_trials": 20}, baseline={})
    assert even.num_left_over == 0
    assert "left over" not in "\n".join(estimate_lines(even))


def test_the_completed_trials_of_the_newest_job_like_it_tell_times_and_bytes(database: Database) -> None:
    lease = claimed_job(database, training={"num_steps": 40, "evaluate_every": 10, "seed": 7})
    for number, seconds in enumerate([0.1, 0.3, 0.2]):
        _run(database, lease, number, seconds, TrialState.COMPLETED)
    _run(database, lease, 3, 9.0, TrialState.PRUNED)
    for fields in (
        {"resources": {"cpus_per_worker": 2}},
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
    assert estimate.max_device_hours == pytest.approx(10 * 40 * 0.3 / 3600)  # by the slowest: it is a bound
    limited = _estimate(database, budget={"num_trials": 10, "device_hours": 0.001})
    assert limited.max_device_hours == 0.001


def test_each_side_is_counted_with_the_slowest_step_of_its_own_optimizer(database: Database) -> None:
    earlier = claimed_job(database)
    _run(database, earlier, 0, 0.05, TrialState.COMPLETED, phase=Phase.BASELINE)
    lease = claimed_job(database)
    for number, seconds in enumerate([0.2, 0.4]):
        _run(database, lease, number, seconds, TrialState.COMPLETED)
    even: dict[str, Any] = {"budget": {"num_trials": 20}, "baseline": {}}
    estimate = _estimate(database, **even)
    assert estimate.measured is not None
    assert estimate.measured.job_id == lease.job_id
    assert estimate.measured.step_seconds == pytest.approx(0.3)
    assert estimate.side_step_seconds == {"search": 0.4, "adamw": 0.05}
    num_each = 10 + 2 * 1 + 6  # searched, trained to choose, trained to compare
    assert estimate.max_device_hours == pytest.approx(num_each * 40 * (0.4 + 0.05) / 3600)
    told = "\n".join(estimate_lines(estimate))
    assert "The slowest trial's step counts for each side: of the search 0.4 s, of the baseline AdamW 0.05 s." in told
    other = _estimate(database, budget={"num_trials": 30}, baselines=[{}, {"search_space": "muon"}])
    assert (other.side_step_seconds["muon"], other.unmeasured_sides) == (0.4, ["muon"])
    assert "How long a step of the baseline Muon takes is not known" in "\n".join(estimate_lines(other))


SEARCHED_BATCH: dict[str, Any] = {
    "search_space": {
        "optimizer": "adamw",
        "parameters": [{"type": "categorical", "name": "training.batch_size", "choices": [32, 128]}],
    },
    "baselines": [],
    "training": {"num_examples": 1280},
}


@pytest.mark.parametrize(
    ("measured_batch", "step_seconds", "told"),
    [
        (32, 0.1, "with batches of 32)."),
        (128, 0.1, "with batches of 128)."),  # a smaller batch takes no longer
        (16, 0.2, "with batches of 16) with 1 rank a trial: scaled to this job's, 0.2 s, at most in proportion"),
    ],
)
def test_a_searched_batch_size_is_counted_as_the_smallest(
    database: Database, measured_batch: int, step_seconds: float, told: str
) -> None:
    plain = {"training": {"num_steps": 40, "evaluate_every": 10, "batch_size": measured_batch}}
    _run(database, claimed_job(database, **plain), 0, 0.1, TrialState.COMPLETED)
    estimate = _estimate(database, **SEARCHED_BATCH)
    assert (estimate.num_steps, estimate.smallest_batch, estimate.max_steps) == (40, 32, 4 * 40)
    assert estimate.step_seconds == pytest.approx(step_seconds)
    assert estimate.max_device_hours == pytest.approx(4 * 40 * step_seconds / 3600)
    lines = estimate_lines(estimate)
    assert lines[0].endswith("of 1,280 examples in up to 40 steps, 160 steps in all if none are pruned.")
    assert told in lines[2]
    assert lines[3] == "Times are counted as if every trial had the smallest batch, 32, whose steps are the most."


def test_of_a_job_that_searched_its_batch_size_the_trials_with_the_nearest_tell(database: Database) -> None:
    lease = claimed_job(database, **SEARCHED_BATCH)
    for number, (batch_size, seconds) in enumerate([(128, 0.3), (32, 0.1), (32, 0.12), (128, 0.3)]):
        _run(database, lease, number, seconds, TrialState.COMPLETED, batch_size=batch_size)
    searching = _estimate(database, **SEARCHED_BATCH)
    assert searching.measured is not None
    assert (searching.measured.num_trials, searching.measured.batch_size) == (2, 32)
    assert searching.step_seconds == pytest.approx(0.11)
    assert searching.measured.peak_memory_bytes == 1003.0  # of all: the largest batch needs most
    plain = _estimate(database, training={"num_steps": 40, "evaluate_every": 10, "batch_size": 128}).measured
    assert plain is not None
    assert (plain.num_trials, plain.step_seconds, plain.peak_memory_bytes) == (2, 0.3, 1003.0)
    other = _estimate(database, training={"num_steps": 40, "evaluate_every": 10, "batch_size": 64})
    assert other.measured is None


def test_start_up_and_what_trials_take_beside_their_steps_are_in_the_time(database: Database) -> None:
    lease = claimed_job(database)
    _run(database, lease, 0, 0.1, TrialState.COMPLETED, began=20.0, overhead=30.0)
    _run(database, lease, 1, 0.1, TrialState.COMPLETED, began=60.0, overhead=3.0)
    of_one = {"num_trials": 10}
    estimate = _estimate(database, budget=of_one)
    assert estimate.measured is not None
    assert estimate.measured.trial_overhead_seconds == pytest.approx(3.0)  # the first has waited for its ranks
    assert estimate.start_up is not None
    assert estimate.start_up.seconds == pytest.approx(50.0)
    assert estimate.start_up.job_id == lease.job_id
    assert estimate.max_seconds == pytest.approx(50 + 10 * (40 * 0.1 + 3))
    assert _estimate(database, budget=of_one, resources={"parallel_trials": 2}).max_seconds == pytest.approx(50 + 35)
    assert _estimate(database, budget={**of_one, "wall_clock_seconds": 60}).max_seconds == 60
    other = _estimate(database, workload={"name": "digits-convnet"})
    assert (other.max_seconds, other.start_up) == (None, estimate.start_up)
    told = "\n".join(estimate_lines(estimate))
    assert "A trial took 3 s beside its steps." in told
    assert f"Start-up, once per job: 0.8 min in job {lease.job_id}." in told
    assert "At most 2.0 min, start-up included; 0.0111 device-hours." in told


def test_a_job_with_other_ranks_is_scaled_where_none_has_as_many(database: Database) -> None:
    lease = claimed_job(database, resources={"workers_per_trial": 2})
    _run(database, lease, 0, 0.1, TrialState.COMPLETED)
    estimate = _estimate(database, resources={"workers_per_trial": 4})
    assert estimate.measured is not None
    assert (estimate.measured.workers_per_trial, estimate.measured.step_seconds) == (2, 0.1)
    assert estimate.measured.peak_memory_bytes is None
    assert estimate.step_seconds == pytest.approx(0.05 + 0.05 / 2)  # the optimizer's half stays
    assert estimate.max_device_hours == pytest.approx(4 * 40 * 4 * 0.075 / 3600)
    assert "with 2 ranks a trial: scaled to this job's, 0.075 s" in "\n".join(estimate_lines(estimate))
    assert _estimate(database).step_seconds == pytest.approx(0.05 + 0.05 * 2)
    newer = claimed_job(database, resources={"workers_per_trial": 4})
    _run(database, newer, 0, 0.3, TrialState.COMPLETED)
    as_many = _estimate(database, resources={"workers_per_trial": 2})
    assert as_many.measured is not None
    assert (as_many.measured.job_id, as_many.step_seconds) == (lease.job_id, 0.1)
