"""Commands that help to begin: a first job file, checks of an installation, completion."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from sqlalchemy import text

from service.cli.commands import app
from service.store.session import VERSION_TABLE, Database
from service.use_cases.leases import register_worker
from tests.service.cli.conftest import read_job
from tests.support.service.commands import run
from tests.support.service.scenarios import submit
from trainers.installation.distribution import version


@pytest.mark.processes
def test_a_first_job_file_is_accepted_as_it_is(url: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    written = run("init", "digits-mlp", "-o", str(path))
    assert written.exit_code == 0, written.output
    submitted = run("submit", str(path))
    assert submitted.exit_code == 0, submitted.output
    assert read_job(url, submitted.stdout.strip()).workload == "digits-mlp"
    # Its defaults, when they are no comments any more, are what they were.
    lines = path.read_text().splitlines()
    bare = "\n".join(line.replace("#", "", 1) for line in lines if not line.lstrip().startswith("# "))
    path.write_text(bare)
    assert set(yaml.safe_load(bare)) > {"workload", "budget", "training", "resources", "notes"}
    again = run("submit", str(path))
    assert again.exit_code == 0, again.output
    specifications = [read_job(url, one.stdout.strip()).specification for one in (submitted, again)]
    assert specifications[0] == specifications[1]
    assert "is there already; --overwrite" in run("init", "digits-mlp", "-o", str(path)).stderr
    assert "no workload 'digits'; known: " in run("init", "digits").stderr
    assert run("init", "digits-mpl").stderr.endswith(", or your own as module:Class: did you mean 'digits-mlp'?\n")
    elsewhere = run("init", "my_model:Mine")
    assert yaml.safe_load(elsewhere.stdout)["workload"] == {"name": "my_model:Mine"}
    assert elsewhere.stderr.startswith("the options of my_model:Mine are not in it, as it is not to be had here: ")


@pytest.mark.processes
@pytest.mark.usefixtures("url")
def test_a_first_job_file_says_what_each_field_means_and_which_options_there_are() -> None:
    text = run("init", "digits-mlp").stdout
    assert "  # Trials without improvement after which a phase starts no more: those begun after its best one" in text
    assert "  # Ranks of a trial's process group.\n  #workers_per_trial: 1\n" in text
    assert "  # Optimizer steps of a full trial; null: those of `num_examples`" in text
    assert "  # options:\n    # hidden_sizes: " in text
    folder = run("init", "image-folder").stdout
    assert yaml.safe_load(folder)["workload"]["options"] == {"path": None}
    assert re.search(r"^    path: null  # required: \w+", folder, re.MULTILINE)
    own = run("init", "tests.support.trainers.broken_workloads:RefusesItsDefaults").stdout
    assert "  # options:\n    # scale: -1.0  # " in own


@pytest.mark.usefixtures("url")
def test_faults_of_a_job_file_name_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("workload:\n  name: digit-mlp\nbudget:\n  num_trials: -1\nsampler: {name: 7}\n")
    refused = run("submit", str(path))
    assert refused.exit_code == 1
    assert f"{path}:2:3: workload.name: unknown workload 'digit-mlp'" in refused.stderr
    assert "did you mean 'digits-mlp'?" in refused.stderr
    assert f"{path}:4:3: budget.num_trials: must be greater than or equal to 1" in refused.stderr
    assert f"{path}:5:11: sampler.name" in refused.stderr
    assert "must be 'auto', 'tpe', " in refused.stderr
    heading, *faults = refused.stderr.splitlines()
    assert heading == f"shampoo-tuner: {len(faults)} faults:"
    assert all(fault.startswith(f"  {path}:") for fault in faults)
    assert f"{path}:4" not in run("submit", str(path), "--set", "budget.num_trials=-2").stderr


def test_a_job_is_read_from_standard_input_once(url: str) -> None:
    submitted = run("submit", "-", "--set", "budget.num_trials=8", stdin="\ufeffworkload:\r\n  name: digits-mlp\r\n")
    assert submitted.exit_code == 0, submitted.output
    job = read_job(url, submitted.stdout.strip())
    assert (job.workload, job.specification.budget.num_trials) == ("digits-mlp", 8)
    refused = run("submit", "-", stdin="workload:\n  name: digits-mlp\nbudget:\n  num_trials: -1\n")
    assert refused.exit_code == 1
    assert refused.stderr.startswith(
        "shampoo-tuner: <stdin>:4:3: budget.num_trials: must be greater than or equal to 1"
    )
    for given, told in (
        (b"\xff", "is no text: its byte 1 is not UTF-8"),
        ("", "must hold an object with a `workload`, it is empty"),
    ):
        unreadable = run("submit", "-", stdin=given)
        assert unreadable.exit_code == 1
        assert unreadable.stderr.startswith("shampoo-tuner: <stdin>: ")
        assert told in unreadable.stderr


@pytest.mark.usefixtures("url")
def test_faults_say_what_stands_there_and_what_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("workload: digits-mlp\nbudget: {num_trials: lots}\ntags: {run: 7}\nsampler: {name: bayes}\n")
    _, *faults = run("submit", str(path)).stderr.splitlines()
    told = {fault.split(": ", 2)[1]: fault.split(": ", 2)[2] for fault in faults}
    assert told["workload"] == 'must be an object, got \'digits-mlp\': write {"name": "digits-mlp"}'
    assert told["budget.num_trials"] == "must be a valid integer, got 'lots'"
    assert told["tags.run"] == "must be a valid string, got 7: in quotes it is one"
    assert told["sampler.name"] == (
        "must be 'auto', 'tpe', 'gp', 'cmaes', 'nsga2', 'nsga3', 'quasi', 'random' or 'grid', or must be a class of "
        "your own as module:Class: did you mean 'cmaes'?"
    )


def test_doctor_has_a_line_for_each_part(sqlite_database: Database, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    database_url = sqlite_database.engine.url.render_as_string(hide_password=False)
    options = ("--data-dir", str(tmp_path), "--database-url", database_url)
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    found = run("doctor", *options)
    parts = {line.split()[1]: line.split()[0] for line in found.stdout.splitlines()}
    assert {"python", "torch", "service", "data", "database", "worker", "ray", "gpu"} <= parts.keys()
    assert (parts["python"], parts["database"], parts["worker"]) == ("ok", "ok", "--")
    assert "is at revision" in found.stdout
    as_json = json.loads(run("doctor", "--json", *options).stdout)["items"]
    health = {each["part"]: each["health"] for each in as_json}
    assert (health["python"], health["database"], health["worker"]) == ("ok", "ok", "absent")
    submit(sqlite_database)
    job_id = submit(sqlite_database)
    with sqlite_database.writing() as session:
        session.execute(text("UPDATE jobs SET specification = '{' WHERE id = :job"), {"job": job_id})
    (unread,) = (line for line in run("doctor", *options).stdout.splitlines() if line.split()[1] == "job")
    assert unread.startswith(f"BROKEN  job          {job_id} cannot be read")
    tmp_path.chmod(0o755)
    broken = run("doctor", *options)
    assert (broken.exit_code, "BROKEN  data" in broken.stdout) == (1, True), broken.stdout
    with sqlite_database.writing() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    newer = run("doctor", *options)
    assert "at revision 9999: the database is of a newer version of shampoo-tuner" in newer.stdout
    away = run("doctor", "--database-url", "postgresql+psycopg://u:secret@127.0.0.1:1/x")
    assert (away.exit_code, "BROKEN  database" in away.stdout, "secret" in away.stdout) == (1, True, False)


def _told_of_api(*arguments: str) -> str:
    return next(line for line in run("doctor", *arguments).stdout.splitlines() if line.split()[1] == "api")


def test_doctor_asks_the_service_that_other_commands_ask(
    url: str, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = f"api          {url} answers: version {version()}"
    assert _told_of_api() == f"--      {answers}; no worker is alive"
    with sqlite_database.writing() as session:
        register_worker(session, host="elsewhere", pid=1, now=datetime.now(UTC))
    assert _told_of_api() == f"ok      {answers}; 1 worker alive"
    monkeypatch.delenv("SHAMPOO_TUNER_URL")
    assert _told_of_api("--url", url) == f"ok      {answers}; 1 worker alive"
    with sqlite_database.writing() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    not_ready = _told_of_api("--url", url)
    assert not_ready.startswith(f"BROKEN  {answers}; it is not ready: migrations: the database is of a newer version")


def test_doctor_names_a_service_that_does_not_answer_where_it_was_said_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHAMPOO_TUNER_URL", "http://127.0.0.1:9")
    assert _told_of_api("--data-dir", str(tmp_path / "none")).startswith(
        "BROKEN  api          no service answers at http://127.0.0.1:9 ("
    )
    assert run("doctor", "--data-dir", str(tmp_path / "none")).exit_code == 1


def test_doctor_finds_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=2**20))
    found = run("doctor", "--data-dir", str(tmp_path))
    assert found.exit_code == 1
    assert "BROKEN  data         disk: 1 MiB are free, and 64 needed" in found.stdout


def test_completion_is_printed_and_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "_SHAMPOO_TUNER_COMPLETE" in run("completion", "bash").stdout
    assert run("completion", "dos").exit_code == 2
    monkeypatch.setenv("_SHAMPOO_TUNER_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "shampoo-tuner tri")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        app(prog_name="shampoo-tuner", args=[])
    assert capsys.readouterr().out.split() == ["trials", "trial"]
