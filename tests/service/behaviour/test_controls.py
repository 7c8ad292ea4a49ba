"""Jobs and trials that are steered while they run: over HTTP, on real workers, Ray and ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

import psutil
import pytest

from service.access.projects import Quotas, change_project
from service.client import ApiError, Client
from service.domain import DEFAULT_PROJECT, FailureReason, JobState, TrialState
from service.store.models import Trial
from service.store.repositories import ProjectRepository
from tests.service.scheduler.test_job_run import paced, specification
from tests.support.service.live import running
from tests.support.service.service_process import ServiceProcesses, states

pytestmark = pytest.mark.patient

STEPS = [10, 20, 30, 40]
ONE_AT_A_TIME = {"parallel_trials": 1}


@pytest.fixture
def service(shared_service: ServiceProcesses) -> ServiceProcesses:
    """One with a worker."""
    return shared_service


@pytest.fixture
def client(service: ServiceProcesses) -> Iterator[Client]:
    """A client of the API, with one worker behind it."""
    with running(service.database) as url, Client(url) as client:
        yield client


def _wait_until_trial_measures(service: ServiceProcesses, job_id: str, number: int) -> None:
    def measures() -> bool:
        trials = service.trials(job_id)
        return len(trials) > number and trials[number].state is TrialState.RUNNING and trials[number].step >= 10

    service.wait_for(f"a measurement of trial {number}", measures)


def _longest_interval(trials: list[Trial]) -> float:
    """The most seconds of training between two measurements of a trial."""
    return max(
        after - before
        for trial in trials
        for before, after in pairwise([0.0, *(measurement.seconds for measurement in trial.measurements)])
    )


def test_a_paused_job_frees_its_ranks_and_goes_on_where_it_was(service: ServiceProcesses, client: Client) -> None:
    job_id = client.submit(
        specification(
            num_trials=3,
            options=service.until_hurry(),
            resources={"workers_per_trial": 2, "parallel_trials": 1},
            **paced(0.5, 0.0),
        )
    ).id
    _wait_until_trial_measures(service, job_id, 1)
    assert client.pause(job_id).requested == "pause"
    service.wait_for("the pause", lambda: service.job(job_id).state is JobState.PAUSED)
    service.wait_for("no process but the worker", lambda: not service.processes_of_runs())
    assert states(service.trials(job_id)) == [TrialState.COMPLETED, TrialState.QUEUED]
    before = service.trials(job_id)[1]
    running_seconds = client.job(job_id).progress.seconds_elapsed
    time.sleep(2)
    assert client.job(job_id).progress.seconds_elapsed == running_seconds

    service.hurry()
    assert client.resume(job_id).state is JobState.QUEUED
    job, trials = service.finish(job_id)
    assert (job.state, job.attempt, job.crashes) == (JobState.SUCCEEDED, 2, 0), job.failure
    assert [trial.runs for trial in trials] == [1, 2, 1]
    assert all([measurement.step for measurement in trial.measurements] == STEPS for trial in trials)
    # Of what it had measured, it gives only its checkpoint's measurement again.
    again = trials[1].measurements[: len(before.measurements) - 1]
    assert [m.recorded_at for m in again] == [m.recorded_at for m in before.measurements[:-1]]
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.running_seconds < (job.finished_at - job.started_at).total_seconds() - 2


def test_a_running_job_gets_more_trials_and_a_finished_one_too_and_its_failed_trial_is_tried_again(
    service: ServiceProcesses, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = service.until_hurry() | {"trouble": "error", "once_directory": str(tmp_path_factory.mktemp("once"))}
    job_id = client.submit(specification(num_trials=2, options=options, resources=ONE_AT_A_TIME, **paced(0.5))).id
    _wait_until_trial_measures(service, job_id, 1)
    changed = client.change(job_id, budget={"num_trials": 3})
    service.hurry()
    assert (changed.num_trials, changed.requested) == (3, "restart")
    job, trials = service.finish(job_id)
    assert (job.state, job.attempt, len(trials)) == (JobState.SUCCEEDED, 2, 3), job.failure
    assert states(trials) == [TrialState.FAILED, TrialState.COMPLETED, TrialState.COMPLETED]
    assert [trial.reason for trial in trials] == [FailureReason.ERROR, None, None]
    first = client.recommendation(job_id)

    client.change(job_id, budget={"num_trials": 5})
    assert client.retry_trial(job_id, 0).state is TrialState.QUEUED  # which has the job go on, too
    job, trials = service.finish(job_id)
    assert (job.state, job.attempt, len(trials)) == (JobState.SUCCEEDED, 3, 5), job.failure
    assert [(trial.state, trial.reason) for trial in trials] == [(TrialState.COMPLETED, None)] * 5
    assert [trials[0].runs, *[trial.runs for trial in trials[3:]]] == [2, 1, 1]
    second = client.recommendation(job_id)
    assert second.id != first.id
    assert sum(second.evidence.num_trials["search"].values()) == 5


def test_a_stopped_trial_is_tried_again_and_a_proposed_one_next_even_if_the_run_is_killed(
    service: ServiceProcesses, client: Client
) -> None:
    job_id = client.submit(specification(num_trials=3, options=service.slowly(0.5), resources=ONE_AT_A_TIME)).id
    _wait_until_trial_measures(service, job_id, 0)
    assert client.stop_trial(job_id, 0).requested == "stop"
    stopped = lambda: service.trials(job_id)[0].state is TrialState.CANCELLED  # noqa: E731
    service.wait_for("the end of trial 0", stopped)
    trial = client.trial(job_id, 0)
    assert (trial.detail, trial.requested) == ("stopped by a user", None)
    assert 0 < trial.step < 40

    _wait_until_trial_measures(service, job_id, 1)
    assert service.job(job_id).attempt == 1  # the others go on
    assert client.retry_trial(job_id, 0).state is TrialState.QUEUED
    proposed = client.propose_trial(job_id, {"lr": 0.005})
    with suppress(ValueError, psutil.NoSuchProcess):  # it may just have ended, as it is asked to
        service.run_process().kill()
    service.hurry()
    job, trials = service.finish(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert job.attempt > 1
    assert states(trials) == [TrialState.COMPLETED] * 4
    assert all([measurement.step for measurement in trial.measurements] == STEPS for trial in trials)
    assert trials[0].config == trial.config
    assert [trial.number for trial in trials if trial.proposed] == [proposed.number]
    assert trials[proposed.number].parameters == {"lr": 0.005}
    began = trials[proposed.number].started_at
    assert began is not None
    for later in trials[proposed.number + 1 :]:
        assert later.started_at is not None
        assert later.started_at > began


def test_a_job_ends_when_its_device_hours_or_its_projects_are_spent_and_goes_on_with_more(
    service: ServiceProcesses, client: Client
) -> None:
    allowed = 12.0 / 3600
    job_id = client.submit(
        specification(
            num_trials=100,
            options={"seconds_per_step": 0.05},
            resources={"workers_per_trial": 2, "parallel_trials": 1},
            budget={"num_trials": 100, "device_hours": allowed},
        )
    ).id
    job, trials = service.finish(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    spent = client.job(job_id).progress.device_hours
    assert spent == pytest.approx(2 * sum(trial.spent_seconds for trial in trials) / 3600)
    # The limit is seen at the first look after a measurement: one more may have been made by then, on two ranks.
    assert allowed <= spent < allowed + 2 * 2 * _longest_interval(trials) / 3600
    assert trials[-1].state in (TrialState.CANCELLED, TrialState.COMPLETED)

    client.change(job_id, budget={"device_hours": 100 * allowed})
    with _hours_left(service, allowed):
        client.resume(job_id)
        job, more = service.finish(job_id)
        with pytest.raises(ApiError, match="max_device_hours"):
            client.resume(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    spent = client.job(job_id).progress.device_hours
    assert 2 * allowed <= spent < 2 * allowed + 2 * 2 * _longest_interval(more) / 3600
    for before, after in zip(trials, more, strict=False):
        if before.state is TrialState.CANCELLED:  # cut off, so that it went on from its checkpoint
            assert after.state is TrialState.COMPLETED
            taken = [(measurement.step, measurement.seconds) for measurement in before.measurements]
            assert [(each.step, each.seconds) for each in after.measurements][: len(taken)] == taken
            assert [measurement.step for measurement in after.measurements] == [
                measurement.step for measurement in more[0].measurements
            ]
        else:
            assert after.finished_at == before.finished_at
    assert job.cut_off == "project default has spent the device-hours of its quota (max_device_hours)"


@contextmanager
def _hours_left(service: ServiceProcesses, hours: float) -> Iterator[None]:
    """A quota that leaves the default project so many device-hours."""

    def set_quota(left: float | None) -> None:
        with service.database.writing() as session:
            limit = None if left is None else ProjectRepository(session).device_hours(DEFAULT_PROJECT) + left
            change_project(session, DEFAULT_PROJECT, Quotas(max_device_hours=limit), fields=("max_device_hours",))

    set_quota(hours)
    try:
        yield
    finally:
        set_quota(None)
