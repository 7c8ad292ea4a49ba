"""History of ended jobs is thinned a little at a time, and what an answer rests on stays."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from sqlalchemy import text

from service.domain import Direction, Phase, TrialState
from service.scheduler.removal import thin_next
from service.store.repositories import EventRepository, TrialRepository
from service.store.session import Database
from service.use_cases.keeping.retention import SHARES, kept_steps, next_to_thin, thin
from service.use_cases.run import finish_job
from service.use_cases.steer import cancel_job, change_budget, resume_job
from tests.support.service.scenarios import (
    NOW,
    Clock,
    begin_trial,
    claimed_job,
    end_trial,
    measure_curve,
    repeat_trial,
    submit,
)


def test_a_long_curve_keeps_its_ends_its_best_its_rungs_and_its_forks() -> None:
    curve: list[tuple[int, float | None]] = [(step, 1 / step) for step in range(1, 1001)]
    curve[776] = (777, -1.0)
    curve[778] = (779, None)
    kept = kept_steps(curve, direction=Direction.MINIMIZE, num_steps=1000, forks={333})
    assert {1, 1000, 777, 333, 150, 400, 112, 500, 250} <= kept
    assert len(kept) <= len(SHARES) + 4
    assert kept_steps(curve, direction=Direction.MAXIMIZE, num_steps=1000, forks=()) < {*range(777), *range(778, 1001)}
    assert kept_steps([(5, None)], direction=Direction.MINIMIZE, num_steps=40, forks=()) == {5}
    assert kept_steps([], direction=Direction.MINIMIZE, num_steps=40, forks=()) == set()


def _finished(database: Database) -> str:
    """A job of two long trials of the search, of which the second is better and confirmed, and a baseline's."""
    lease = claimed_job(
        database,
        training={"num_steps": 200, "evaluate_every": 1},
        budget={"num_trials": 3},
        confirmation={"num_seeds": 2, "top_k": 1},
    )
    for number, (loss, phase) in enumerate([(0.9, Phase.SEARCH), (0.5, Phase.SEARCH), (0.7, Phase.BASELINE)]):
        begin_trial(database, lease, number, phase)
        measure_curve(database, lease, number, {step: loss * 200 / step for step in range(4, 201, 4)})
        end_trial(database, lease, number, TrialState.COMPLETED)
    repeat_trial(database, lease, 3, 0.55, confirms=1, seed=1001)
    repeat_trial(database, lease, 4, 0.75, confirms=2, seed=1001)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return lease.job_id


def _lengths(database: Database, job_id: str) -> list[int]:
    with database.reading() as session:
        return [len(trial.measurements) for trial in TrialRepository(session).with_measurements(job_id)]


@pytest.mark.slow
def test_an_old_job_is_thinned_once_and_a_recommended_trial_keeps_all(database: Database) -> None:
    job_id, clock, gone = _finished(database), Clock(), threading.Event()
    before = _lengths(database, job_id)
    clock.advance(86_000)
    assert thin_next(database, after_days=1, gone=gone, clock=clock) is None
    clock.advance(1_000)
    assert thin_next(database, after_days=1, gone=gone, clock=clock) == job_id
    after = _lengths(database, job_id)
    assert after[1:] == before[1:]
    assert after[0] < 35 < before[0] == 50
    with database.reading() as session:
        kinds = {event.kind for event in EventRepository(session).after(0, project=None, job_id=job_id, limit=1000)}
        assert {"job.state", "job.recommendation"} <= kinds
        assert not {"trial.measured", "trial.state"} & kinds
    assert thin_next(database, after_days=1, gone=gone, clock=clock) is None


def test_a_job_that_cannot_be_read_keeps_no_other_from_being_thinned(sqlite_database: Database) -> None:
    jobs, clock, gone = [submit(sqlite_database) for _ in range(2)], Clock(), threading.Event()
    with sqlite_database.writing() as session:
        for job_id in jobs:
            cancel_job(session, job_id, now=NOW)
        session.execute(text("UPDATE jobs SET tags = '{' WHERE id = :job"), {"job": jobs[0]})
    clock.advance(100_000)
    found = [thin_next(sqlite_database, after_days=1, gone=gone, clock=clock) for _ in range(3)]
    assert found == [*jobs, None]


def test_a_job_that_goes_on_is_left_as_it_is(sqlite_database: Database) -> None:
    job_id, late = _finished(sqlite_database), NOW + timedelta(days=2)
    before = _lengths(sqlite_database, job_id)
    with sqlite_database.writing() as session:
        assert next_to_thin(session, finished_before=late) == job_id
        change_budget(session, job_id, {"num_trials": 6}, now=NOW)
        resume_job(session, job_id, now=NOW)
    with sqlite_database.writing() as session:
        assert thin(session, job_id, after_number=-1, now=late).is_done
        assert next_to_thin(session, finished_before=late) is None
    assert _lengths(sqlite_database, job_id) == before
