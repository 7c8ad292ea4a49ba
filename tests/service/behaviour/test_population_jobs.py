"""Jobs of population based training on real Ray clusters, real ranks and real checkpoints."""

from __future__ import annotations

import pytest

from service.domain import JobState, TrialState
from service.store.models import Trial
from service.store.repositories import RecommendationRepository
from tests.service.scheduler.test_job_run import specification
from tests.support.service.service_process import ServiceProcesses

pytestmark = pytest.mark.patient

NUM_TRIALS, POPULATION = 8, 4
STEPS = [10, 20, 30, 40]
SPACE = {
    "optimizer": "shampoo",
    "parameters": [
        {"type": "float", "name": "lr", "low": 1e-5, "high": 1e-1, "scale": "log", "default": 1e-5},
        {"type": "float", "name": "betas[0]", "low": 0.5, "high": 0.99, "scale": "reverse_log"},
        {"type": "categorical", "name": "preconditioner", "choices": ["shampoo", "soap"]},
    ],
}


@pytest.fixture
def service(shared_service: ServiceProcesses) -> ServiceProcesses:
    """One with a worker."""
    return shared_service


def metrics_at(trial: Trial, step: int) -> dict[str, float | None]:
    return next(measurement.metrics for measurement in trial.measurements if measurement.step == step)


# The first member, the defaults, learns next to nothing, and any two of these are far ahead of it at every ready step:
# it makes room for a fork at its first turn by which all have been measured once. From step 20 on an interval takes
# half a minute, so that a member whose ranks start late has minutes to be measured.
ABLE = [{"lr": lr, "betas[0]": 0.9, "preconditioner": "soap"} for lr in (3e-3, 5e-3, 1e-2)]
SLOW = {"slow_from_step": 20, "seconds_per_step": 3.0}


def test_a_population_of_two_slots_survives_the_death_of_its_run(service: ServiceProcesses) -> None:
    job_id = service.submit(
        specification(
            num_trials=NUM_TRIALS,
            options=SLOW | service.until_hurry(),
            pinned=ABLE,
            search_space=SPACE,
            pruner={"name": "pbt", "population": POPULATION, "interval": 10},
            sampler={"name": "random"},
            resources={"workers_per_trial": 1, "parallel_trials": 2},
        )
    )
    service.wait_for("a fork", lambda: any(t.forked_from is not None for t in service.trials(job_id)))
    service.run_process().kill()
    before = {trial.number: trial for trial in service.trials(job_id)}
    service.hurry()
    job, trials = service.finish(job_id)

    assert job.state is JobState.SUCCEEDED, job.failure
    assert job.attempt == 2
    assert [trial.number for trial in trials] == list(range(NUM_TRIALS))
    assert {trial.state for trial in trials} <= {TrialState.COMPLETED, TrialState.PRUNED}
    forks = [trial for trial in trials if trial.forked_from is not None]
    assert 1 <= len(forks) <= NUM_TRIALS - POPULATION
    for fork in forks:
        assert fork.forked_from is not None
        assert fork.forked_at_step in STEPS[:-1]
        parent = trials[fork.forked_from]
        steps = [
            measurement.step for measurement in fork.measurements if measurement.step in STEPS
        ]  # others: extra ones
        assert steps == [step for step in STEPS if step >= fork.forked_at_step][: len(steps)]
        assert metrics_at(fork, fork.forked_at_step) == metrics_at(parent, fork.forked_at_step)
        assert fork.config["optimizer"]["arguments"]["lr"] != parent.config["optimizer"]["arguments"]["lr"]
        if fork.number not in before:  # its beginning was its parent's to pay
            own_seconds = fork.seconds - fork.measurements[0].seconds
            assert fork.spent_seconds == pytest.approx(own_seconds)
        assert fork.parameters["preconditioner"] == parent.parameters["preconditioner"]
    for trial in trials:
        assert trial.state is TrialState.PRUNED or trial.step == STEPS[-1]
        if trial.number in before:  # what was forked stays so
            assert trial.forked_from == before[trial.number].forked_from
            assert trial.parameters == before[trial.number].parameters
    assert any("a fork of a better one takes its place" in (trial.detail or "") for trial in trials)
    checkpoints = service.data_dir / "checkpoints" / job_id
    service.wait_for("the end of the job's checkpoints", lambda: not checkpoints.exists())

    with service.database.reading() as session:
        recommendation = RecommendationRepository(session).of_job(job_id)
    assert recommendation is not None
    best = recommendation.content["evidence"]["best"]
    if trials[best["number"]].forked_from is not None:
        stages = best["lineage"]
        assert [stages[0]["first_step"], stages[-1]["last_step"]] == [1, STEPS[-1]]
        assert stages[-1]["config"] == recommendation.content["config"]
