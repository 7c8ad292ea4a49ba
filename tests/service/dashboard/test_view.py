"""Words and numbers for people, and the templates that read them."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from service.dashboard import rendering, times
from service.dashboard.job import view
from service.domain import Direction, FailureReason, JobState, Phase, TrialState
from service.evidence.best_values import BestTrial
from service.evidence.caveat_kinds import Caveat, CaveatKind
from service.evidence.finished_trial import TrialEnding
from service.evidence.health.cards import HealthKind
from service.evidence.in_words.words import Answer
from service.evidence.types import (
    ConfirmationResult,
    ConfirmedConfig,
    Evidence,
    EvidenceStatus,
    ReachedBaseline,
    SeedResult,
    Verdict,
    Winner,
)
from service.store.repositories.of_trials.trial_columns import UnfinishedTrial
from service.use_cases.progress import JobProgress
from tests.support.service.pages.template_types import Reader, pages
from trainers.config import OptimizerConfig, OptimizerName, TrialConfig

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LABELS = {Phase.SEARCH: "Shampoo", Phase.BASELINE: "AdamW"}


def _progress(best: float | None, baseline: float | None, trials: dict[TrialState, int] | None = None) -> JobProgress:
    return JobProgress(
        trials={state: (trials or {}).get(state, 0) for state in TrialState},
        num_paused=0,
        phases={},
        num_trials=20,
        num_steps=0,
        max_steps=0,
        best=None if best is None else BestTrial(1, best),
        baseline_best=None if baseline is None else BestTrial(2, baseline),
        baseline_optimizer=None,
        seconds_elapsed=None,
        seconds_left=None,
        device_hours=0.0,
        cost=None,
    )


def _answer(
    best: float | None,
    baseline: float | None,
    *,
    state: JobState = JobState.SUCCEEDED,
    direction: Direction = Direction.MINIMIZE,
    has_baseline: bool = True,
    evidence: Evidence | None = None,
) -> Answer:
    progress = _progress(best, baseline)
    return view.answer(state, direction, progress, LABELS, has_baseline=has_baseline, evidence=evidence)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "just now"), (59, "just now"), (61, "1 min ago"), (7300, "2 h ago"), (200_000, "2 d ago")],
)
def test_moments_are_told_in_one_unit(seconds: float, text: str) -> None:
    assert times.ago(NOW - timedelta(seconds=seconds), NOW) == text


def test_a_bar_is_as_long_as_the_trials_that_have_begun() -> None:
    progress = _progress(None, None, {TrialState.COMPLETED: 10, TrialState.RUNNING: 2, TrialState.QUEUED: 3})
    assert view.bar_of(progress) == [
        view.BarSegment(TrialState.COMPLETED, 0.0, 50.0),
        view.BarSegment(TrialState.RUNNING, 50.0, 10.0),
    ]


def test_advice_leads_only_where_its_reader_may_follow_it() -> None:
    for kind in HealthKind:
        places = [place.name for place in view.places_of(kind, "job_1", may_clone=True)]
        assert places[-1] == ("Change budget" if kind is HealthKind.STILL_IMPROVING else "Edit and clone")
        reading = [place.name for place in view.places_of(kind, "job_1", may_clone=False)]
        assert reading == [name for name in places if name in ("Failed trials", "Pruned trials")]
    edge = view.places_of(HealthKind.AT_THE_EDGE, "job_1", may_clone=True)
    assert len(edge) == 1, "the side at its edge may be any"


def test_a_caveat_leads_to_its_trial_and_to_where_it_is_mended() -> None:
    def leads(kind: CaveatKind, trial: int | None = None, *, may_clone: bool = True) -> list[str]:
        caveat = Caveat(kind, "So it is.", trial)
        return [place.address for place in view.places_of_caveat(caveat, "job_1", may_clone=may_clone)]

    assert leads(CaveatKind.ONE_SEED) == ["/jobs/new?clone=job_1"]
    assert leads(CaveatKind.AT_THE_EDGE, 3) == ["/jobs/job_1/trials/3", "/jobs/new?clone=job_1"]
    assert leads(CaveatKind.AT_THE_EDGE, 3, may_clone=False) == ["/jobs/job_1/trials/3"]
    assert leads(CaveatKind.ENDED_EARLY) == ["#change-budget"]
    assert leads(CaveatKind.DATA, 4) == ["/jobs/job_1/trials/4"]
    assert leads(CaveatKind.OTHER) == []


def test_the_bar_of_a_job_that_ended_without_a_trial_is_empty() -> None:
    assert view.bar_of(dataclasses.replace(_progress(None, None), num_trials=0)) == []


def test_a_lower_loss_leads_and_by_how_much_a_search_cannot_say() -> None:
    answer = _answer(0.08, 0.1)
    assert (answer.kind, answer.headline) == ("better", "Provisional: Shampoo leads AdamW")
    assert answer.detail.endswith("Nothing was trained again with new seeds, so by how much is not known.")


def test_a_higher_accuracy_leads() -> None:
    answer = _answer(0.99, 0.9, direction=Direction.MAXIMIZE)
    assert (answer.kind, answer.headline) == ("better", "Provisional: Shampoo leads AdamW")


def test_a_lost_comparison_is_said_plainly() -> None:
    answer = _answer(0.12, 0.1)
    assert (answer.kind, answer.headline) == ("worse", "Provisional: Shampoo trails AdamW")


def test_an_unfinished_job_leads_or_trails() -> None:
    assert _answer(0.08, 0.1, state=JobState.RUNNING).headline == "Shampoo leads AdamW so far"
    assert _answer(0.12, 0.1, state=JobState.RUNNING).headline == "Shampoo trails AdamW so far"


def test_values_within_the_tolerance_of_recommendations_are_level() -> None:
    assert _answer(0.1002, 0.1).kind == "equal"
    assert _answer(0.1006, 0.1).kind == "worse"


def test_a_baseline_of_zero_can_be_compared_with() -> None:
    assert _answer(0.5, 0.0).kind == "worse"
    assert _answer(0.0, 0.0).kind == "equal"


def test_without_two_values_the_verdict_is_open() -> None:
    assert _answer(None, 0.1, state=JobState.RUNNING).headline == "No Shampoo trial has completed yet"
    assert _answer(None, 0.1, state=JobState.FAILED).headline == "No Shampoo trial completed"
    assert _answer(0.1, None, state=JobState.RUNNING).headline == "No baseline trial has completed yet"
    assert _answer(0.1, None, has_baseline=False).headline == "No baseline was asked for"


def _evidence(verdict: Verdict, improvement: tuple[float, float] | None) -> Evidence:
    """Evidence of two configs and the baseline's, confirmed with two seeds."""

    def winner(number: int, optimizer: OptimizerName) -> Winner:
        config = TrialConfig(
            workload="digits-mlp", optimizer=OptimizerConfig(optimizer), num_steps=40, batch_size=8, evaluate_every=10
        )
        return Winner(number, 0.1, config.to_json(), {}, num_steps=40, seconds=1.0)

    def confirmed(number: int, mean: float | None) -> ConfirmedConfig:
        results = [
            SeedResult(1, 30 + number, TrialEnding(TrialState.COMPLETED), 0.1),
            SeedResult(2, 40 + number, TrialEnding(TrialState.FAILED, FailureReason.DIVERGED), None),
        ]
        return ConfirmedConfig(number, 0.09, results if mean is None else results[:1], mean, 0.01)

    low, high = improvement or (None, None)
    result = ConfirmationResult(
        seeds=[1, 3],
        candidates=[confirmed(4, 0.1), confirmed(5, None)],
        baseline=confirmed(6, None if low is None else 0.2),
        confidence=0.95,
        improvement_low=low,
        improvement_high=high,
    )
    return Evidence(
        metric="validation_loss",
        direction=Direction.MINIMIZE,
        best=winner(4, "shampoo"),
        baseline=winner(6, "adamw"),
        verdict=verdict,
        equal_within=0.005,
        improvement=0.2,
        reached_baseline=None,
        num_trials={"search": {"completed": 8}, "baseline": {"completed": 3, "pruned": 5}},
        seeds=[1, 3],
        caveats=[],
        confirmation=result,
        status=EvidenceStatus.CONFIRMED,
    )


@pytest.mark.parametrize(
    ("verdict", "kind", "headline"),
    [
        (Verdict.BETTER, "better", "Shampoo beats AdamW by 20.0% at equal steps"),
        (Verdict.WORSE, "worse", "Not worth it for this model: Shampoo falls short of AdamW by 20.0% at equal steps"),
        (Verdict.EQUAL, "equal", "Not worth it for this model: Shampoo and AdamW are level at equal steps"),
        (Verdict.UNDECIDED, "open", "2 new seeds do not tell Shampoo from AdamW at equal steps"),
    ],
)
def test_the_verdict_of_a_confirmed_job_is_that_of_its_seeds(verdict: Verdict, kind: str, headline: str) -> None:
    evidence = _evidence(verdict, (0.1, 0.3))
    answer = _answer(0.05, 0.1, evidence=evidence)
    assert (answer.kind, answer.headline) == (kind, headline)
    assert answer.detail.startswith("Over 2 new seeds, the improvement lies between +10.0% and +30.0% (95% interval).")
    answer = _answer(0.05, 0.1, state=JobState.RUNNING, evidence=evidence)
    assert answer.headline == "Shampoo leads AdamW so far"


def test_the_card_tells_values_interval_cost_and_how_soon_the_baselines_best_was_reached() -> None:
    reached = ReachedBaseline(
        step=40.0,
        seconds=31.0,
        baseline_step=200.0,
        baseline_seconds=12.0,
        step_ratio=5.0,
        seconds_ratio=0.39,
        is_first_measurement=True,
    )
    evidence = dataclasses.replace(_evidence(Verdict.BETTER, (0.1, 0.3)), reached_baseline=reached)
    progress = dataclasses.replace(_progress(0.08, 0.1), device_hours=0.05, cost=1.2)
    named = {phase.value: label for phase, label in LABELS.items()}
    told = view.figures(progress, named, has_baseline=True, evidence=evidence, currency="USD", ahead={})
    assert [(figure.term, f"{figure.value} {figure.spread}".strip(), list(figure.notes)) for figure in told] == [
        ("Shampoo best", "0.08000", ["search value, one seed, trial #1"]),
        ("AdamW best (baseline)", "0.1000", ["search value, one seed, trial #2"]),
        ("Improvement", "+20.0%", ["95% interval +10.0% to +30.0%", "over 2 new seeds, at equal steps"]),
        ("Reached AdamW's best", "step 40 or before, 31 s", ["AdamW itself: step 200, 12 s"]),
        ("Cost of the search", "3 min 00 s of one device", ["1.20 USD"]),
    ]
    told = view.figures(_progress(None, None), named, has_baseline=False, evidence=None, currency=None, ahead={})
    assert [(figure.value, list(figure.notes)) for figure in told] == [("–", ["no completed trial"])]


def test_before_a_trial_has_completed_the_best_value_so_far_is_told_with_how_early_it_is() -> None:
    ahead = {
        Phase.SEARCH: UnfinishedTrial(14, "shampoo", None, step=18, num_steps=120, value=0.5),
        Phase.BASELINE: UnfinishedTrial(3, "adamw", None, step=18, num_steps=120, value=0.7),
    }
    named = {str(phase): label for phase, label in LABELS.items()}
    told = view.figures(_progress(None, 0.1), named, has_baseline=True, evidence=None, currency=None, ahead=ahead)
    assert [(figure.term, figure.value, list(figure.notes)) for figure in told] == [
        ("Shampoo so far", "0.5000", ["#14 at step 18 of 120", "no trial completed"]),
        ("AdamW best (baseline)", "0.1000", ["search value, one seed, trial #2"]),
    ]


def test_a_config_that_failed_with_a_new_seed_is_named() -> None:
    answer = _answer(0.05, 0.1, evidence=_evidence(Verdict.UNDECIDED, None))
    assert answer.headline == "Shampoo and AdamW could not be compared over new seeds"
    assert answer.detail == "What failed: the config of trial 5 with seed 2, the config of trial 6 with seed 2."


@pytest.mark.slow
def test_templates_read_attributes_that_there_are() -> None:
    reader = Reader(rendering._templates.env)
    for template, variables in pages():
        reader.read(template, variables)
    assert reader.missing == set()
    assert reader.num_known > 1000
