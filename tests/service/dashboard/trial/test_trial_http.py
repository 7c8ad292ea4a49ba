"""Trials of every kind have a page."""

from __future__ import annotations

import html
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from service.clock import utc_text
from service.domain import CutShort, FailureReason, Phase, TrialState
from service.store.session import Database
from service.use_cases.run import finish_job
from tests.support.service import live
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claimed_job,
    end_trial,
    fork_trial,
    measure,
    measure_curve,
    store_trials,
)
from tests.support.waiting import PATIENCE_SECONDS

get = partial(httpx.get, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)


def page_of(address: str, job_id: str, number: int, query: str = "") -> str:
    """A trial's page, as text; its chart is there, too."""
    answer = get(f"{address}/jobs/{job_id}/trials/{number}{query}")
    assert answer.status_code == 200, answer.text
    assert get(f"{address}/v1/jobs/{job_id}/trials/{number}/plots/curve").status_code == 200
    return html.unescape(answer.text)


@pytest.mark.slow
def test_a_trial_of_each_state_says_what_became_of_it(address: str, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    failed: list[dict[str, Any]] = [
        {"state": TrialState.FAILED, "reason": reason, "detail": "<b>why</b>"} for reason in FailureReason
    ]
    others: list[dict[str, Any]] = [
        {"state": TrialState.QUEUED, "finished_at": None, "step": 0},
        {"state": TrialState.CANCELLED, "step": 0},
    ]
    store_trials(sqlite_database, lease.job_id, [*failed, *others])
    for number in range(len(failed)):
        assert "<b>why</b>" in page_of(address, lease.job_id, number)
        assert "<b>why</b>" not in get(f"{address}/jobs/{lease.job_id}/trials/{number}").text
    assert "Waits for its turn" in page_of(address, lease.job_id, len(failed))
    assert "Cancelled before it was measured" in page_of(address, lease.job_id, len(failed) + 1)


def test_a_fork_and_its_parent_name_each_other(address: str, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database, pruner={"name": "pbt", "population": 2}, budget={"num_trials": 8})
    begin_trial(sqlite_database, lease, 0)
    measure_curve(sqlite_database, lease, 0, {10: 0.9, 20: 0.8})
    fork_trial(sqlite_database, lease, 1, parent=0, step=20, lr=0.002)
    assert "Began from the checkpoint that" in page_of(address, lease.job_id, 1)
    assert "from step 20" in page_of(address, lease.job_id, 0)


def test_several_objectives_and_baselines_stand_on_the_page(address: str, sqlite_database: Database) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}]
    lease = claimed_job(sqlite_database, baselines=[{}, {"search_space": "muon"}], objectives=objectives)
    for number, optimizer, loss in ((0, None, 0.3), (1, "adamw", 0.5), (2, "muon", 0.4)):
        phase = Phase.SEARCH if optimizer is None else Phase.BASELINE
        begin_trial(sqlite_database, lease, number, phase, optimizer=optimizer)
        measure(sqlite_database, lease, number, 40, loss)
        end_trial(sqlite_database, lease, number)
    page = page_of(address, lease.job_id, 0)
    assert "validation_accuracy, <span" in page
    assert "Best of the Muon" in page
    assert "The dots are the only completed Muon trial." in page
    assert "<h1>Trial 1 " in page_of(address, lease.job_id, 1)  # the best of AdamW, if not of all baselines


def test_choices_that_there_are_not_are_as_if_nothing_was_chosen(address: str, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    measure(sqlite_database, lease, 0, 10, 0.5)
    page = page_of(address, lease.job_id, 0, "?metric=nonesuch&x=miles&scale=odd")
    assert '<h2 id="curve-title" data-live>validation_loss</h2>' in page
    assert page.count('aria-current="true"') == 3
    refused = get(f"{address}/v1/jobs/{lease.job_id}/trials/0/plots/curve?metric=train_los")
    assert refused.status_code == 422
    assert "train_loss" in refused.text
    assert get(f"{address}/v1/jobs/{lease.job_id}/trials/0/plots/nonesuch").status_code == 404


def test_an_open_page_is_told_when_nothing_changed(address: str, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    parts = get(f"{address}/jobs/{lease.job_id}/trials/0?parts=true")
    assert "<dialog" not in parts.text
    again = {"If-None-Match": parts.headers["ETag"]}
    assert get(f"{address}/jobs/{lease.job_id}/trials/0?parts=true", headers=again).status_code == 304
    measure(sqlite_database, lease, 0, 10, 0.5)
    assert get(f"{address}/jobs/{lease.job_id}/trials/0?parts=true", headers=again).status_code == 200


def test_a_trial_that_the_budget_cut_off_says_until_when_it_goes_on_from_its_checkpoints(
    sqlite_database: Database,
) -> None:
    lease = claimed_job(sqlite_database, baselines=[], budget={"num_trials": 4, "wall_clock_seconds": 20})
    begin_trial(sqlite_database, lease, 0)
    with sqlite_database.writing() as session:
        finish_job(session, lease, failure=None, cut_short=CutShort.BUDGET, now=NOW)
    later = NOW + timedelta(days=1)
    for days, words in ((2, "the last ones are kept until"), (0.5, "If the job goes on, it begins again.")):
        with live.running(sqlite_database, clock=lambda: later, checkpoints_kept_days=days) as address:
            page = page_of(address, lease.job_id, 0)
        assert words in page
        assert f"kept until {utc_text(NOW + timedelta(days=days))}" in page
