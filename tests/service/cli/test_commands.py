"""The commands, against the real API."""

from __future__ import annotations

import json
import re
from math import isqrt
from pathlib import Path
from time import sleep

import httpx
import pytest
import yaml
from typer.testing import Result

from service.cli.asking import checking_job
from service.cli.terminal import progress_line
from service.domain import JobState, Phase
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.estimating.machine_memory import memory_of_this_machine
from service.use_cases.run import finish_job
from tests.service.cli.conftest import read_job
from tests.support.service.commands import in_one_line, run
from tests.support.service.identities import built_identity
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import (
    NOW,
    claimed_job,
    repeat_trial,
    run_trial,
    specification,
    submit,
)
from trainers.installation.distribution import version


def test_the_version_is_told_alone() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"{version()}\n")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (
            ("jobs", "--url", "example.org:8730"),
            2,
            "Invalid value for --url: 'example.org:8730' must begin with http:// or https:// and name a host",
        ),
        (("jobs", "--url", "http://"), 2, "'http://' must begin with http:// or https:// and name a host"),
        (("jobs", "--url", "http://[::1"), 2, "Invalid value for --url: 'http://[::1': Invalid IPv6 URL"),
        (("clone", "job_1", "--set", "budget"), 1, "budget: must be FIELD=VALUE, e.g. budget.num_trials=8"),
        (
            ("clone", "job_1", "--set", "budget..num_trials=8"),
            1,
            "budget..num_trials: is no path like budget.num_trials or parameters[0].low",
        ),
        (
            ("recommend", "my-mlp", "--job", "job_1"),
            2,
            "Invalid value for NAME: give either a name, or --fingerprint, or --job",
        ),
        (("recommend",), 2, "give either a name, or --fingerprint, or --job"),
    ],
)
def test_a_wrong_argument_is_named_before_the_service_is_asked(
    arguments: tuple[str, ...], status: int, told: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert told in in_one_line(result.stderr)


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
    assert result.stderr.endswith("; `shampoo-tuner serve --port 1` starts one\n")
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
    assert re.search(r"0\.3325\*\s+0\.7025\*", listed)
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
    pages = [
        re.sub(r"<[^>]*>|\s+", " ", httpx.get(url + path, verify=False).text) for path in ("/", f"/jobs/{lease.job_id}")
    ]
    for page in [re.sub(" +", " ", page) for page in pages]:
        assert f" {best} mean of 2 new seeds" in page
        assert f" {baseline} mean of 2 new seeds" in page


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
        assert memory[2].startswith("No memory limit is set (resources.memory_per_worker): the machine has ")
        assert memory[2].endswith("is not launched unless `resources.beyond_memory` is true.")
    hopeless = run("submit", job_file, "--dry-run", "--set", "resources.memory_per_worker=100000")
    if "cannot be predicted" not in hopeless.stdout:
        assert hopeless.exit_code == 1
        assert "NOTHING FITS: the search of such a job would train nothing." in hopeless.stdout
    refused = run("submit", job_file, "--dry-run", "--set", "search_space=adam")
    assert refused.exit_code == 1
    assert "search_space: unknown preset 'adam'" in refused.stderr
    assert "no jobs" in run("jobs").stderr


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize(
    ("option", "workload", "told"),
    [
        ("", "broken_workloads:Raises", "A STEP FAILS: "),
        ("--json", "broken_workloads:Raises", '"step_fails": true'),
        ("", "picky_model:FindsNoData", "THE WORKLOAD CANNOT BE BUILT: its code raised FileNotFoundError: "),
        ("--json", "picky_model:FindsNoData", '"construction_fails": true'),
    ],
)
def test_a_dry_run_that_says_that_trials_will_fail_exits_with_1(
    sqlite_database: Database, tmp_path: Path, option: str, workload: str, told: str
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"workload: {{name: 'tests.support.trainers.{workload}'}}\n")
    with running(sqlite_database, allow_code=True, data_are_here=True) as url:
        result = run("submit", str(job), "--dry-run", "--url", url, *filter(None, [option]))
    is_told = told in result.stdout
    assert is_told or "cannot be predicted" in result.stdout  # a slow machine gives up
    assert result.exit_code == int(is_told), result.output


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_submit_warns_of_a_workload_that_cannot_be_built_and_of_trials_that_do_not_fit_together(
    sqlite_database: Database, tmp_path: Path
) -> None:
    without_data, wide = tmp_path / "without_data.yaml", tmp_path / "wide.yaml"
    without_data.write_text("workload: {name: 'tests.support.trainers.picky_model:FindsNoData'}\n")
    width = 1 + isqrt(memory_of_this_machine() // (90 * 2 * 4))  # the weights and gradients of 90 trials, in float32
    wide.write_text(
        f"workload: {{name: digits-mlp, options: {{width: {width}, depth: 2}}}}\nbaselines: []\n"
        "resources: {cpus_per_worker: 0.01, parallel_trials: 90}\n"
    )
    with running(sqlite_database, allow_code=True, data_are_here=True) as url:
        submitted = run("submit", str(without_data), "--url", url)
        cloned = run("clone", submitted.stdout.strip(), "--url", url)
        too_many = run("submit", str(wide), "--json", "--url", url)
        told = run("submit", str(wide), "--url", url)
    begins = "warning: THE WORKLOAD CANNOT BE BUILT: its code raised FileNotFoundError: [Errno 2] "
    for result in (submitted, cloned):
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("job_")
        assert begins in result.stderr
        assert "'/nowhere/data.csv'" in result.stderr
    (warning,) = json.loads(too_many.stdout)["warnings"]
    assert warning.startswith("TOO LARGE TOGETHER: 90 trials at once need about ")
    assert f"warning: {warning}" in told.stderr


def _submitted(name: str, *options: str, database: Database, directory: Path) -> Result:
    """The end of `submit` for a job of one of `tests.support.trainers`' classes, where trials train beside the API."""
    job = directory / "job.yaml"
    job.write_text(f"workload: {{name: 'tests.support.trainers.{name}'}}\n")
    with running(database, allow_code=True, data_are_here=True) as url:
        return run("submit", str(job), *options, "--url", url)


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize("option", [(), ("--dry-run",)])
def test_a_workload_without_training_examples_is_refused(
    sqlite_database: Database, tmp_path: Path, option: tuple[str, ...]
) -> None:
    result = _submitted("wrong_kinds:FindsNoExamples", *option, database=sqlite_database, directory=tmp_path)
    assert result.exit_code == 1, result.output
    assert "workload.options: FindsNoExamples has no training examples (num_train_examples is 0)" in result.stderr


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize("option", [(), ("--dry-run",)])
def test_a_check_that_takes_long_says_what_the_service_does(
    sqlite_database: Database, tmp_path: Path, option: tuple[str, ...]
) -> None:
    result = _submitted("broken_workloads:TakesLongToBuild", *option, database=sqlite_database, directory=tmp_path)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("the service checks the job: ")
    assert "the service checks" not in result.stdout


def test_who_waits_for_a_check_is_told_again_that_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with checking_job(after_seconds=0.01, again_seconds=0.01):
        sleep(1.0)
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("the service checks the job: ")
    assert second == "still checking, for 0 s now ..."


@pytest.mark.usefixtures("url")
def test_recommend_says_of_a_failed_job_why_it_has_none(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    running = run("recommend", "--job", lease.job_id)
    assert f"no recommendation of the running job '{lease.job_id}'\n" in running.stderr
    with sqlite_database.writing() as session:
        finish_job(session, lease, now=NOW, failure="trial 0: no such file: data.csv")
    failed = run("recommend", "--job", lease.job_id)
    assert failed.exit_code == 1
    told = f"no recommendation of the failed job '{lease.job_id}': trial 0: no such file: data.csv\n"
    assert told in failed.stderr


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
    refused = run("recommend", "--job", job_id, "--trial", "0", "--format", "torchrun")
    assert refused.exit_code == 2
    assert "must be python, json or yaml with --trial, got torchrun" in in_one_line(refused.stderr)


@pytest.mark.slow
@pytest.mark.usefixtures("url")
def test_recommend_tries_a_name_as_a_models_and_then_as_a_workloads_and_says_which(sqlite_database: Database) -> None:
    old = finished_job(sqlite_database)
    identity = built_identity(specification())
    job_id = finished_job(sqlite_database, model="my-mlp", identity=identity)
    by_model, by_workload = run("recommend", "my-mlp"), run("recommend", "digits-mlp")
    by_fingerprint = run("recommend", "--fingerprint", identity.fingerprint)
    assert by_model.stdout == by_workload.stdout == by_fingerprint.stdout
    assert by_model.stderr == f"model my-mlp: config provisional, of job {job_id}\n"
    told = f"workload digits-mlp: config provisional, of job {job_id}; 2 different models have"
    assert by_workload.stderr.startswith(told)
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


@pytest.mark.processes
def test_an_impossible_address_of_the_service_is_refused() -> None:
    for url in ("ftp://x", "http://["):
        result = run("jobs", "--url", url)
        assert result.exit_code == 2
        assert "Invalid value for --url" in result.stderr
