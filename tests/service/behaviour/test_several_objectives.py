"""Jobs with several objectives: their plan, and what their policy is told of stored trials."""

from __future__ import annotations

import math

import pytest

from service.domain import Direction
from service.scheduler.policy.job_policy import history_of, make_policy
from service.scheduler.policy.protocol import Start
from service.specification.planning import plan_job
from service.store.repositories import TrialRepository
from service.store.session import Database
from tests.support.service.scenarios import claimed_job, run_trial, specification

MIN, MAX = Direction.MINIMIZE, Direction.MAXIMIZE
ALSO = ["validation_accuracy", "best_train_loss", "step_seconds"]


@pytest.mark.parametrize(
    ("num_further", "sampler", "planned"),
    [
        (0, None, "auto"),
        (1, None, "tpe"),
        (3, None, "tpe"),
        (1, "nsga2", "nsga2"),
        (3, "nsga3", "nsga3"),
        (1, "quasi", "quasi"),
    ],
)
def test_several_objectives_choose_the_sampler_and_prune_nothing(
    num_further: int, sampler: str | None, planned: str
) -> None:
    objective = {"metric": "validation_loss", "also": ALSO[:num_further]}
    plan = plan_job(specification(objective=objective, sampler={"name": sampler}))
    directions = {"validation_accuracy": MAX, "best_train_loss": MIN, "step_seconds": MIN}
    assert plan.sampler == planned
    assert plan.pruner == ("none" if num_further else "auto")
    assert plan.further == tuple((metric, directions[metric]) for metric in ALSO[:num_further])


def test_trials_measure_what_further_objectives_need() -> None:
    objective = {
        "metric": "mean_of_last_validation_loss",
        "also": ["best_train_loss", "seconds_to_target"],
        "target": {"metric": "validation_accuracy", "value": 0.9},
    }
    plan = plan_job(specification(objective=objective))
    (phase, *_), (space, *_) = plan.spaces.keys(), plan.spaces.values()
    config = plan.trial_config(phase, space.defaults())
    assert list(config.summaries) == ["mean_of_last_validation_loss", "best_train_loss"]
    assert config.target is not None
    assert (config.target.metric, config.target.direction) == ("validation_accuracy", "maximize")


def test_a_policy_is_told_further_objectives_of_stored_trials(sqlite_database: Database) -> None:
    objective = {"metric": "validation_loss", "also": ["validation_accuracy", "step_seconds"]}
    lease = claimed_job(sqlite_database, objective=objective)
    run_trial(sqlite_database, lease, 0, 0.25)
    with sqlite_database.reading() as session:
        trials = TrialRepository(session).with_measurements(lease.job_id)
        (past,) = history_of(trials, "validation_loss", ["validation_accuracy", "step_seconds"])
    assert past.value == 0.25
    accuracy, step_seconds = past.further
    assert accuracy == pytest.approx(0.8)
    assert math.isnan(step_seconds)  # it was not measured
    policy = make_policy(plan_job(specification(objective=objective)))
    policy.restore([past])
    assert isinstance(policy.ask(), Start)
