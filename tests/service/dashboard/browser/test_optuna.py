"""The real `optuna-dashboard`, started as the README says, on a job: what it shows of it, and that it stays live."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from service.settings import ENV_PREFIX
from service.store.session import Database
from tests.service.dashboard.conftest import REBOUND, Watched, open_context
from tests.support.readmes import README, command_lines
from tests.support.service.stories.jobs import Story
from tests.support.waiting import PATIENCE_SECONDS, started


@pytest.fixture
def optuna_dashboard(sqlite_database: Database) -> Iterator[str]:
    """The address of `optuna-dashboard` on the test's database."""
    [command] = [words for words in command_lines(f"service/{README}") if "optuna-dashboard" in words]
    environment = {**os.environ, f"{ENV_PREFIX}DATABASE_URL": sqlite_database.url}
    arguments = [sys.executable, "-m", "service", *command[1:-1], "0"]
    assert command[-2:] == ["--port", "8080"]
    with started(arguments, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("optuna-dashboard is at http://127.0.0.1:"), line
        yield line.split()[3]


def _study(address: str, study_id: int) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(
        f"{address}/api/studies/{study_id}", timeout=PATIENCE_SECONDS, verify=False
    ).json()
    return found


def test_a_job_that_runs_is_seen_in_optunas_dashboard(
    sqlite_database: Database, browser: Browser, optuna_dashboard: str
) -> None:
    now = datetime.now(UTC) - timedelta(hours=2)
    story = Story(sqlite_database, now=now, budget={"num_trials": 32}, confirmation={"top_k": 2, "num_seeds": 4})
    for number in range(12):
        story.run(number, {8: 0.0733}.get(number))
    story.confirm(12, 8, 1, 0.0771)

    listed = httpx.get(f"{optuna_dashboard}/api/studies", verify=False).json()["study_summaries"]
    ids = {study["study_name"]: study["study_id"] for study in listed}
    assert list(ids) == [story.job_id, f"{story.job_id}/adamw", f"{story.job_id}/confirmation"]
    search = _study(optuna_dashboard, ids[story.job_id])
    assert search["objective_names"] == ["validation_loss"]
    assert len(search["trials"]) == 9
    [best] = search["best_trials"]
    assert best["values"] == [0.0733]
    assert {"key": "trial", "value": "8"} in best["user_attrs"]
    assert [value["step"] for value in best["intermediate_values"]] == list(range(10, 201, 10))
    assert next(parameter for parameter in best["params"] if parameter["name"] == "lr")["distribution"]["log"] is True
    diverged = next(trial for trial in search["trials"] if trial["state"] == "Fail")
    assert diverged["intermediate_values"][-1] == {"step": 40, "value": "nan"}

    context = open_context(browser, base_url=optuna_dashboard)
    watched = Watched(context.new_page())
    page = watched.page
    page.goto("/dashboard")
    expect(page.get_by_text(f"{story.job_id}/adamw")).to_be_visible()
    page.goto(f"/dashboard/studies/{ids[story.job_id]}")
    expect(page.get_by_text(f"Best Trial (number={best['number']})")).to_be_visible()
    expect(page.get_by_text("0.0733")).to_be_visible()
    for heading in ("Hyperparameter Importance", "Timeline", "Intermediate values"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    page.goto(f"/dashboard/studies/{ids[story.job_id]}/trials")
    expect(page.get_by_text("9 Trials")).to_be_visible()
    story.run(13, 0.0611)
    expect(page.get_by_text("10 Trials")).to_be_visible()
    context.close()
    watched.check(optuna_dashboard)
    [best] = _study(optuna_dashboard, ids[story.job_id])["best_trials"]
    assert (best["number"], best["values"]) == (9, [0.0611])

    rebound = httpx.get(f"{optuna_dashboard}/api/studies", headers={"Host": REBOUND}, verify=False)
    assert rebound.status_code == HTTPStatus.MISDIRECTED_REQUEST
    renamed = httpx.post(
        f"{optuna_dashboard}/api/studies/{ids[story.job_id]}/rename", json={"study_name": "mine"}, verify=False
    )
    assert renamed.is_server_error
    assert len(httpx.get(f"{optuna_dashboard}/api/studies", verify=False).json()["study_summaries"]) == 3
