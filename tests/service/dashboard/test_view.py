"""Words and numbers for people."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from service.dashboard import view
from service.domain import Direction, JobState, Phase, TrialState
from service.jobs import BestTrial, JobProgress
from service.store.models import Job

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LABELS = {Phase.SEARCH: "Shampoo", Phase.BASELINE: "AdamW"}


def _progress(best: float | None, baseline: float | None, trials: dict[TrialState, int] | None = None) -> JobProgress:
    return JobProgress(
        trials={state: (trials or {}).get(state, 0) for state in TrialState},
        phases={},
        num_trials=20,
        best=None if best is None else BestTrial(1, best),
        baseline_best=None if baseline is None else BestTrial(2, baseline),
        seconds_elapsed=None,
        seconds_left=None,
        device_hours=0.0,
    )


def _verdict(
    best: float | None,
    baseline: float | None,
    *,
    state: JobState = JobState.SUCCEEDED,
    direction: Direction = Direction.MINIMIZE,
    has_baseline: bool = True,
) -> view.Verdict:
    job = Job(state=state, direction=direction)
    return view.verdict(job, _progress(best, baseline), LABELS, has_baseline=has_baseline)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.101, "0.1010"), (0.08138, "0.08138"), (1, "1.000"), (12345, "12345"), (2.5e-7, "2.500e-07"), (1234, "1234")],
)
def test_values_show_four_significant_digits(value: float, text: str) -> None:
    assert view.number(value) == text


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_is_a_dash(value: float | None) -> None:
    assert view.number(value) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (9.96, "10 s"),
        (59.7, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3840, "1 h 04 min"),
        (180_000, "2 d 02 h"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float | None, text: str) -> None:
    assert view.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "just now"), (59, "just now"), (61, "1 min ago"), (7300, "2 h ago"), (200_000, "2 d ago")],
)
def test_moments_are_told_in_one_unit(seconds: float, text: str) -> None:
    assert view.ago(NOW - timedelta(seconds=seconds), NOW) == text


def test_a_bar_is_as_long_as_the_trials_that_have_begun() -> None:
    progress = _progress(None, None, {TrialState.COMPLETED: 10, TrialState.RUNNING: 2, TrialState.QUEUED: 3})
    assert view.bar(progress) == [
        view.BarSegment(TrialState.COMPLETED, 0.0, 50.0),
        view.BarSegment(TrialState.RUNNING, 50.0, 10.0),
    ]


def test_a_lower_loss_is_a_win() -> None:
    verdict = _verdict(0.08, 0.1)
    assert (verdict.kind, verdict.headline) == ("better", "Shampoo beats AdamW by 20.0%")
    assert verdict.detail == "Its best value is lower by 0.0200."


def test_a_higher_accuracy_is_a_win() -> None:
    verdict = _verdict(0.99, 0.9, direction=Direction.MAXIMIZE)
    assert (verdict.kind, verdict.headline) == ("better", "Shampoo beats AdamW by 10.0%")


def test_a_lost_comparison_is_said_plainly() -> None:
    verdict = _verdict(0.12, 0.1)
    assert (verdict.kind, verdict.headline) == ("worse", "Shampoo falls short of AdamW by 20.0%")
    assert verdict.detail == "Its best value is higher by 0.0200."


def test_an_unfinished_job_leads_or_trails() -> None:
    assert _verdict(0.08, 0.1, state=JobState.RUNNING).headline == "Shampoo leads AdamW by 20.0%"
    assert _verdict(0.12, 0.1, state=JobState.RUNNING).headline == "Shampoo trails AdamW by 20.0%"


def test_values_within_the_tolerance_of_recommendations_are_level() -> None:
    assert _verdict(0.1002, 0.1).kind == "equal"
    assert _verdict(0.1006, 0.1).kind == "worse"


def test_a_baseline_of_zero_is_compared_by_the_difference() -> None:
    assert _verdict(0.5, 0.0).headline == "Shampoo falls short of AdamW by 0.5000"
    assert _verdict(0.0, 0.0).kind == "equal"


def test_without_two_values_the_verdict_is_open() -> None:
    assert _verdict(None, 0.1, state=JobState.RUNNING).headline == "No Shampoo trial has completed yet"
    assert _verdict(None, 0.1, state=JobState.FAILED).headline == "No Shampoo trial completed"
    assert _verdict(0.1, None, state=JobState.RUNNING).headline == "No AdamW trial has completed yet"
    assert _verdict(0.1, None, has_baseline=False).headline == "No baseline was asked for"


def test_phases_are_called_by_the_optimizer_they_tune() -> None:
    own_space = {"optimizer": "sgd", "parameters": []}
    labels = view.phase_labels({"search_space": "shampoo", "baseline": {"search_space": own_space}}, [])
    assert labels == {Phase.SEARCH: "Shampoo", Phase.BASELINE: "SGD", Phase.CONFIRMATION: "Confirmation"}
    assert view.phase_labels({"search_space": "shampoo", "baseline": None}, [])[Phase.BASELINE] == "Baseline"
