"""The keeper of insights stores them as trials end, only while the job is its run's, and never raises."""

from __future__ import annotations

import logging
import random

import pytest

from service.domain import FailureReason, TrialState
from service.evidence.insights import JobInsights, insights_from_json
from service.scheduler.insights.keeper import InsightsKeeper
from service.specification.phases import spaces_of
from service.store.repositories import InsightsRepository, JobRepository
from service.store.session import Database
from service.use_cases.leases import Lease, release_job
from tests.support.service.scenarios import NOW, claimed_job, run_trial, store_trials


def stored(database: Database, job_id: str) -> JobInsights | None:
    with database.reading() as session:
        row = InsightsRepository(session).of_job(job_id)
        return None if row is None else insights_from_json(row.content)


def fill(database: Database, lease: Lease, count: int) -> None:
    """Ended trials of the search at random points, whose loss falls with the learning rate; some diverged."""
    rng = random.Random(0)
    with database.reading() as session:
        space = spaces_of(JobRepository(session).get(lease.job_id).specification)["search"]
    trials: list[dict[str, object]] = []
    for _ in range(count):
        values = space.sample(rng)
        lr = next(one for one in space.active(values) if one.name == "lr").to_unit(values["lr"])  # type: ignore[arg-type]
        ending = {"state": TrialState.FAILED, "reason": FailureReason.DIVERGED} if lr > 0.9 else {"value": 1.5 - lr}
        trials.append({"parameters": values, **ending})
    store_trials(database, lease.job_id, trials)


@pytest.mark.slow
def test_insights_are_stored_when_enough_trials_have_ended(database: Database) -> None:
    lease = claimed_job(database)
    keeper = InsightsKeeper(database, lease, clock=lambda: NOW)
    keeper.look()
    assert stored(database, lease.job_id) is None
    fill(database, lease, 40)
    keeper.look()
    found = stored(database, lease.job_id)
    assert found is not None
    assert (found.metric, found.num_ended, [side.side for side in found.sides]) == (
        "validation_loss",
        40,
        ["search", "adamw"],
    )
    search, baseline = found.sides
    assert search.parameters[0].name == "lr"
    assert search.num_diverged
    assert baseline.has_few_trials
    again = InsightsKeeper(database, lease, clock=lambda: NOW)
    again.look()
    assert stored(database, lease.job_id) == found  # a later run sees that nothing is new


def test_the_last_look_takes_whatever_has_ended(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    run_trial(sqlite_database, lease, 0, 0.5)
    keeper = InsightsKeeper(sqlite_database, lease, clock=lambda: NOW)
    keeper.start()
    keeper.close()
    found = stored(sqlite_database, lease.job_id)
    assert found is not None
    assert (found.num_ended, found.sides[0].has_few_trials) == (1, True)


@pytest.mark.slow
def test_a_run_that_lost_its_job_stores_nothing_and_raises_nothing(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    fill(sqlite_database, lease, 20)
    with sqlite_database.writing() as session:
        release_job(session, lease, now=NOW, crash=None)
    InsightsKeeper(sqlite_database, lease).look(is_last=True)
    assert stored(sqlite_database, lease.job_id) is None


def test_an_error_is_a_line_in_the_log(sqlite_database: Database, caplog: pytest.LogCaptureFixture) -> None:
    lease = claimed_job(sqlite_database)
    fill(sqlite_database, lease, 20)
    with sqlite_database.writing() as session:
        InsightsRepository(session).put(lease.job_id, {"num_ended": "not a number"}, now=NOW)
    with caplog.at_level(logging.ERROR):
        InsightsKeeper(sqlite_database, lease).look()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "could not be computed" in caplog.text
