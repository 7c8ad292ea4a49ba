"""Whole jobs on real Ray clusters and real ranks, seen through SQL and the process table."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.domain import FailureReason, JobState, TrialState
from service.scheduler.policy.time_limit import RESERVE
from service.store.repositories import RecommendationRepository
from tests.support.service.service_process import LAUNCHER, ServiceProcesses
from tests.support.waiting import PATIENCE_SECONDS, slowness

pytestmark = pytest.mark.patient


def specification(*, num_trials: int, options: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    """A job of short trials on the troubled workload, on one rank unless `parts` says otherwise."""
    return {
        "workload": {"name": "troubled-digits", "options": options or {}},
        "search_space": {
            "optimizer": "adamw",
            "parameters": [
                {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "scale": "log", "default": 1e-3},
            ],
        },
        "budget": {"num_trials": num_trials},
        "baselines": [],
        "confirmation": None,
        "pruner": {"name": "none"},
        **parts,
    }


def paced(*seconds_per_step: float) -> dict[str, Any]:
    """The parts of a job whose first trial goes at full speed, and whose next ones sleep so long in each step."""
    choices = sorted({0.0, *seconds_per_step})
    pace = {"type": "categorical", "name": "workload.seconds_per_step", "choices": choices, "default": 0.0}
    space = specification(num_trials=1)["search_space"]
    pinned = [
        {"lr": 1e-3 * number, "workload.seconds_per_step": seconds}
        for number, seconds in enumerate(seconds_per_step, start=2)
    ]
    return {"search_space": {**space, "parameters": [*space["parameters"], pace]}, "pinned": pinned}


@pytest.fixture
def service(shared_service: ServiceProcesses) -> ServiceProcesses:
    """One with a worker."""
    return shared_service


def programs(service: ServiceProcesses) -> set[str]:
    """The names of the files that the service's processes run, and whatever else is in their arguments."""
    names = set()
    for process in service.processes():
        with suppress(psutil.NoSuchProcess):
            names |= {Path(argument).name for argument in process.cmdline()}
    return names


def test_every_trouble_of_a_trial_gets_its_state_and_the_job_goes_on(service: ServiceProcesses, tmp_path: Path) -> None:
    once = tmp_path / "once"
    once.mkdir()
    troubles = ["none", "diverge", "error", "kill"]
    order = {"type": "categorical", "name": "workload.trouble", "choices": troubles, "default": "none"}
    job = specification(
        num_trials=8,
        options={"once_directory": str(once)},
        search_space={"optimizer": "adamw", "parameters": [order]},
        sampler={"name": "random", "seed": 18},
        budget={"num_trials": 8, "wall_clock_seconds": 1e300},  # beyond every calendar
        resources={"workers_per_trial": 2},
    )
    job_id = service.submit(job)
    finished, trials = service.finish(job_id)

    assert finished.state is JobState.SUCCEEDED, finished.failure
    assert [trial.number for trial in trials] == list(range(8))
    assert {trial.parameters["workload.trouble"] for trial in trials} == set(troubles)
    met: set[str] = set()
    for trial in trials:
        trouble = trial.parameters["workload.trouble"]
        first = trouble not in met
        met.add(trouble)
        outcome = (trial.state, trial.reason)
        if trouble == "diverge":
            assert outcome == (TrialState.FAILED, FailureReason.DIVERGED)
        elif trouble == "error" and first:
            assert outcome == (TrialState.FAILED, FailureReason.ERROR)
            assert trial.detail is not None
            assert "label of image 17" in trial.detail
        else:
            assert outcome == (TrialState.COMPLETED, None)
            assert [measurement.step for measurement in trial.measurements] == [10, 20, 30, 40]
            # A rank that was killed costs the trial a second start, not its life.
            assert trial.runs == (2 if trouble == "kill" and first else 1)
    assert not service.rank_processes()
    checkpoints = service.data_dir / "checkpoints" / job_id
    service.wait_for("the end of the job's checkpoints", lambda: not checkpoints.exists())


def test_a_trial_that_does_not_fit_goes_on_in_smaller_parts_and_the_same_error_stops_a_job(
    service: ServiceProcesses,
) -> None:
    too_large = specification(num_trials=1, options={"trouble": "memory"})
    troubles = {"type": "categorical", "name": "workload.trouble", "choices": ["none", "error"], "default": "none"}
    broken = specification(
        num_trials=40,
        search_space={"optimizer": "adamw", "parameters": [troubles]},
        sampler={"name": "random", "seed": 1},
        resources={"parallel_trials": 1},
    )
    memory_job, error_job = service.submit(too_large), service.submit(broken)

    job, [trial] = service.finish(memory_job)
    assert job.state is JobState.SUCCEEDED, job.failure
    # From the checkpoint of step 10 on; the trouble waits for the fifteenth batch, and these are counted in parts.
    assert (trial.state, trial.runs, trial.memory_failures) == (TrialState.COMPLETED, 2, 1)
    assert trial.config["accumulation_steps"] == 2
    assert [measured.step for measured in trial.measurements] == [10, 20, 30, 40]

    job, trials = service.finish(error_job)
    failed = [trial.number for trial in trials if trial.reason is FailureReason.ERROR]
    assert len(failed) == 3
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert job.failure.startswith(
        f"the same error ended trials {failed[0]}, {failed[1]} and {failed[2]}: "
        "KeyError: 'label of image 17' (workload.py, line "
    )
    assert trials[0].state is TrialState.COMPLETED
    assert len(trials) < 40
    with service.database.reading() as session:  # what was found is still recommended
        assert RecommendationRepository(session).of_job(error_job) is not None


def test_trials_whose_processes_leave_by_themselves_are_told_by_their_exit_status_and_three_stop_the_job(
    service: ServiceProcesses,
) -> None:
    leaving = specification(num_trials=9, options={"trouble": "leave"}, resources={"parallel_trials": 1})
    job, trials = service.finish(service.submit(leaving))
    assert job.state is JobState.FAILED
    assert len(trials) == 3, [(t.state, t.runs, t.detail) for t in trials]
    assert [(trial.state, trial.reason, trial.memory_failures) for trial in trials] == [
        (TrialState.FAILED, FailureReason.ERROR, 0)
    ] * 3
    for trial in trials:
        assert trial.runs in (2, 3)  # a third where the first one ended before what it had measured was seen
        assert re.fullmatch(
            # It leaves at step 10; if both times before what it had measured was seen, nothing is known of a step.
            r"twice at step (10|0): rank 0 died: process \d+ on [\d.]+: it left with exit status 7, as by `os\._exit`",
            trial.detail or "",
        )
    assert re.match(
        r"the same error ended trials 0, 1 and 2: twice at step (10|0): rank 0 died: ", job.failure or ""
    ), job.failure


def test_a_launcher_in_place_of_one_that_was_killed_outlives_its_first_run(service: ServiceProcesses) -> None:
    service.wait_for("the launcher", lambda: bool(service.launchers()))
    [killed] = service.launchers()
    killed.kill()
    service.finish(service.submit(specification(num_trials=1)))
    service.wait_for("no process but the worker", lambda: not service.processes_of_runs())
    [launcher] = service.launchers()
    assert launcher != killed
    job_id = service.submit(specification(num_trials=1, options=service.slowly(0.2)))
    service.wait_for("a measurement", lambda: any(trial.step for trial in service.trials(job_id)))
    assert service.run_process().parent() == launcher
    service.hurry()
    service.finish(job_id)


def test_cancelling_frees_the_ranks_in_the_middle_of_a_step(service: ServiceProcesses) -> None:
    job_id = service.submit(
        specification(
            num_trials=3, options={"seconds_per_step": 10 * PATIENCE_SECONDS}, resources={"workers_per_trial": 2}
        )
    )
    service.wait_for("two ranks at work", lambda: len(service.rank_processes()) == 2)
    assert not {"dashboard.py", "monitor.py", "log_monitor.py"} & programs(service)  # of Ray, and of no use here
    [template] = {rank.parent() for rank in service.rank_processes()}
    assert template is not None
    assert LAUNCHER in template.cmdline()  # from which it was forked
    assert template.parent() == service.run_process()
    time.sleep(2)
    service.cancel(job_id)
    # It waits less long than the step takes.
    service.wait_for("no process but the worker", lambda: not service.processes_of_runs())
    assert service.job(job_id).state is JobState.CANCELLED
    assert [trial.state for trial in service.trials(job_id)] == [TrialState.CANCELLED]
    assert service.directories() == []


def test_at_the_end_of_the_time_a_job_succeeds_with_what_it_has(service: ServiceProcesses) -> None:
    slower = slowness()
    allowed = 12 * slower  # Ray's start is a part of it
    job_id = service.submit(
        specification(
            num_trials=10_000,
            options={"seconds_per_step": 0.05 * slower},
            budget={"num_trials": 10_000, "wall_clock_seconds": allowed},
            resources={"parallel_trials": 1},
        )
    )
    job, trials = service.finish(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert job.started_at is not None
    assert job.finished_at is not None
    # It starts no trial that could not be finished, so it may be done a little before.
    completed = [trial.seconds for trial in trials if trial.state is TrialState.COMPLETED]
    reserve = RESERVE * sum(completed) / len(completed)
    assert (job.finished_at - job.started_at).total_seconds() >= allowed - 2 * reserve
    last = max(measurement.recorded_at for trial in trials for measurement in trial.measurements)
    assert (last - job.started_at).total_seconds() < 1.2 * allowed
    assert {trial.state for trial in trials} <= {TrialState.COMPLETED, TrialState.CANCELLED}
    assert {t.detail for t in trials if t.state is TrialState.CANCELLED} <= {"the budget was spent"}
    early = f"its time was nearly over, so that it began {len(trials)} of 10000 trials"
    assert job.cut_off in ("the budget was spent", early)


def test_a_job_whose_run_cannot_be_started_fails_and_says_why_and_the_worker_lives(
    service: ServiceProcesses,
) -> None:
    [worker] = service.workers
    logs = service.data_dir / "logs"
    logs.mkdir(exist_ok=True)
    logs.rename(service.data_dir / "logs_of_others")
    logs.touch()  # where the runs' log files should go
    try:
        job, trials = service.finish(service.submit(specification(num_trials=1)))
    finally:
        logs.unlink()
        (service.data_dir / "logs_of_others").rename(logs)
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert "it could not be started: [Errno 17] File exists" in job.failure
    assert trials == []
    assert worker.poll() is None
    assert service.directories() == []


def test_a_job_that_the_cluster_cannot_hold_fails_at_once_and_says_why(service: ServiceProcesses) -> None:
    job_id = service.submit(specification(num_trials=2, resources={"workers_per_trial": 2, "cpus_per_worker": 4096}))
    job, trials = service.finish(job_id)
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert "cannot hold a trial of 2 ranks with 4096 CPUs and 0 GPUs each" in job.failure
    assert trials == []
