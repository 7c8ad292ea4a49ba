"""The keeper of insights stores them as trials end, only while the job is its run's, and never raises."""

from __future__ import annotations

import dataclasses
import logging
import random

import pytest

from service.domain import FailureReason, Phase, TrialState
from service.evidence.insights import JobInsights, insights_from_json
from service.scheduler.insights.keeper import InsightsKeeper
from service.specification.phases import spaces_of
from service.specification.planning import plan_job
from service.store.repositories import InsightsRepository, JobRepository, ModelShapeRepository
from service.store.session import Database
from service.use_cases.leases import Lease, release_job
from service.use_cases.run import TrialMeasurements, add_trial, finish_trial, record_measurements, start_trial
from tests.support.service.scenarios import NOW, claimed_job, run_trial, store_trials
from trainers.config import Measurement
from trainers.identity.values import ModelShape, ParameterShape


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
def test_cheaper_settings_are_priced_for_the_model_that_trained_and_the_config_that_new_seeds_chose(
    database: Database,
) -> None:
    lease, rng = claimed_job(database), random.Random(0)
    with database.writing() as session:
        ModelShapeRepository(session).put("f" * 32, ModelShape((ParameterShape("linear", (256, 128), 2),)))
        plan = plan_job(JobRepository(session).get(lease.job_id).specification)
    environment: dict[str, object] = {"device": "cpu", "device_name": None, "world_size": 1, "versions": {}}
    known = {"fingerprint": "f" * 32, "environment": environment, "metrics": {"optimizer_state_bytes": 1e7}}
    values = [{**plan.spaces["search"].sample(rng), "precondition_frequency": 1 + number % 5} for number in range(24)]
    trials: list[dict[str, object]] = [
        {"parameters": one, "value": 1.0 + 0.01 * number, "seconds": 0.1 + 1 / one["precondition_frequency"], **known}  # type: ignore[operator]
        for number, one in enumerate(values)
    ]
    store_trials(database, lease.job_id, trials)
    keeper = InsightsKeeper(database, lease, clock=lambda: NOW)
    keeper.look()
    found = stored(database, lease.job_id)
    assert found is not None
    assert [side.priced_trial for side in found.sides] == [0, None]
    longest = found.sides[0].prices[-1]
    assert (longest.parameter, longest.best_value, longest.value) == ("precondition_frequency", 1, 50)
    assert longest.step_operations < -0.5

    # At the end, when no other trial of the search has ended, new seeds count.
    with database.writing() as session:
        config = plan.trial_config("search", values[3])
        for number, seed in enumerate((101, 102), start=24):
            again = dataclasses.replace(config, seed=seed)
            add_trial(
                session,
                lease,
                number=number,
                phase=Phase.CONFIRMATION,
                parameters=values[3],
                config=again,
                confirms=3,
                now=NOW,
            )
            start_trial(session, lease, number, now=NOW)
            reported = Measurement(step=40, epoch=1.0, seconds=1.0, metrics={"validation_loss": 1.1})
            record_measurements(session, lease, [TrialMeasurements(number, [reported])], now=NOW)
            finish_trial(session, lease, number, TrialState.COMPLETED, now=NOW)
    keeper.look()
    keeper.look(is_last=True)
    found = stored(database, lease.job_id)
    assert found is not None
    assert found.sides[0].priced_trial == 3


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
