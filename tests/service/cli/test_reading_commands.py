"""Commands that show jobs, trials, workloads and search spaces, against the real API."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import httpx
import pytest
import yaml
from rich.console import Console

from service.cli.reading import live_trials
from service.cli.reading.live_trials import LiveTrials
from service.cli.reading.trials_table import sparkline
from service.cli.reading.watching import watch
from service.client import Client
from service.store.session import Database
from service.use_cases.run import store_insights
from tests.service.evidence.test_insights import INSIGHTS
from tests.support.service.commands import run
from tests.support.service.live import finished_job
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, measure, submit


def test_a_job_is_shown_with_its_verdict_and_best_config(url: str, sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    shown = run("show", job_id)
    assert shown.exit_code == 0, shown.output
    for part in ("succeeded", "4 of 4", "0.2000", "best, trial 2: ", f"{url}/jobs/{job_id}", "recommend --job"):
        assert part in shown.stdout
    assert "baseline" in shown.stdout
    waiting = run("show", submit(sqlite_database)).stdout
    told = ("queued", "shampoo-tuner watch", "best so far, trial", "recommend --job", "--state failed")
    assert [part in waiting for part in told] == [True, True, False, False, False]
    assert run("show", "job_nope").exit_code == 1


@pytest.mark.usefixtures("url")
def test_trials_are_listed_in_the_order_asked_for(sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)

    def numbers(*options: str) -> list[str]:
        listed = run("trials", job_id, *options)
        assert listed.exit_code == 0, listed.output
        return [line.split()[0] for line in listed.stdout.splitlines()[1:]]

    assert numbers() == ["0", "1", "2", "3"]
    assert numbers("--order-by", "value") == ["2", "3", "1", "0"]
    assert numbers("--order-by", "value", "--limit", "1", "--phase", "baseline") == ["1"]
    assert numbers("--value", "..0.3") == ["2", "3"]
    assert numbers("--parameter", "lr=0..10", "--order-by", "phase", "--limit", "2")[0] in {"0", "1", "2", "3"}
    assert "has no parameter 'speed'" in run("trials", job_id, "--parameter", "speed=1").stderr
    assert "no trials" in run("trials", job_id, "--state", "failed").stderr
    assert "order_by: 'beauty' must be number" in run("trials", job_id, "--order-by", "beauty").output
    shown = run("trial", job_id, "2")
    assert "validation_loss, curve  " in shown.stdout
    assert "Completed all 40 steps." in shown.stdout
    assert f"shampoo-tuner logs {job_id} 2" in shown.stdout
    assert "trial" in run("trial", job_id, "9").stderr


@pytest.mark.usefixtures("url")
def test_workloads_and_search_spaces_are_listed() -> None:
    assert "digits-mlp" in run("workloads").stdout
    assert "shampoo" in run("spaces").stdout
    space = yaml.safe_load(run("spaces", "adamw").stdout)["search_space"]
    assert space["optimizer"] == "adamw"
    refused = run("spaces", "adam")
    assert (refused.exit_code, "known: " in refused.stderr) == (1, True)
    assert refused.stderr.endswith(": did you mean 'adamw'?\n")


def test_options_that_are_misspelt_are_answered_with_what_was_meant() -> None:
    for command, meant in (
        (("recommend", "--job", "job_1", "--format", "pyton"), "python"),
        (("jobs", "--state", "runing"), "running"),
    ):
        told = " ".join(run(*command).stderr.replace("│", " ").split())
        assert f"did you mean '{meant}'?" in told


@pytest.mark.slow
def test_json_is_what_the_api_answers(url: str, sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    for command, path in (
        (("show", job_id), f"/v1/jobs/{job_id}"),
        (("trial", job_id, "1"), f"/v1/jobs/{job_id}/trials/1"),
        (("recommend", "--job", job_id), f"/v1/jobs/{job_id}/recommendation"),
    ):
        assert json.loads(run(*command, "--json").stdout) == httpx.get(url + path, verify=False).json()
    for words, path in (
        ("jobs", "/v1/jobs?view=full"),
        (f"trials {job_id}", f"/v1/jobs/{job_id}/trials?view=full"),
        ("workloads", "/v1/workloads"),
        ("webhook list", "/v1/webhooks"),
        ("spaces", "/v1/search-spaces"),
    ):
        assert json.loads(run(*words.split(), "--json").stdout) == {
            "items": httpx.get(url + path, verify=False).json()["items"]
        }
    followed = run("watch", job_id, "--json")
    assert [json.loads(line)["state"] for line in followed.stdout.splitlines()] == ["succeeded"]
    queued = submit(sqlite_database)
    for steering, field, value in (
        (("priority", queued, "-5"), "priority", -5),
        (("notes", queued, "good"), "notes", "good"),
        (("pause", queued), "state", "paused"),
        (("resume", queued), "state", "queued"),
        (("try", queued, "--set", "lr=0.01"), "number", 0),
        (("stop", queued, "0"), "state", "cancelled"),
        (("retry", queued, "0"), "state", "queued"),
        (("note", queued, "0", "odd"), "note", "odd"),
        (("budget", queued, "num_trials=6"), "id", queued),
        (("clone", queued, "--set", "name=b"), "cloned_from", queued),
        (("archive", queued), "id", queued),
        (("unarchive", queued), "archived_at", None),
        (("cancel", queued), "state", "cancelled"),
    ):
        answered = run(*steering, "--json")
        assert answered.exit_code == 0, answered.output
        assert json.loads(answered.stdout)[field] == value
    assert run("notes", queued).stdout == "good\n"
    assert run("note", queued, "0").stdout == "odd\n"
    assert ["note", "odd"] in [line.split() for line in run("trial", queued, "0").stdout.splitlines()]
    assert run("note", queued, "0", "").stdout == f"trial 0 of job {queued} has no note\n"
    assert run("note", queued, "0").output == "no note\n"
    assert json.loads(run("delete", queued, "--json").stdout) == {"id": queued}


def test_a_curve_is_a_block_for_each_value() -> None:
    assert sparkline([]) == ""
    assert sparkline([1.0, 1.0]) == "▁▁"
    assert sparkline([0.0, 7.0, math.nan, 3.5]) == "▁█ ▅"
    assert sparkline([math.nan]) == " "
    assert sparkline([float(step) for step in range(100)], columns=4) == "▁▃▆█"


def test_a_terminal_shows_live_trials_with_their_curves(
    url: str, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    monkeypatch.setattr(live_trials, "LOOK_SECONDS", 0.0)
    with Client(url) as client:
        trials, told = LiveTrials(client), []
        for step, loss in ((10, 0.5), (20, 0.4), (30, 0.1)):
            measure(sqlite_database, lease, 0, step, loss)
            console = Console(file=io.StringIO(), width=120, force_terminal=False)
            console.print(trials.table(client.job(lease.job_id), width=120))
            told.append(console.file.getvalue())  # type: ignore[attr-defined] # it is the StringIO
        assert "▁" in told[0]
        assert "█▆▁" in told[-1]
        client.cancel(lease.job_id)
        screen = io.StringIO()
        watch(client, lease.job_id, Console(file=screen, width=120, force_terminal=True))
    assert "cancelled" in screen.getvalue()


@pytest.mark.usefixtures("url")
def test_what_mattered_is_shown_by_side_and_as_the_api_answers(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    assert run("insights", lease.job_id).exit_code == 1
    with sqlite_database.writing() as session:
        store_insights(session, lease, INSIGHTS, now=NOW)
    shown = run("insights", lease.job_id)
    assert shown.exit_code == 0, shown.output
    for part in (
        "search: 30 trials (20 completed",
        "80% (70% to 90%)",
        "4 of 5",
        "well: rank correlation 0.70",
        "- precondition_frequency 10 → 50: validation_loss +0.2%",
        "step measured in 26 trials",
    ):
        assert part in " ".join(shown.stdout.split())
    assert json.loads(run("insights", lease.job_id, "--json").stdout)["sides"][0]["parameters"][0]["name"] == "lr"


@pytest.mark.usefixtures("url")
def test_a_file_that_cannot_be_written_is_one_line(sqlite_database: Database, tmp_path: Path) -> None:
    job_id = finished_job(sqlite_database)
    for command in (("export", job_id), ("report", job_id)):
        result = run(*command, "-o", str(tmp_path / "none" / "file"))
        assert result.exit_code == 1
        assert result.stderr.startswith(f"shampoo-tuner: {tmp_path}/none/file")
        assert result.stderr.endswith(": No such file or directory\n")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_an_impossible_port_of_the_service_is_refused_before_it_is_asked(port: str) -> None:
    result = run("jobs", "--url", f"http://x:{port}")
    assert result.exit_code == 2
    told = f"Invalid value for --url: 'http://x:{port}': its port must be from 1 to 65535, got '{port}'"
    assert told in " ".join(result.stderr.replace("│", " ").split())
