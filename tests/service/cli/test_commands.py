"""The commands, against the real API."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace

import httpx
import pytest
import yaml

from service.api import examples
from service.api.schemas.jobs import JobRead
from service.cli.reading import watching
from service.cli.terminal import progress_line
from service.domain import JobState, Phase
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from service.use_cases.waiting import FIRST_MEASUREMENT
from tests.service.cli.conftest import read_job
from tests.support.service.commands import run
from tests.support.service.identities import built_identity
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claimed_job,
    repeat_trial,
    run_trial,
    specification,
    submit,
)
from tests.support.waiting import PATIENCE_SECONDS, started
from trainers.installation.distribution import version


def test_the_version_is_told_alone() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"{version()}\n")


@pytest.mark.usefixtures("url")
def test_submit_prints_the_new_jobs_id(sqlite_database: Database, job_file: str) -> None:
    result = run("submit", job_file, "--set", "budget.num_trials=8", "--set", "tags.team=vision", "--name", "n")
    assert result.exit_code == 0, result.output
    with sqlite_database.reading() as session:
        job = JobRepository(session).get(result.stdout.strip())
        assert (job.num_trials, job.tags, job.name) == (8, {"team": "vision"}, "n")


@pytest.mark.usefixtures("url")
def test_a_refused_job_is_one_line_that_names_the_field(job_file: str) -> None:
    result = run("submit", job_file, "--set", "budget.num_trials=-8")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "shampoo-tuner: budget.num_trials: must be greater than or equal to 1, got -8\n"


def test_a_missing_service_is_one_line_with_its_address(job_file: str) -> None:
    result = run("submit", job_file, "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "no service answers at http://127.0.0.1:1" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("url")
def test_wrong_usage_exits_with_two() -> None:
    assert run("submit").exit_code == 2
    assert run("jobs", "--state", "done").exit_code == 2
    assert run("recommend", "digits-mlp", "--format", "xml").exit_code == 2
    assert run("jobs", "--url", "127.0.0.1:8730").exit_code == 2


@pytest.mark.usefixtures("url")
def test_a_list_says_which_jobs_it_leaves_out(sqlite_database: Database) -> None:
    given = [submit(sqlite_database) for _ in range(2)]
    assert run("jobs").stderr == ""
    assert run("jobs", "--limit", "1").stderr == "there are older ones: --limit shows more\n"
    for job in given:
        assert run("archive", job).exit_code == 0
    assert run("jobs").stderr == "no jobs but archived ones: --archived shows them\n"
    assert run("jobs", "--archived", "--state", "failed").stderr == "no jobs\n"


@pytest.mark.usefixtures("url")
def test_jobs_are_listed_with_their_progress(sqlite_database: Database) -> None:
    assert "no jobs" in run("jobs").stderr
    done = finished_job(sqlite_database)
    waiting = submit(sqlite_database)
    listed = run("jobs").stdout
    assert listed.index(waiting) < listed.index(done)
    assert "4/4" in listed
    assert "0.2" in listed
    assert "no worker is alive, the last was heard of at 2026-03-01 12:00:00 UTC" in listed
    succeeded = run("jobs", "--state", "succeeded").stdout
    assert waiting not in succeeded
    assert "waiting" not in succeeded


@pytest.mark.slow
def test_list_page_jobs_watch_and_recommend_name_one_best_value(url: str, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database, confirmation={"top_k": 2, "num_seeds": 3})
    for number, (loss, phase) in enumerate([(0.5, Phase.SEARCH), (0.3, Phase.SEARCH), (0.31, Phase.SEARCH)]):
        run_trial(sqlite_database, lease, number, loss, phase)
    run_trial(sqlite_database, lease, 3, 0.6, Phase.BASELINE)
    found = run("jobs").stdout
    assert (" 0.3000 " in found, " 0.6000 " in found, "*" in found) == (True, True, False)
    assert "best validation_loss 0.3000 (search value, one seed, trial 1)" in progress_line(read_job(url, lease.job_id))
    repeats = [(1, 1, 0.4), *((seed, source, loss) for seed in (1, 2, 3) for source, loss in [(2, 0.33), (3, 0.7)])]
    for number, (seed, source, loss) in enumerate(repeats, start=4):
        repeat_trial(sqlite_database, lease, number, loss + 0.001 * seed, confirms=source, seed=seed)
    with sqlite_database.writing() as session:
        assert finish_job(session, lease, failure=None, now=NOW) is JobState.SUCCEEDED

    best, baseline = "0.3325 ± 0.00071", "0.7025 ± 0.00071"
    listed = run("jobs").stdout
    assert "0.3325*  0.7025*" in listed
    assert "* mean of 2 new seeds; the others: one seed" in listed
    watched = run("watch", lease.job_id).stdout
    assert f"best validation_loss {best} (mean of 2 new seeds, config of trial 2)" in watched
    assert f"Refuted: Shampoo has validation_loss {best} (mean of 2 new seeds, config of trial 2)" in watched
    assert f"baseline: validation_loss {baseline} (mean of 2 new seeds, config of trial 3)." in watched
    recommended = run("recommend", "--job", lease.job_id).stdout
    assert f"# Refuted: Shampoo has validation_loss {best} (mean of 2 new seeds, config of trial 2)" in recommended
    assert f"# Best of the AdamW baseline: validation_loss {baseline} (mean of 2 new seeds" in recommended
    progress = read_job(url, lease.job_id).progress
    assert progress.best is not None
    assert progress.best.standard_deviation == pytest.approx(0.001 / 2**0.5)
    assert (progress.best.number, progress.best.basis) == (2, "mean of 2 new seeds")
    assert progress.best.value == pytest.approx(0.3325)
    pages = [re.sub(r"<[^>]*>|\s+", " ", httpx.get(url + path).text) for path in ("/", f"/jobs/{lease.job_id}")]
    for page in [re.sub(" +", " ", page) for page in pages]:
        assert f" {best} mean of 2 new seeds" in page
        assert f" {baseline} mean of 2 new seeds" in page


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the given functions called, one after the other, while a watch waits for its next looks."""

    def happen(*events: Callable[[], object]) -> None:
        left = iter(events)
        monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: next(left)()))

    return happen


@pytest.mark.usefixtures("url")
def test_watch_prints_what_changes_and_succeeds_with_the_job(
    sqlite_database: Database, meanwhile: Callable[..., None]
) -> None:
    lease = claimed_job(sqlite_database)

    def work() -> None:
        run_trial(sqlite_database, lease, 0, 0.5)
        run_trial(sqlite_database, lease, 1, 0.4, Phase.BASELINE)
        begin_trial(sqlite_database, lease, 2)

    def finish() -> None:
        with sqlite_database.writing() as session:
            finish_job(session, lease, failure=None, now=NOW)

    meanwhile(work, finish)
    result = run("watch", lease.job_id)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"running · 0/4 trials (none started) · {FIRST_MEASUREMENT} (waiting since ")
    one = "search value, one seed, trial"
    bests = f"best validation_loss 0.5000 ({one} 0) · baseline 0.4000 ({one} 1)"
    assert any(bests in line for line in lines)
    assert any(line.startswith("succeeded · 3/4") for line in lines)


@pytest.mark.slow
def test_watch_tells_of_a_service_that_is_away_and_goes_on_when_it_is_back(
    sqlite_database: Database, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = claimed_job(sqlite_database)
    run_trial(sqlite_database, lease, 0, 0.5)
    with ExitStack() as first, ExitStack() as second:
        url = first.enter_context(running(sqlite_database))
        port = int(url.rpartition(":")[2])
        monkeypatch.setenv("SHAMPOO_TUNER_URL", url)
        back = threading.Timer(1.0, lambda: second.enter_context(running(sqlite_database, port=port)))

        def leave() -> None:
            first.close()
            back.start()

        def finish() -> None:
            begin_trial(sqlite_database, lease, 1)  # and is cut off
            with sqlite_database.writing() as session:
                finish_job(session, lease, failure=None, now=NOW)

        meanwhile(leave, finish)
        result = run("watch", lease.job_id)
        back.join()
    assert result.exit_code == 0, result.output
    begun, away, answers, ended, *_ = result.stdout.splitlines()
    assert begun.startswith("running · 1/4 trials (1 completed) · 40/160 steps · best")
    assert away.startswith("the service does not answer, trying again for 10 min 00 s: no service answers at http")
    assert answers == "the service answers again"
    assert ended.startswith("succeeded · 2/4 trials (1 completed, 1 cancelled) · 40/40 steps")


def test_watch_without_a_service_exits_with_three() -> None:
    result = run("watch", "job_1", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 3
    assert "no service answers at http://127.0.0.1:1" in result.stderr
    assert "job job_1 may go on" in result.stderr


def test_steps_a_second_are_counted_over_the_last_half_minute() -> None:
    job = JobRead.model_validate(examples.JOB)

    def at(num_steps: int) -> JobRead:
        return job.model_copy(update={"progress": job.progress.model_copy(update={"num_steps": num_steps})})

    pace = watching._Pace()
    assert [pace.add(second, at(steps)) for second, steps in [(0, 0), (10, 0), (20, 100)]] == [None, None, 5.0]
    assert pace.add(40, at(500)) == pytest.approx(500 / 30)  # since second 10
    assert "500/3,150 steps (16.7 a second)" in progress_line(at(500), steps_per_second=500 / 30)
    assert pace.add(41, at(500).model_copy(update={"state": JobState.PAUSED})) is None


@pytest.mark.usefixtures("url")
def test_watch_fails_with_the_job(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    assert run("cancel", job_id).exit_code == 0
    result = run("watch", job_id)
    assert result.exit_code == 1
    assert f"job {job_id} cancelled" in result.stderr
    again = run("cancel", job_id)
    assert again.exit_code == 1
    assert "already finished" in again.stderr


@pytest.mark.usefixtures("url")
def test_a_queued_job_that_is_watched_says_what_it_waits_for(
    sqlite_database: Database, meanwhile: Callable[..., None]
) -> None:
    job_id = submit(sqlite_database)
    meanwhile(lambda: run("cancel", job_id))
    lines = run("watch", job_id).stdout.splitlines()
    assert lines[0] == (
        "queued · 0/4 trials (none started) · no worker has been started; `shampoo-tuner worker` starts one "
        "(waiting since 2026-03-01 12:00:00 UTC)"
    )


@pytest.mark.processes
@pytest.mark.usefixtures("url", "warm_process")
def test_a_dry_run_says_what_a_job_would_cost_and_submits_none(job_file: str) -> None:
    result = run("submit", job_file, "--dry-run")
    assert result.exit_code == 0, result.output
    first, provisional, second, third, *memory = result.stdout.splitlines()
    assert first == "4 trials (search 2, baseline 2) of up to 100 steps, 400 steps in all if none are pruned."
    assert provisional == "Nothing is trained again with new seeds: the answer will be provisional."
    assert second == "No earlier job like this one has completed a trial here, so its time is unknown."
    assert third == "Start-up, once per job: 1.0 min assumed; no job has been run here."
    if "cannot be predicted" not in memory[0]:  # a slow machine gives up
        assert memory[0].startswith("Weights, gradients and optimizer of a trial of the search need ")
        assert memory[2] == "Memory limit unknown: nothing is kept from being launched (resources.memory_per_worker)."
    hopeless = run("submit", job_file, "--dry-run", "--set", "resources.memory_per_worker=100000")
    if "cannot be predicted" not in hopeless.stdout:
        assert hopeless.exit_code == 1
        assert "NOTHING FITS: the search of such a job would train nothing." in hopeless.stdout
    refused = run("submit", job_file, "--dry-run", "--set", "search_space=adam")
    assert refused.exit_code == 1
    assert "search_space: unknown preset 'adam'" in refused.stderr
    assert "no jobs" in run("jobs").stderr


@pytest.mark.processes
def test_ctrl_c_leaves_a_watched_job_running(url: str, sqlite_database: Database) -> None:
    job_id = claimed_job(sqlite_database).job_id
    command = [sys.executable, "-m", "service", "watch", job_id]
    environment = {**os.environ, "SHAMPOO_TUNER_URL": url}
    with started(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("running")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert f"job {job_id} goes on" in errors
    assert "Traceback" not in errors
    with sqlite_database.reading() as session:
        assert JobRepository(session).get(job_id).state is JobState.RUNNING


@pytest.mark.slow
@pytest.mark.usefixtures("url")
def test_recommend_prints_the_newest_config(sqlite_database: Database) -> None:
    nothing = run("recommend", "digits-mlp")
    assert nothing.exit_code == 1
    assert "no recommendation for 'digits-mlp' yet" in nothing.stderr
    job_id = finished_job(sqlite_database)
    python = run("recommend", "digits-mlp").stdout
    compile(python, "snippet", "exec")
    assert "Shampoo(" in python
    as_json = json.loads(run("recommend", "digits-mlp", "--format", "json").stdout)
    as_yaml = yaml.safe_load(run("recommend", "digits-mlp", "--format", "yaml").stdout)
    assert as_json["job_id"] == as_yaml["job_id"] == job_id
    assert as_json["config"]["lr"] == pytest.approx(float(as_yaml["config"]["lr"]))
    command = run("recommend", "digits-mlp", "--format", "torchrun").stdout.strip()
    assert command.startswith("torchrun --nproc-per-node ")
    assert as_json["torchrun"] == as_yaml["torchrun"] == command
    translated = run("recommend", "digits-mlp", "--format", "distributed-shampoo")
    compile(translated.stdout, "translated", "exec")
    assert "cannot be said there: sides longer than 1024" in translated.stderr
    nothing = run("recommend", "digits-mlp", "--format", "torch-muon")
    assert nothing.exit_code == 1
    assert "it has nothing of preconditioner='shampoo'" in nothing.stderr
    assert run("recommend", "--job", job_id, "--trial", "0", "--format", "torchrun").exit_code == 2


@pytest.mark.slow
@pytest.mark.usefixtures("url")
def test_recommend_tries_a_name_as_a_models_and_then_as_a_workloads_and_says_which(sqlite_database: Database) -> None:
    old = finished_job(sqlite_database)
    identity = built_identity(specification())
    job_id = finished_job(sqlite_database, model="my-mlp", identity=identity)
    by_model, by_workload = run("recommend", "my-mlp"), run("recommend", "digits-mlp")
    by_fingerprint = run("recommend", "--fingerprint", identity.fingerprint)
    assert by_model.stdout == by_workload.stdout == by_fingerprint.stdout
    assert by_model.stderr == f"model my-mlp: provisional, of job {job_id}\n"
    assert by_workload.stderr.startswith(f"workload digits-mlp: provisional, of job {job_id}; 2 different models have")
    assert run("recommend", "my-mlp", "--fingerprint", identity.fingerprint).exit_code == 2
    assert "did you mean 'my-mlp'" in run("recommend", "my-mpl").stderr
    assert old not in run("jobs", "--model", "my-mlp").stdout


def test_help_names_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for command in (
        "serve",
        "api",
        "worker",
        "migrate",
        "submit",
        "jobs",
        "watch",
        "recommend",
        "cancel",
        "pause",
        "budget",
        "priority",
        "try",
        "demo",
    ):
        assert command in result.stdout


@pytest.mark.usefixtures("url")
def test_recommend_of_one_job_and_of_an_unknown_model(sqlite_database: Database) -> None:
    older, newer = finished_job(sqlite_database), finished_job(sqlite_database)
    for job_id in (older, newer):
        assert json.loads(run("recommend", "--job", job_id, "--format", "json").stdout)["job_id"] == job_id
    unknown = run("recommend", "digits")
    assert unknown.exit_code == 1
    assert "no model is called 'digits' (known: none); no workload is called 'digits' (known: digits-" in unknown.stderr
    assert "did you mean 'digits-mlp'?" in unknown.stderr
    assert run("recommend").exit_code == run("recommend", "digits-mlp", "--job", older).exit_code == 2


@pytest.mark.usefixtures("url")
def test_recommend_prints_the_config_of_one_trial(sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    baseline = run("recommend", "--job", job_id, "--trial", "1")
    assert "from torch.optim import AdamW" in baseline.stdout
    assert "# AdamW for digits-mlp: the config of trial 1 " in baseline.stdout
    assert json.loads(run("recommend", "--job", job_id, "--trial", "1", "--format", "json").stdout)["number"] == 1
    unknown = run("recommend", "--job", job_id, "--trial", "9")
    assert unknown.exit_code == 1
    assert f"{job_id}/9" in unknown.stderr
    assert run("recommend", "digits-mlp", "--trial", "1").exit_code == 2


@pytest.mark.usefixtures("url")
def test_watch_ends_with_the_evidence_and_the_way_to_the_config(sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    result = run("watch", job_id)
    assert result.exit_code == 0, result.output
    assert "\nUndecided: too few trials to tell Shampoo from AdamW. " in result.stdout
    assert result.stdout.splitlines()[-1] == f"`shampoo-tuner recommend --job {job_id}` prints the config."


@pytest.mark.processes
def test_an_impossible_address_of_the_service_is_refused() -> None:
    for url in ("ftp://x", "http://["):
        result = run("jobs", "--url", url)
        assert result.exit_code == 2
        assert "Invalid value for --url" in result.stderr
