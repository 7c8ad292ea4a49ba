"""Commands that steer a job or a trial, against the real API."""

from __future__ import annotations

import pytest

from service.domain import Phase
from service.store.repositories import TrialRepository
from service.store.session import Database
from tests.support.service.commands import run
from tests.support.service.scenarios import begin_trial, claimed_job, submit


@pytest.mark.usefixtures("url")
def test_a_job_is_paused_gets_more_budget_and_goes_on(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    assert run("pause", job_id).stdout == f"job {job_id} is paused\n"
    assert f"{job_id}  " in run("jobs", "--state", "paused").stdout
    changed = run("budget", job_id, "num_trials=8", "device_hours=1.5", "--resume")
    assert changed.stdout == f"job {job_id} is queued: num_trials 8, device_hours 1.5\n"
    assert run("resume", job_id).stdout == f"job {job_id} goes on\n"
    refused = run("budget", job_id, "num_trials=none")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "shampoo-tuner: budget.num_trials: must be a valid integer, got 'none'\n",
    )
    assert run("budget", job_id).exit_code == 2
    changed = run("budget", job_id, "--set", "num_trials=9")
    assert changed.stdout == f"job {job_id} is queued: num_trials 9, device_hours 1.5\n"
    run("cancel", job_id)
    refused = run("pause", job_id)
    assert refused.exit_code == 1
    assert "has already finished: cancelled" in refused.stderr


@pytest.mark.usefixtures("url")
def test_a_job_gets_another_priority(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    assert run("priority", job_id, "10").stdout == f"job {job_id} is queued with priority 10\n"
    assert run("priority", job_id, "-5").stdout == f"job {job_id} is queued with priority -5\n"
    assert run("priority", job_id, "--", "-6").stdout == f"job {job_id} is queued with priority -6\n"
    assert run("priority", "-70", job_id).exit_code == 2
    assert run("priority", job_id, "1001").exit_code == 2
    assert "greater than or equal to -1000" in run("priority", job_id, "-1001").stderr
    assert "No such option: --fast" in run("priority", job_id, "--fast", "5").stderr
    refused = run("priority", "job_nope", "1")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "shampoo-tuner: no job 'job_nope'; `shampoo-tuner jobs` lists those there are\n",
    )


@pytest.mark.usefixtures("url")
def test_a_trial_is_stopped_and_tried_again(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    stopped = run("stop", lease.job_id, "0")
    assert stopped.stdout == f"trial 0 of job {lease.job_id} ends at its next measurement\n"
    refused = run("retry", lease.job_id, "0")
    assert refused.exit_code == 1
    assert "is running: only a pruned, failed or cancelled one" in refused.stderr
    run("cancel", lease.job_id)
    assert run("retry", lease.job_id, "0").stdout == f"trial 0 of job {lease.job_id} is queued\n"
    for command in ("stop", "retry"):
        assert "greater than or equal to 0" in run(command, lease.job_id, "-1").stderr
    assert run("stop", lease.job_id, "0").stdout == f"trial 0 of job {lease.job_id} is cancelled\n"


@pytest.mark.usefixtures("url")
def test_try_proposes_a_trial(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    result = run("try", job_id, "--set", "lr=1e-2", "--set", "betas[0]=0.9", "--idempotency-key", "k")
    assert (result.exit_code, result.stdout) == (0, f"trial 0 of job {job_id} is queued\n"), result.output
    with sqlite_database.reading() as session:
        trial = TrialRepository(session).get(job_id, 0)
    assert (trial.phase, trial.parameters["lr"], trial.parameters["betas[0]"]) == (Phase.SEARCH, 0.01, 0.9)
    assert run("try", job_id, "--phase", "baseline").stdout == f"trial 1 of job {job_id} is queued\n"
    both = run("try", job_id, "lr=2e-2", "--set", "betas[0]=0.8", "weight_decay=0.1")
    assert (both.exit_code, both.stdout) == (0, f"trial 2 of job {job_id} is queued\n"), both.output
    with sqlite_database.reading() as session:
        values = TrialRepository(session).get(job_id, 2).parameters
    assert (values["lr"], values["betas[0]"], values["weight_decay"]) == (0.02, 0.8, 0.1)
    assert "num_trials 4, extra_search_trials 2" in run("budget", job_id, "patience=9").stdout
    for arguments, said in (
        (["--set", "lr=9e9"], "parameters.lr: must be in"),
        (["--set", "lr"], "lr: must be NAME=VALUE"),
        (["lr"], "lr: must be NAME=VALUE"),
        (["--set", "lr=0.1", "lr=0.2"], "lr is given twice"),
    ):
        refused = run("try", job_id, *arguments)
        assert refused.exit_code == 1
        assert said in refused.stderr
    assert "must be search or baseline" in run("try", job_id, "--phase", "confirmation").stderr
    assert "--beyond-bounds" in run("try", job_id, "--set", "lr=5").stderr
    assert run("try", job_id, "lr=5", "--beyond-bounds").stdout == f"trial 3 of job {job_id} is queued\n"
