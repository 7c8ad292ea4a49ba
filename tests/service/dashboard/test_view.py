"""Words and numbers for people."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from service.dashboard import view
from service.domain import Direction, JobState, Phase, TrialState
from service.evidence.best_values import BestTrial, number
from service.store.models import Job
from service.use_cases.progress import JobProgress

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
    assert number(value) == text


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_is_a_dash(value: float | None) -> None:
    assert number(value) == "–"


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


def _evidence(outcome: str, low: float | None, high: float | None) -> dict[str, Any]:
    """What the page reads of evidence: two configs and the baseline's, confirmed with two seeds."""

    def confirmed(number: int, mean: float | None) -> dict[str, Any]:
        results = [
            {"seed": 1, "number": 30 + number, "ending": "completed", "value": 0.1},
            {"seed": 2, "number": 40 + number, "ending": "failed (diverged)", "value": None},
        ]
        fields = {"number": number, "found_value": 0.09, "mean": mean, "standard_deviation": 0.01}
        return {**fields, "results": results if mean is None else results[:1]}

    result = {
        "seeds": [1, 3],
        "candidates": [confirmed(4, 0.1), confirmed(5, None)],
        "baseline": confirmed(6, None if low is None else 0.2),
        "confidence": 0.95,
        "improvement_low": low,
        "improvement_high": high,
    }
    return {"verdict": outcome, "improvement": 0.2, "best": {"number": 4}, "confirmation": result}


@pytest.mark.parametrize(
    ("outcome", "kind", "headline"),
    [
        ("better", "better", "Shampoo beats AdamW by 20.0%"),
        ("worse", "worse", "Shampoo falls short of AdamW by 20.0%"),
        ("equal", "equal", "Shampoo and AdamW are level"),
        ("undecided", "open", "2 new seeds do not tell Shampoo from AdamW"),
    ],
)
def test_the_verdict_of_a_confirmed_job_is_that_of_its_seeds(outcome: str, kind: str, headline: str) -> None:
    job = Job(state=JobState.SUCCEEDED, direction=Direction.MINIMIZE)
    evidence = _evidence(outcome, 0.1, 0.3)
    verdict = view.verdict(job, _progress(0.05, 0.1), LABELS, has_baseline=True, evidence=evidence)
    assert (verdict.kind, verdict.headline) == (kind, headline)
    assert verdict.detail == "Over 2 new seeds, the improvement lies between +10.0% and +30.0% (95% interval)."
    running = Job(state=JobState.RUNNING, direction=Direction.MINIMIZE)
    verdict = view.verdict(running, _progress(0.05, 0.1), LABELS, has_baseline=True, evidence=evidence)
    assert verdict.headline == "Shampoo leads AdamW by 50.0%"


def test_a_config_that_failed_with_a_new_seed_is_named() -> None:
    job = Job(state=JobState.SUCCEEDED, direction=Direction.MINIMIZE)
    evidence = _evidence("undecided", None, None)
    verdict = view.verdict(job, _progress(0.05, 0.1), LABELS, has_baseline=True, evidence=evidence)
    assert verdict.headline == "Shampoo and AdamW could not be compared over new seeds"
    assert verdict.detail == ("What failed: the config of trial 5 with seed 2, the config of trial 6 with seed 2.")


def test_the_table_of_seeds_has_a_row_for_each_config_and_a_gap_where_none_was_trained() -> None:
    table = view.seed_table(_evidence("better", 0.1, 0.3), LABELS)
    assert table is not None
    assert table.seeds == [1, 2]
    assert [(row.number, row.label, row.is_best, row.is_baseline) for row in table.rows] == [
        (4, "Shampoo", True, False),
        (5, "Shampoo", False, False),
        (6, "AdamW", False, True),
    ]
    assert [[result and result["number"] for result in row.results] for row in table.rows] == [
        [34, None],
        [35, 45],
        [36, None],
    ]
    assert table.numbers == {4, 5, 6, 34, 35, 36, 45}
    assert view.seed_table(None, LABELS) is view.seed_table({"verdict": "better"}, LABELS) is None
