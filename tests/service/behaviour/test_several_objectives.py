"""Jobs with several objectives: their plan, and what their policy is told of stored trials."""

from __future__ import annotations

import math

import pytest

from service.domain import Direction, Objective
from service.scheduler.policy.history import history_of
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Start
from service.specification.planning import plan_job
from service.store.repositories import TrialRepository
from service.store.session import Database
from tests.support.service.scenarios import claimed_job, run_trial, specification

MIN, MAX = Direction.MINIMIZE, Direction.MAXIMIZE
OBJECTIVES = (
    Objective("validation_loss", MIN),
    Objective("validation_accuracy", MAX),
    Objective("best_train_loss", MIN),
    Objective("step_seconds", MIN),
)


@pytest.mark.parametrize(
    ("num_others", "sampler", "planned"),
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
    num_others: int, sampler: str | None, planned: str
) -> None:
    objectives = OBJECTIVES[: 1 + num_others]
    asked = [{"metric": objective.metric} for objective in objectives]
    plan = plan_job(specification(objectives=asked, sampler={"name": sampler}))
    assert plan.sampler == planned
    assert plan.pruner == ("none" if num_others else "auto")
    assert plan.objectives == objectives


def test_trials_measure_what_their_objectives_need() -> None:
    metrics = ["mean_of_last_validation_loss", "best_train_loss", "seconds_to_target"]
    target = {"metric": "validation_accuracy", "value": 0.9}
    plan = plan_job(specification(objectives=[{"metric": metric} for metric in metrics], target=target))
    (phase, *_), (space, *_) = plan.spaces.keys(), plan.spaces.values()
    config = plan.trial_config(phase, space.defaults())
    assert list(config.summaries) == ["mean_of_last_validation_loss", "best_train_loss"]
    assert config.target is not None
    assert (config.target.metric, config.target.direction) == ("validation_accuracy", "maximize")


def test_a_policy_is_told_all_objectives_of_stored_trials(sqlite_database: Database) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}, {"metric": "step_seconds"}]
    lease = claimed_job(sqlite_database, objectives=objectives)
    run_trial(sqlite_database, lease, 0, 0.25)
    with sqlite_database.reading() as session:
        trials = TrialRepository(session).with_measurements(lease.job_id)
        plan = plan_job(specification(objectives=objectives))
        (past,) = history_of(trials, plan.objectives)
    loss, accuracy, step_seconds = past.values
    assert loss == 0.25
    assert accuracy == pytest.approx(0.8)
    assert math.isnan(step_seconds)  # it was not measured
    policy = make_policy(plan)
    policy.restore([past])
    assert isinstance(policy.ask(), Start)
