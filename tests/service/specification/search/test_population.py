"""Population based training seen from the service: its plan, its rows, its recommendation."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain import Phase, TrialState
from service.errors import ForkNotRetriable, InvalidInput, NotFound, TooFewTrials
from service.evidence.formats.snippet import python_snippet
from service.evidence.recommended import recommendation_from_json
from service.specification.planning import plan_job
from service.store.models import Trial
from service.store.repositories import RecommendationRepository, TrialRepository
from service.store.session import Database
from service.use_cases.leases import Lease
from service.use_cases.run import finish_job
from service.use_cases.steer import change_budget
from service.use_cases.steer_trials import retry_trial
from tests.support.service.caveats import sentences_of
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claimed_job,
    end_trial,
    fork_trial,
    measure,
    run_trial,
    specification,
)

PBT = {"pruner": {"name": "pbt"}, "baseline": None, "budget": {"num_trials": 6}}


def trial_of(database: Database, lease: Lease, number: int) -> Trial:
    with database.reading() as session:
        return next(t for t in TrialRepository(session).with_measurements(lease.job_id) if t.number == number)


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({"budget": {"num_trials": 100}, "baseline": None}, {Phase.SEARCH: 8}),
        ({"budget": {"num_trials": 10}, "baseline": None}, {Phase.SEARCH: 5}),
        ({"budget": {"num_trials": 3}, "baseline": None}, {Phase.SEARCH: 2}),
        ({"budget": {"num_trials": 20}}, {Phase.SEARCH: 7, "adamw": 2}),
        (
            {"budget": {"num_trials": 80}, "pruner": {"name": "pbt", "population": 5}},
            {Phase.SEARCH: 5, "adamw": 5},
        ),
    ],
)
def test_a_population_leaves_trials_for_forks(fields: dict[str, Any], sizes: dict[str, int]) -> None:
    plan = plan_job(specification(**{"pruner": {"name": "pbt"}, **fields}))
    assert plan.population is not None
    assert plan.population.sizes == sizes


@pytest.mark.parametrize(
    ("training", "interval"),
    [
        ({"num_steps": 400, "evaluate_every": 10}, 40),
        ({"num_steps": 40, "evaluate_every": 10}, 10),
        ({"num_steps": 250, "evaluate_every": 20}, 20),
        ({"num_steps": 55, "evaluate_every_epochs": 1.0}, 6),
        ({"num_steps": 55, "batch_size": 10, "evaluate_every_examples": 100}, 6),
    ],
)
def test_the_interval_is_about_a_tenth_of_a_trial_and_comes_with_checkpoints(
    training: dict[str, Any], interval: int
) -> None:
    plan = plan_job(specification(**PBT, training=training))
    assert plan.population is not None
    assert plan.population.interval == interval
    config = plan.trial_config(Phase.SEARCH, plan.spaces[Phase.SEARCH].defaults())
    assert config.checkpoint_every == interval


def test_a_fork_begins_with_what_its_parent_measured_and_pays_for_its_own_training(database: Database) -> None:
    lease = claimed_job(database, **PBT)
    begin_trial(database, lease, 0)
    for step in (10, 20):
        measure(database, lease, 0, step, 1 / step)
    fork_trial(database, lease, 1, parent=0, step=10, lr=2e-3)
    begun = trial_of(database, lease, 1)
    assert (begun.forked_from, begun.forked_at_step) == (0, 10)
    assert (begun.step, begun.value, begun.spent_seconds) == (10, 0.1, 0.0)
    measure(database, lease, 1, 10, 0.1)  # what a trial gives first that begins from a checkpoint
    measure(database, lease, 1, 20, 0.04)
    later = trial_of(database, lease, 1)
    assert [m.step for m in later.measurements] == [10, 20]
    assert later.spent_seconds == pytest.approx(0.1)
    assert later.seconds == pytest.approx(0.2)


@pytest.mark.parametrize(("parent", "step"), [(3, 10), (0, 15)])
def test_a_fork_of_what_was_not_measured_is_refused(database: Database, parent: int, step: int) -> None:
    lease = claimed_job(database, **PBT)
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.5)
    with pytest.raises(NotFound):
        fork_trial(database, lease, 1, parent=parent, step=step, lr=2e-3)


def test_a_job_that_a_fork_wins_recommends_its_config_with_the_way_there(database: Database) -> None:
    lease = claimed_job(database, **PBT)
    run_trial(database, lease, 0, 0.5)
    fork_trial(database, lease, 1, parent=0, step=10, lr=2e-3)
    for step in (20, 30):
        measure(database, lease, 1, step, 0.4)
    fork_trial(database, lease, 2, parent=1, step=30, lr=1e-3)
    end_trial(database, lease, 1, TrialState.PRUNED)
    measure(database, lease, 2, 40, 0.3)
    end_trial(database, lease, 2)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    with database.reading() as session:
        recommendation = RecommendationRepository(session).of_job(lease.job_id)
    assert recommendation is not None
    evidence = recommendation.content["evidence"]
    stages = evidence["best"]["lineage"]
    assert [(s["number"], s["first_step"], s["last_step"]) for s in stages] == [(0, 1, 10), (1, 11, 30), (2, 31, 40)]
    assert [s["config"]["lr"] for s in stages][1:] == [2e-3, 1e-3]
    assert recommendation.content["config"]["lr"] == 1e-3
    [caveat] = [caveat for caveat in sentences_of(evidence["caveats"]) if "changed in training" in caveat]
    assert "steps 11 to 30 trial 1 (lr 0.016 to 0.002); steps 31 to 40 trial 2 (lr 0.002 to 0.001)" in caveat
    assert "changed in training" in python_snippet(recommendation_from_json(recommendation.content))


def test_a_trial_without_forks_has_no_lineage(database: Database) -> None:
    lease = claimed_job(database, **PBT)
    run_trial(database, lease, 0, 0.5)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    with database.reading() as session:
        recommendation = RecommendationRepository(session).of_job(lease.job_id)
    assert recommendation is not None
    assert recommendation.content["evidence"]["best"]["lineage"] == []


def test_a_first_member_is_tried_again_and_a_fork_says_why_not(database: Database) -> None:
    lease = claimed_job(database, **PBT)
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.5)
    fork_trial(database, lease, 1, parent=0, step=10, lr=2e-3)
    for number in (0, 1):
        end_trial(database, lease, number, TrialState.PRUNED)
    with database.writing() as session:
        _, again = retry_trial(session, lease.job_id, 0, now=NOW)
        assert (again.state, again.spared, again.step) == (TrialState.QUEUED, True, 0)
    gone = "began from the checkpoint of trial 0 at step 10, which is gone"
    with database.writing() as session, pytest.raises(ForkNotRetriable, match=gone):
        retry_trial(session, lease.job_id, 1, now=NOW)


def test_a_budget_below_the_population_is_refused(database: Database) -> None:
    lease = claimed_job(database, **{**PBT, "pruner": {"name": "pbt", "population": 4}})
    with database.writing() as session, pytest.raises(InvalidInput, match=r"budget.num_trials: 4 is too few") as error:
        change_budget(session, lease.job_id, {"num_trials": 4}, now=NOW)
    assert error.value.field == "budget.num_trials"
    lease = claimed_job(database, **PBT)
    with database.writing() as session, pytest.raises(TooFewTrials, match=r"^budget.num_trials: 'pbt' needs"):
        change_budget(session, lease.job_id, {"num_trials": 2}, now=NOW)
