"""A job that searches its batch size, on a real Ray cluster and real ranks."""

from __future__ import annotations

import math

import pytest

from service.domain import JobState, Phase, TrialState
from service.specification.length import BATCH_SIZE
from service.store.repositories import RecommendationRepository
from tests.service.scheduler.test_job_run import specification
from tests.support.service.service_process import ServiceProcesses

pytestmark = pytest.mark.patient


@pytest.fixture
def service(shared_service: ServiceProcesses) -> ServiceProcesses:
    """One with a worker."""
    return shared_service


def test_trials_of_other_batch_sizes_pause_end_and_are_compared_after_equally_many_examples(
    service: ServiceProcesses,
) -> None:
    job = specification(num_trials=8)
    job["search_space"]["parameters"].append({"type": "categorical", "name": BATCH_SIZE, "choices": [64, 32, 128]})
    job |= {
        "training": {"num_examples": 1280, "evaluate_every_examples": 128},
        "baselines": [{"search_space": "sgd", "budget_share": 0.25}],
        "pruner": {"name": None},
        "known_configs": "none",  # of jobs that other tests left, which may all have one batch size
        "resources": {"parallel_trials": 1},
    }
    job_id = service.submit(job)
    finished, trials = service.finish(job_id)

    assert finished.state is JobState.SUCCEEDED, finished.failure
    assert finished.num_steps == 40
    assert {trial.phase for trial in trials} == {Phase.SEARCH, Phase.BASELINE}
    assert len({trial.parameters[BATCH_SIZE] for trial in trials}) > 1
    ends = set()
    for trial in trials:
        batch_size = trial.parameters[BATCH_SIZE]
        assert (trial.config["batch_size"], trial.config["num_steps"]) == (batch_size, 1280 // batch_size)
        seen = [measurement.step * batch_size for measurement in trial.measurements]
        assert seen == sorted(seen)
        assert set(seen) >= set(range(128, seen[-1] + 1, 128))
        assert (seen[-1] == 1280) == (trial.state is TrialState.COMPLETED)
        ends.add(math.ceil(seen[-1] / 128))
    assert len(ends - {10}) <= 2  # the rungs
    with service.database.reading() as session:
        stored = RecommendationRepository(session).of_job(job_id)
    assert stored is not None
    best = next(trial for trial in trials if trial.number == stored.content["evidence"]["best"]["number"])
    assert (stored.batch_size, stored.num_steps) == (best.config["batch_size"], best.config["num_steps"])
    assert stored.content["training"]["batch_size"] == stored.batch_size
