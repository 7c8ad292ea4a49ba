"""Two configs compared after equal spending: by hand, and what a recommendation makes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from service.domain import Currency, Direction, Objective, Phase, TrialState
from service.evidence.caveat_kinds import CaveatKind
from service.evidence.comparison.equal_spending import compare_at_equal_spending, compare_by
from service.evidence.finished_trial import FinishedTrial
from service.evidence.formats.snippet import python_snippet
from service.evidence.in_words.words import answer_of, currency_lines, evidence_lines
from service.evidence.recommend import recommend
from service.evidence.recommended import RecommendedConfig, recommendation_from_json
from service.evidence.types import MIN_TRIED, Verdict
from tests.support.service.caveats import sentences
from trainers.config import OptimizerConfig, OptimizerName, TrialConfig
from trainers.stored_config import StoredConfig

METRIC, MINIMIZE = "validation_loss", Direction.MINIMIZE


def trial(
    number: int,
    phase: Phase,
    values: Sequence[float | None],
    *,
    seconds: float = 1.0,
    batch_size: int = 10,
    seed: int = 0,
    confirms: int | None = None,
    tokens: float | None = None,
    side: Phase = Phase.SEARCH,
) -> FinishedTrial:
    """A trial measured after every tenth step, which took `seconds`.

    Args:
        tokens: per example; None: none are counted.
        side: of the config, where the phase does not tell.
    """
    optimizer: OptimizerName = "adamw" if Phase.BASELINE in (phase, side) else "shampoo"
    config = TrialConfig(
        workload="digits-mlp",
        optimizer=OptimizerConfig(optimizer, {"lr": 0.1}),
        num_steps=10 * len(values),
        evaluate_every=10,
        batch_size=batch_size,
        seed=seed,
    )
    stored = StoredConfig.of(config.to_json())
    speeds = {} if tokens is None else {"examples_per_second": 30.0, "tokens_per_second": 30.0 * tokens}
    curve = [(10 * i, seconds * i, {METRIC: value, **speeds}) for i, value in enumerate(values, start=1)]
    return FinishedTrial(number, phase, TrialState.COMPLETED, None, stored, values[-1], curve, confirms=confirms)


def pair(ours: FinishedTrial, theirs: FinishedTrial) -> list[tuple[FinishedTrial, FinishedTrial]]:
    return [(ours, theirs)]


OURS = trial(0, Phase.SEARCH, [0.8, 0.4, 0.2], seconds=2.0)
THEIRS = trial(1, Phase.BASELINE, [0.9, 0.6, 0.3])


def test_at_equal_steps_the_last_values_are_compared() -> None:
    found = compare_by(pair(OURS, THEIRS), METRIC, MINIMIZE, Currency.STEPS)
    assert (found.value, found.baseline_value, found.spent) == (0.2, 0.3, 30)
    assert found.verdict is Verdict.BETTER
    assert found.improvement == pytest.approx(1 / 3)


def test_in_equal_time_the_slower_one_counts_with_its_value_when_the_other_one_ended() -> None:
    found = compare_by(pair(OURS, THEIRS), METRIC, MINIMIZE, Currency.SECONDS)
    assert found.spent == 3.0
    assert found.value == pytest.approx(0.6)  # half way between its measurements after 2 s and 4 s
    assert (found.baseline_value, found.verdict) == (0.3, Verdict.WORSE)


def test_where_steps_were_given_to_take_equally_long_the_last_values_are_compared() -> None:
    ours, theirs = trial(1, Phase.SEARCH, [4.0, 2.0], seconds=2.5), trial(2, Phase.BASELINE, [5.0, 4.0, 3.0, 2.5])
    found = compare_at_equal_spending(pair(ours, theirs), METRIC, MINIMIZE, Currency.SECONDS, as_planned=True)
    assert [one.currency for one in found] == [Currency.SECONDS, Currency.STEPS, Currency.EXAMPLES]
    by_time, by_steps, _ = found
    assert (by_time.value, by_time.baseline_value, by_time.spent) == (2.0, 2.5, 4.0)
    assert (by_steps.value, by_steps.baseline_value, by_steps.spent) == (2.0, 4.0, 20)


@pytest.mark.parametrize(("seconds", "told"), [(2.1, None), (2.4, "took 1.20 times as long"), (1.6, "took 0.80 times")])
def test_trials_that_were_to_take_equally_long_and_did_not_are_told(seconds: float, told: str | None) -> None:
    trials = [
        trial(1, Phase.SEARCH, [4.0, 2.0], seconds=seconds),
        trial(2, Phase.BASELINE, [5.0, 4.0, 3.0, 2.5]),
    ]
    objective = Objective(METRIC, MINIMIZE)
    found = recommend(trials, objectives=[objective], currency=Currency.SECONDS, takes_equal_seconds=True)
    assert found is not None
    sentences = [one.sentence for one in found.evidence.caveats if one.kind is CaveatKind.UNEQUAL_TIME]
    assert len(sentences) == (told is not None)
    assert all(told is not None and told in sentence for sentence in sentences)


def test_a_trial_that_has_measured_nothing_by_then_cannot_be_compared() -> None:
    slow = trial(0, Phase.SEARCH, [0.8, 0.2], seconds=9.0)
    found = compare_by(pair(slow, THEIRS), METRIC, MINIMIZE, Currency.SECONDS)
    assert (found.verdict, found.value, found.improvement) == (Verdict.UNDECIDED, None, None)


def test_where_a_value_was_not_finite_the_line_passes_it_by() -> None:
    gap = trial(0, Phase.SEARCH, [0.8, None, 0.2], seconds=2.0)
    found = compare_by(pair(gap, THEIRS), METRIC, MINIMIZE, Currency.SECONDS)
    assert found.value == pytest.approx(0.8 - 0.6 * 1 / 4)


@pytest.mark.parametrize(
    ("theirs_reach_at", "by_steps", "by_seconds"),
    [(20, Verdict.WORSE, Verdict.WORSE), (None, Verdict.BETTER, Verdict.UNDECIDED)],
)
def test_where_neither_had_reached_the_target_when_the_first_one_ended_who_is_sooner_is_open(
    theirs_reach_at: int | None, by_steps: Verdict, by_seconds: Verdict
) -> None:
    metric = "steps_to_target"

    def reaching(trial: FinishedTrial, step_reached: int | None) -> FinishedTrial:
        curve = []
        for step, seconds, _ in trial.curve:
            has_reached = step_reached is not None and step_reached <= step
            value = float(step_reached) if has_reached and step_reached is not None else 40.0 - 0.1 * step
            curve.append((step, seconds, {metric: value, "target_reached": float(has_reached)}))
        return dataclasses.replace(trial, curve=curve)

    both = pair(reaching(OURS, 30), reaching(THEIRS, theirs_reach_at))  # ours takes twice the time
    found = [compare_by(both, metric, MINIMIZE, currency) for currency in (Currency.STEPS, Currency.SECONDS)]
    assert [one.verdict for one in found] == [by_steps, by_seconds]
    assert compare_by(both * 6, metric, MINIMIZE, Currency.SECONDS).verdict is by_seconds


@pytest.mark.parametrize("currency", [Currency.EXAMPLES, Currency.TOKENS])
def test_larger_batches_have_seen_more_after_equal_steps(currency: Currency) -> None:
    large = trial(0, Phase.SEARCH, [0.8, 0.4, 0.2], batch_size=20, tokens=4.0)
    small = trial(1, Phase.BASELINE, [0.9, 0.6, 0.3, 0.25], batch_size=10, tokens=4.0)
    found = compare_by(pair(large, small), METRIC, MINIMIZE, currency)
    assert found.spent == (400 if currency is Currency.EXAMPLES else 1600)
    assert (found.value, found.baseline_value) == (0.4, 0.25)
    by_steps = compare_by(pair(large, small), METRIC, MINIMIZE, Currency.STEPS)
    assert (by_steps.value, by_steps.baseline_value) == (0.2, 0.3)


def test_the_rounding_of_the_last_batch_does_not_count() -> None:
    ours = trial(0, Phase.SEARCH, [0.8, 0.2], batch_size=48)  # 960 examples
    theirs = trial(1, Phase.BASELINE, [0.9, 0.6, 0.3], batch_size=33)  # 990
    found = compare_by(pair(ours, theirs), METRIC, MINIMIZE, Currency.EXAMPLES)
    assert (found.value, found.baseline_value) == (0.2, 0.3)


@pytest.mark.parametrize(
    ("asked", "tokens", "told"),
    [
        (Currency.STEPS, 4.0, [Currency.STEPS, Currency.SECONDS, Currency.EXAMPLES]),
        (Currency.SECONDS, None, [Currency.SECONDS, Currency.STEPS, Currency.EXAMPLES]),
        (Currency.TOKENS, 4.0, [Currency.TOKENS, Currency.STEPS, Currency.SECONDS]),
        (Currency.TOKENS, None, [Currency.EXAMPLES, Currency.STEPS, Currency.SECONDS]),
    ],
)
def test_two_others_stand_beside_the_currency_asked_for(
    asked: Currency, tokens: float | None, told: list[Currency]
) -> None:
    trials = (trial(0, Phase.SEARCH, [0.2], tokens=tokens), trial(1, Phase.BASELINE, [0.3], tokens=tokens))
    found = compare_at_equal_spending([trials], METRIC, MINIMIZE, asked)
    assert [comparison.currency for comparison in found] == told
    assert compare_at_equal_spending([], METRIC, MINIMIZE, asked) == []


def recommended(
    currency: Currency, *, our_seconds: float = 1.6, num_tried: int = MIN_TRIED, num_seeds: int = 6
) -> RecommendedConfig:
    """Ours ends better by a third with each of six seeds, and takes `our_seconds` where the baseline takes 1."""
    found = [
        *(trial(n, Phase.SEARCH, [0.8, 0.5, 0.2 + n / 100], seconds=our_seconds) for n in range(num_tried)),
        *(trial(50 + n, Phase.BASELINE, [0.9, 0.35, 0.3 + n / 100]) for n in range(num_tried)),
    ]
    repeated = []
    for seed in range(1, num_seeds + 1):
        luck = seed / 1000
        ours = [0.8 + luck, 0.5 + luck, 0.2 + luck]
        theirs = [0.9 + luck, 0.35 + luck, 0.3 + 2 * luck]
        repeated += [
            trial(100 + seed, Phase.CONFIRMATION, ours, seconds=our_seconds, seed=seed, confirms=0),
            trial(200 + seed, Phase.CONFIRMATION, theirs, seed=seed, confirms=50, side=Phase.BASELINE),
        ]
    objectives = [Objective(METRIC, MINIMIZE)]
    made = recommend([*found, *repeated], objectives=objectives, seeds=range(1, num_seeds + 1), currency=currency)
    assert made is not None
    return made


def test_a_verdict_by_seconds_may_be_another_than_by_steps_and_each_names_its_currency() -> None:
    by_steps, by_seconds = (recommended(currency).evidence for currency in (Currency.STEPS, Currency.SECONDS))
    assert (by_steps.verdict, by_seconds.verdict) == (Verdict.BETTER, Verdict.WORSE)
    assert {c.currency: c.verdict for c in by_steps.comparisons} == {
        c.currency: c.verdict for c in by_seconds.comparisons
    }
    told = [answer_of(evidence) for evidence in (by_steps, by_seconds)]
    assert told[0] is not None
    assert told[1] is not None
    assert told[0].headline.endswith("at equal steps, but is slower on the clock")
    assert told[1].headline.startswith("Not worth it")
    assert told[1].headline.endswith("in equal training time")
    assert told[1].detail.startswith("After 3.0 s of training: ")
    result = by_seconds.confirmation
    assert result is not None
    assert result.improvement is not None
    assert result.improvement[0] < result.improvement[1] < 0
    assert by_seconds.best.value == pytest.approx(0.2035)  # whole trials all the same
    assert by_seconds.improvement == by_seconds.comparisons[0].improvement
    assert by_seconds.search_interval is None


def test_the_other_currencies_stand_in_the_evidence_and_the_snippet() -> None:
    made = recommended(Currency.STEPS)
    lines = currency_lines(made.evidence)
    # Who reads that is told whose learning rate was still high.
    told = (
        "In equal training time: worse, 0.5410 against 0.3070 after 3.0 s of training, where the training of Shampoo "
    )
    assert lines[0].startswith(f"{told}had not ended, -")
    assert lines[1] == "At equal examples: the same values and verdict."
    assert set(lines) <= set(evidence_lines(made.evidence))
    snippet = python_snippet(made).replace("\n#   ", " ")
    assert all(f"# {line}" in snippet for line in lines)


def test_of_few_trials_every_currency_is_undecided() -> None:
    evidence = recommended(Currency.SECONDS, num_tried=MIN_TRIED - 1).evidence
    assert {comparison.verdict for comparison in evidence.comparisons} == {evidence.verdict} == {Verdict.UNDECIDED}


def test_without_new_seeds_the_values_found_are_compared() -> None:
    evidence = recommended(Currency.SECONDS, num_seeds=0).evidence
    answer = answer_of(evidence)
    assert answer is not None
    assert (answer.kind, answer.headline) == ("worse", "Provisional: Shampoo trails AdamW in equal training time")
    assert (evidence.comparisons[0].improvement_low, evidence.verdict) == (None, Verdict.WORSE)


def test_what_was_never_measured_in_time_is_told_as_not_compared() -> None:
    evidence = recommended(Currency.SECONDS, our_seconds=99.0).evidence
    answer = answer_of(evidence)
    assert answer is not None
    assert (answer.kind, evidence.verdict) == ("open", Verdict.UNDECIDED)
    assert answer.headline == "Shampoo and AdamW could not be compared in equal training time"
    assert currency_lines(recommended(Currency.STEPS, our_seconds=99.0).evidence)[0].endswith(
        ": not known. One of them had measured nothing yet when the other one ended."
    )


def test_tokens_that_nobody_counted_are_told_and_examples_stand_in() -> None:
    evidence = recommended(Currency.TOKENS).evidence
    assert evidence.currency is Currency.EXAMPLES
    assert "The workload counts no tokens: the verdict is by examples." in sentences(evidence.caveats)


def test_a_recommendation_that_is_older_was_by_steps() -> None:
    content = recommended(Currency.STEPS).to_json()
    assert recommendation_from_json(content).evidence.comparisons
    for name in ("currency", "comparisons"):
        del content["evidence"][name]
    for name in ("examples_ratio", "examples_ratio_low", "examples_ratio_high"):
        del content["evidence"]["reached_baseline"][name]
    older = recommendation_from_json(content).evidence
    assert (older.currency, older.comparisons, currency_lines(older)) == (Currency.STEPS, [], [])
    answer = answer_of(older)
    assert answer is not None
    assert answer.headline.endswith("at equal steps, but is slower on the clock")
