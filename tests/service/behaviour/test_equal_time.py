"""Jobs whose trials take equally long, on a real Ray cluster and real ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from service.domain import Currency, JobState, Phase, TrialState
from service.specification.planning import plan_job
from service.specification.trial_lengths.step_times import StepTimes
from service.store.repositories import JobRepository, RecommendationRepository
from service.use_cases.keeping.clone import submission_of
from service.use_cases.steer_trials import propose_trial
from tests.service.scheduler.test_job_run import specification
from tests.support.service.service_process import ServiceProcesses

pytestmark = pytest.mark.patient

PACE, TROUBLE = "workload.seconds_per_step", "workload.trouble"


def in_equal_time(*, num_trials: int, **parts: Any) -> dict[str, Any]:
    """A job of trials of 40 steps on one rank, some of whose steps take 0.06 seconds."""
    job = specification(num_trials=num_trials, **parts)
    job["search_space"]["parameters"].append({"type": "categorical", "name": PACE, "choices": [0.0, 0.06]})
    return {**job, "currency": "seconds", "resources": {"parallel_trials": 1}}


@pytest.fixture
def service(shared_service: ServiceProcesses) -> ServiceProcesses:
    """One with a worker."""
    return shared_service


def test_trials_have_steps_by_the_time_of_one_that_is_measured_first(service: ServiceProcesses) -> None:
    before = service.submit(specification(num_trials=1, options=service.slowly(0.5)))
    baseline = {"optimizer": "sgd", "parameters": [{"type": "float", "name": "lr", "low": 0.01, "high": 0.1}]}
    job_id = service.submit(
        in_equal_time(
            num_trials=6,
            baselines=[{"search_space": baseline, "budget_share": 0.34}],
            pinned=[{"lr": 2e-3, PACE: 0.06}],
            sampler={"name": "random"},
        )
    )
    with service.database.writing() as session:
        _, proposed, _ = propose_trial(
            session,
            job_id,
            phase=Phase.SEARCH,
            parameters={"lr": 3e-3, PACE: 0.06},
            idempotency_key=None,
            now=service.database.now(),
        )
    assert proposed.stored_config.num_steps == 40  # nobody knows how long a step takes
    service.hurry()
    assert service.finish(before)[0].state is JobState.SUCCEEDED
    job, trials = service.finish(job_id)

    assert job.state is JobState.SUCCEEDED, job.failure
    times = job.specification.step_times
    assert [(one.side, one.parameters) for one in times] == [
        ("search", {PACE: 0.0}),
        ("search", {PACE: 0.06}),
        ("sgd", {}),
    ]
    assert all(one.seconds > 0.06 for one in times if one.parameters == {PACE: 0.06})
    found = StepTimes(plan_job(job.specification).spaces, times)
    assert {trial.parameters.get(PACE) for trial in trials} == {None, 0.0, 0.06}
    for trial in trials:
        side = "sgd" if trial.phase is Phase.BASELINE else "search"
        num_steps = max(1, round(40 * found.least / found.of(side, trial.parameters)))
        assert trial.stored_config.num_steps == num_steps
        assert (trial.state, trial.step) == (TrialState.COMPLETED, num_steps)
        assert (num_steps < 20) == (trial.parameters.get(PACE) == 0.06)
    told = [waiting for waiting in service.waits(job_id) if waiting is not None and "time of a step" in waiting]
    assert told[0] == "the time of a step is measured first: 0 of 3 configs so far"
    assert told[-1] == "the time of a step is measured first: 3 of 3 configs so far, turn 3 of 3"
    assert job.waiting_for is None
    assert submission_of(job)["step_times"] == []  # of a clone, which may run elsewhere
    with service.database.reading() as session:
        stored = RecommendationRepository(session).of_job(job_id)
    assert stored is not None
    comparison, best = stored.content["evidence"]["comparisons"][0], stored.content["evidence"]["best"]
    assert (comparison["currency"], comparison["value"]) == (Currency.SECONDS, best["value"])


def test_a_config_that_cannot_be_timed_counts_as_the_slowest_and_without_any_the_job_fails(
    service: ServiceProcesses, tmp_path: Path
) -> None:
    job = in_equal_time(num_trials=2, sampler={"name": "random", "seed": 1})
    job["search_space"]["parameters"].append({"type": "categorical", "name": TROUBLE, "choices": ["none", "error"]})
    job_id = service.submit(job)
    broken_id = service.submit(in_equal_time(num_trials=2, options={"trouble": "error"}))
    large = {"trouble": "memory", "once_directory": str(tmp_path)}
    large_id = service.submit(in_equal_time(num_trials=1, options=large))
    finished, _ = service.finish(job_id)
    seconds = {
        (one.parameters[PACE], one.parameters[TROUBLE]): one.seconds for one in finished.specification.step_times
    }
    assert seconds[0.0, "error"] == seconds[0.06, "error"] == seconds[0.06, "none"] > seconds[0.0, "none"]
    broken, trials = service.finish(broken_id)
    assert (broken.state, trials) == (JobState.FAILED, [])
    assert broken.failure is not None
    assert broken.failure.startswith("the steps of search could not be timed: ")
    assert "label of image 17" in broken.failure
    divided, _ = service.finish(large_id)  # timed, as it would be trained, in smaller parts
    assert divided.state is JobState.SUCCEEDED, divided.failure
    quick, slow = divided.specification.step_times
    assert quick.seconds < slow.seconds


def test_a_job_that_is_cancelled_while_its_steps_are_timed_ends_at_once(service: ServiceProcesses) -> None:
    job_id = service.submit({**specification(num_trials=2, options={"seconds_per_step": 600.0}), "currency": "seconds"})
    service.wait_for("a rank at work", lambda: bool(service.rank_processes()))
    assert service.job(job_id).waiting_for == "the time of a step is measured first: 0 of 1 configs so far"
    service.cancel(job_id)
    service.wait_for("no process but the worker", lambda: not service.processes_of_runs())
    assert (service.job(job_id).state, service.trials(job_id)) == (JobState.CANCELLED, [])
    with service.database.reading() as session:
        assert JobRepository(session).get(job_id).specification.step_times == []
