"""The time that a job still needs, as told while it runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from service.domain import TrialState
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.progress import progress_of
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claimed_job,
    end_trial,
    measure,
)


def _seconds_left(database: Database, job_id: str, *, after_seconds: float) -> float | None:
    with database.reading() as session:
        job = JobRepository(session).get(job_id)
        return progress_of(session, [job], now=NOW + timedelta(seconds=after_seconds))[job_id].seconds_left


def test_the_time_left_is_that_of_the_steps_to_come_however_long_trials_waited(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 10}, confirmation={"top_k": 1, "num_seeds": 2})
    assert _seconds_left(database, lease.job_id, after_seconds=5) is None
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 20, 0.5)
    confirming, baseline, search = 4, 2, 8
    left = ((confirming + baseline + search) * 40 - 20) / 100
    assert _seconds_left(database, lease.job_id, after_seconds=20) == pytest.approx(left)
    begin_trial(database, lease, 1)
    assert _seconds_left(database, lease.job_id, after_seconds=20) == pytest.approx(left / 2)
    end_trial(database, lease, 1, TrialState.CANCELLED)
    end_trial(database, lease, 0, TrialState.PRUNED, now=NOW + timedelta(seconds=22))
    # What ended went half of the way: so will the rest of the search, but no other phase.
    left = ((search - 2) * 20 + (confirming + baseline) * 40) / 100
    assert _seconds_left(database, lease.job_id, after_seconds=25) == pytest.approx(left)


def test_the_time_left_ends_with_the_wall_clock_budget(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 100, "wall_clock_seconds": 60})
    for number in (0, 1):
        begin_trial(database, lease, number)
        measure(database, lease, number, 40, 0.5, offset=9.6)
        end_trial(database, lease, number)
    assert _seconds_left(database, lease.job_id, after_seconds=20) == 40.0


def test_no_time_left_is_told_of_a_job_whose_worker_has_fallen_silent(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 10})
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 20, 0.5)
    assert _seconds_left(database, lease.job_id, after_seconds=29) is not None
    assert _seconds_left(database, lease.job_id, after_seconds=31) is None
