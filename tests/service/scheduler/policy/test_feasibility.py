"""Which trials are not launched: the pure limit, what rows say of earlier runs, and one whole job."""

from __future__ import annotations

import pytest

from service.domain import FailureReason, JobState, Phase, TrialState
from service.scheduler.before_training import make_feasibility, num_at_once, remember_failures
from service.scheduler.policy.feasibility import Feasibility, MemoryLimit
from service.scheduler.stored_job import Stored
from service.specification.planning import JobPlan, plan_job
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.estimating.machine_memory import memory_of_this_machine
from service.use_cases.estimating.memory_predictor import NotPredictable
from service.use_cases.run import requeue_trial
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, specification
from tests.support.service.service_process import ServiceProcesses
from trainers.config import TrialConfig
from trainers.memory.prediction import predicted_bytes

SPACE = {
    "optimizer": "shampoo",
    "parameters": [{"type": "categorical", "name": "preconditioner", "choices": ["none", "shampoo"]}],
    "fixed": {"lr": 0.005},
}


WIDTH = {"type": "categorical", "name": "workload.width", "choices": [64, 1_000_000]}


def config_of(kind: str) -> TrialConfig:
    """A config of `SPACE`: without a preconditioner it needs less memory."""
    return plan_job(specification(search_space=SPACE)).trial_config(Phase.SEARCH, {"preconditioner": kind})


def test_predictions_up_to_the_limit_are_feasible() -> None:
    limit = MemoryLimit(1000)
    assert limit.correction == 1.0
    assert limit.why_infeasible(1000) is None
    assert limit.why_infeasible(1001) is not None


def test_a_trial_that_ran_out_of_memory_lowers_what_is_tried_until_it_fits() -> None:
    limit = MemoryLimit(1000)
    limit.ran_out(3, 800)
    limit.ran_out(5, 500)
    assert limit.correction == 2.0
    assert limit.why_infeasible(500) is None  # no more than what is tried a second time
    assert "trial 5 ran out of memory" in str(limit.why_infeasible(501))
    limit.fitted(5)
    assert limit.correction == 1.25
    assert limit.why_infeasible(800) is None
    limit.ran_out(7, 1200)  # it was not predicted to fit, so it says nothing of predictions
    assert limit.correction == 1.25


def test_a_limit_far_above_the_machine_learns_nothing_from_a_trial_that_ran_out_of_memory() -> None:
    limit = MemoryLimit(2000, machine_bytes=1000)
    limit.ran_out(3, 800)
    assert limit.why_infeasible(2000) is None
    assert "`resources.beyond_memory: true` launches such trials" in str(limit.why_infeasible(2001))


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize(
    ("resources", "is_local", "is_launched"),
    [({}, True, False), ({"beyond_memory": True}, True, True), ({}, False, True)],
)
def test_what_needs_far_more_than_the_machine_has_is_not_launched(
    sqlite_database: Database, resources: dict[str, bool], *, is_local: bool, is_launched: bool
) -> None:
    lease = claimed_job(
        sqlite_database,
        workload={"name": "digits-mlp", "options": {"depth": 2}},
        search_space={**SPACE, "parameters": [WIDTH]},
        resources=resources,
        baseline=None,
    )
    with sqlite_database.reading() as session:
        job = JobRepository(session).get(lease.job_id)
        plan, stored = plan_job(job.specification), Stored(job, [])
    with make_feasibility(plan, stored, is_local=is_local) as feasibility:
        small, huge = (plan.trial_config(Phase.SEARCH, {"workload.width": width}) for width in (64, 1_000_000))
        assert feasibility.why_infeasible(0, small) is None
        assert (feasibility.why_infeasible(1, huge) is None) == is_launched


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_no_more_trials_train_at_once_than_the_machine_has_memory_for(sqlite_database: Database) -> None:
    machine = memory_of_this_machine()
    wide = {"name": "digits-mlp", "options": {"width": 4000, "depth": 2}}
    for resources, expected in (({}, None), ({"parallel_trials": 9}, 9), ({"beyond_memory": True}, 10_000)):
        lease = claimed_job(sqlite_database, workload=wide, resources=resources)
        with sqlite_database.reading() as session:
            job = JobRepository(session).get(lease.job_id)
        plan, stored = plan_job(job.specification), Stored(job, [])
        with make_feasibility(plan, stored, is_local=True) as feasibility:
            found = num_at_once(plan, feasibility, fitting=10_000)
            assert num_at_once(plan, feasibility, fitting=1) == 1
        with make_feasibility(plan, stored, is_local=False) as elsewhere:
            assert num_at_once(plan, elsewhere, fitting=10_000) == resources.get("parallel_trials", 10_000)
        if expected is None:
            assert 1 <= found <= machine / (4000 * 4000 * 4 * 3)  # weights, gradients and more of the optimizer
        else:
            assert found == expected


def test_what_cannot_be_predicted_is_feasible() -> None:
    def predict(_config: TrialConfig) -> int:
        raise NotPredictable("no such file")

    config = config_of("none")
    feasibility = Feasibility(predict, lambda: 1)
    feasibility.ran_out(0, config)
    assert feasibility.why_infeasible(0, config) is None
    assert Feasibility().why_infeasible(0, config) is None
    assert Feasibility(predict, lambda: 1, machine_bytes=1).most_together([config], num_ranks=1) is None


@pytest.mark.parametrize("ending", [TrialState.QUEUED, TrialState.FAILED, TrialState.PRUNED, TrialState.COMPLETED])
def test_a_new_run_knows_from_the_rows_what_ran_out_of_memory(sqlite_database: Database, ending: TrialState) -> None:
    limit = 2 * predicted_bytes(config_of("shampoo"))
    _, stored = job_out_of_memory(sqlite_database, limit, ending)
    feasibility = Feasibility(predicted_bytes, lambda: limit)
    remember_failures(feasibility, stored)
    why = feasibility.why_infeasible(1, config_of("shampoo"))
    assert (why is None) == (ending in (TrialState.PRUNED, TrialState.COMPLETED)), why
    assert feasibility.why_infeasible(2, config_of("none")) is None


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_process_of_its_own_predicts_for_a_new_run(sqlite_database: Database) -> None:
    plan, stored = job_out_of_memory(sqlite_database, 2 * predicted_bytes(config_of("shampoo")), TrialState.FAILED)
    with make_feasibility(plan, stored, is_local=True) as feasibility:
        assert feasibility.why_infeasible(1, config_of("shampoo")) is not None
        assert feasibility.why_infeasible(2, config_of("none")) is None


def job_out_of_memory(database: Database, limit_bytes: int, ending: TrialState) -> tuple[JobPlan, Stored]:
    """A job whose first trial ran out of memory once, and what became of it then."""
    resources = {"memory_per_worker": limit_bytes}
    lease = claimed_job(database, search_space=SPACE, resources=resources, baseline=None)
    begin_trial(database, lease, 0)
    with database.writing() as session:
        requeue_trial(session, lease, 0, detail="out of memory", losses=0, memory_failures=1, now=NOW)
    if ending is not TrialState.QUEUED:
        reason = FailureReason.INFEASIBLE if ending is TrialState.FAILED else None
        with database.writing() as session:
            trial = TrialRepository(session).get(lease.job_id, 0)
            trial.state = TrialState.RUNNING
        end_trial(database, lease, 0, ending, reason=reason)
    with database.reading() as session:
        job = JobRepository(session).get(lease.job_id)
        return plan_job(job.specification), Stored(job, TrialRepository(session).with_measurements(lease.job_id))


@pytest.mark.patient
def test_a_config_that_is_predicted_not_to_fit_is_never_launched(shared_service: ServiceProcesses) -> None:
    limit = predicted_bytes(config_of("shampoo")) - 1
    job = specification(
        search_space=SPACE,
        pinned=[{"preconditioner": "shampoo"}],
        budget={"num_trials": 2},
        baseline=None,
        pruner={"name": "none"},
        resources={"memory_per_worker": limit},
    )
    finished, [fits, does_not] = shared_service.finish(shared_service.submit(job.model_dump(mode="json")))
    assert finished.state is JobState.SUCCEEDED, finished.failure
    assert fits.state is TrialState.COMPLETED
    assert (does_not.state, does_not.reason) == (TrialState.FAILED, FailureReason.INFEASIBLE)
    assert (does_not.runs, does_not.started_at, does_not.spent_seconds) == (0, None, 0.0)
