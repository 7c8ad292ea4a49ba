"""Evidence in words: the one renderer of what a job found, for the snippet, the terminal and the page.

Numbers are rounded in one way: measured values to four significant digits, shares to a tenth of a percent,
or as far as shows their sign.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from service.domain import Currency, Direction, Phase
from service.evidence.best_values import BestTrial, best_of, compare
from service.evidence.branches import Branches
from service.evidence.comparison.confirm import compare_over_seeds
from service.evidence.comparison.missed_target import TIMES_TO_TARGET
from service.evidence.comparison.paired import SURE_SEEDS, Interval
from service.evidence.in_words.luck import luck_words, probability_lines
from service.evidence.in_words.speed import break_even_words, but_on_the_clock, speed_words
from service.evidence.in_words.standing import standing_of
from service.evidence.in_words.told_interval import told_interval
from service.evidence.in_words.wording import (
    DASH,
    chance,
    counted,
    duration,
    named_values,
    number,
    optimizer_title,
    rivals_title,
    share,
    signed_share,
    spread,
)
from service.evidence.transfers import TransferResult
from service.evidence.types import (
    MIN_TRIED,
    Alternative,
    ConfirmationResult,
    CurrencyComparison,
    Evidence,
    EvidenceStatus,
    Verdict,
    Winner,
)

AT_EQUAL = {
    Currency.STEPS: "at equal steps",
    Currency.SECONDS: "in equal training time",
    Currency.EXAMPLES: "at equal examples",
    Currency.TOKENS: "at equal tokens",
}
SEARCH_VALUES = "By the values of the search, each the luckiest of its side: they are not what to expect."
NOT_CONFIRMED = "Nothing was trained again with new seeds, so by how much is not known."
ONLY_SEEDS = "That covers the luck of seeds, not that of a search: another one as short may find other configs."
BOTH_MISSED = "Which of them would have reached it sooner is not known."
MEASURED_TOO_LATE = "One of them had measured nothing yet when the other one ended."
NO_SHARE = "A training that missed the target has no time to it: by how much one is sooner is not known."
NOT_WORTH_IT = "Not worth it for this model"
PLUS_MINUS = "± is the standard deviation over these seeds (of the sample, not an interval of the mean)."


@dataclass(frozen=True, slots=True)
class Answer:
    """The comparison of the search's best with the baselines': a headline, and the numbers behind it."""

    kind: Literal["better", "worse", "equal", "mixed", "open"]
    """`mixed`: better at equal spending of what the verdict is by, and slower on the clock."""
    headline: str
    detail: str
    status: EvidenceStatus | None = None
    """The status of the recommended config: whether it held with new seeds. None: nothing is recommended yet, or at
    all."""
    speed: str | None = None
    """A sentence on how soon the recommended config was as good as the baseline's best, and what that is worth."""
    break_even: str | None = None
    """A sentence that says after how many trainings the job has paid."""


def described(best: BestTrial) -> str:
    """A best value with its spread and its origin: `0.07680 ± 0.00035 (mean of 3 new seeds, config of trial 8)`."""
    deviation = "" if best.standard_deviation is None else f" {spread(best.standard_deviation)}"
    whose = f"config of trial {best.number}" if best.num_new_seeds else f"trial {best.number}"
    return f"{number(best.value)}{deviation} ({best.basis}, {whose})"


def answer_by_values(
    best: float,
    baseline: float,
    direction: Direction,
    *,
    ours: str,
    theirs: str,
    is_over: bool,
    currency: Currency | None = None,
) -> Answer:
    """The comparison of two values that a search found, which says who is ahead and not by how much.

    Args:
        ours: what the search tunes, as people call it.
        theirs: what the baselines tune.
        is_over: the job has ended.
        currency: what both have spent equally much of, where that is settled.
    """
    outcome = compare(best, baseline, direction)
    kind: Literal["better", "worse", "equal"] = "equal"
    headline = f"{ours} and {theirs} are level"
    if outcome is not Verdict.EQUAL:
        kind = "better" if outcome is Verdict.BETTER else "worse"
        headline = f"{ours} {'leads' if outcome is Verdict.BETTER else 'trails'} {theirs}"
    if not is_over:
        return Answer(kind, f"{headline} so far", SEARCH_VALUES)
    at_equal = "" if currency is None else f" {AT_EQUAL[currency]}"
    return Answer(kind, f"Provisional: {headline}{at_equal}", f"{SEARCH_VALUES} {NOT_CONFIRMED}")


def answer_of(evidence: Evidence) -> Answer | None:
    """The comparison that a recommendation's evidence makes; None: it has no baseline."""
    if evidence.baseline is None:
        return None
    found = _compared(evidence, evidence.baseline)
    if found.kind == "better" and (but := but_on_the_clock(evidence)) is not None:
        found = dataclasses.replace(found, kind="mixed", headline=f"{found.headline}, {but}")
    return dataclasses.replace(
        found, status=evidence.status, speed=speed_words(evidence), break_even=break_even_words(evidence)
    )


def _compared(evidence: Evidence, baseline: Winner) -> Answer:
    ours, theirs = optimizer_title(evidence.best.optimizer), _theirs(evidence)
    result = evidence.confirmation
    interval = None if result is None else result.improvement
    over_seeds, values = _over_seeds(evidence), _compared_values(evidence, baseline)
    has_no_share = evidence.metric in TIMES_TO_TARGET and evidence.improvement is None and over_seeds is not None
    if has_no_share:
        detail = NO_SHARE
    elif result is not None and interval is not None:
        detail = _interval_words(evidence, result, interval)
    elif result is not None and over_seeds is not None:
        detail = _means_words(result, *values)
    else:
        detail = SEARCH_VALUES
    at_equal = AT_EQUAL[evidence.currency]
    compared = next(iter(evidence.comparisons), None)
    if compared is not None and compared.value is None:
        return Answer("open", f"{ours} and {theirs} could not be compared {at_equal}", MEASURED_TOO_LATE)
    if compared is not None and values != (evidence.best.value, baseline.value):
        detail = f"After {spending(compared)}: {number(values[0])} against {number(values[1])}. {detail}"
    if evidence.has_few_trials and evidence.verdict is Verdict.UNDECIDED:
        return Answer("open", f"Undecided: too few trials to tell {ours} from {theirs}", f"{_few(evidence)} {detail}")
    # Where seeds that agree leave the verdict open, it is because both missed the target.
    is_whole = values == (evidence.best.value, baseline.value)
    is_certain = over_seeds is None or (is_whole and (over_seeds.low > 0.0 or over_seeds.high < 0.0))
    if evidence.metric in TIMES_TO_TARGET and compared and is_certain and evidence.verdict is Verdict.UNDECIDED:
        return Answer("open", f"Undecided: {ours} and {theirs} both missed the target", BOTH_MISSED)
    if evidence.status is EvidenceStatus.PROVISIONAL:
        answer = answer_by_values(
            *values, evidence.direction, ours=ours, theirs=theirs, is_over=True, currency=evidence.currency
        )
        return dataclasses.replace(answer, detail=f"{detail} {NOT_CONFIRMED}")
    if result is None or (interval is None and over_seeds is None and evidence.verdict is Verdict.UNDECIDED):
        return Answer("open", f"{ours} and {theirs} could not be compared over new seeds", _failures(result))
    by = "" if evidence.improvement is None else f" by {share(evidence.improvement)}"
    match evidence.verdict:
        case Verdict.BETTER:
            return Answer("better", f"{ours} beats {theirs}{by} {at_equal}", detail)
        case Verdict.WORSE:
            return Answer("worse", f"{NOT_WORTH_IT}: {ours} falls short of {theirs}{by} {at_equal}", detail)
        case Verdict.EQUAL:
            return Answer("equal", f"{NOT_WORTH_IT}: {ours} and {theirs} are level {at_equal}", detail)
    return Answer("open", f"{len(result.seeds)} new seeds do not tell {ours} from {theirs} {at_equal}", detail)


def _compared_values(evidence: Evidence, baseline: Winner) -> tuple[float, float]:
    """The values that the verdict compares: those of the whole trials, or those at equal spending."""
    first = next(iter(evidence.comparisons), None)
    if first is None or first.value is None or first.baseline_value is None:
        return evidence.best.value, baseline.value
    return first.value, first.baseline_value


def currency_lines(evidence: Evidence) -> list[str]:
    """The comparison in the currencies beside that of the verdict, a sentence each."""
    return [_other_currency(comparison, evidence) for comparison in evidence.comparisons[1:]]


def spending(comparison: CurrencyComparison) -> str:
    """Words for the spending at which two configs were compared: `40 steps`, `12 s of training`."""
    if comparison.spent is None:
        return DASH
    if comparison.currency is Currency.SECONDS:
        return f"{duration(comparison.spent)} of training"
    return f"{comparison.spent:,.0f} {comparison.currency}"


def _other_currency(comparison: CurrencyComparison, evidence: Evidence) -> str:
    first, where = evidence.comparisons[0], AT_EQUAL[comparison.currency].capitalize()
    if comparison.value is None:
        return f"{where}: not known. {MEASURED_TOO_LATE}"
    if (comparison.value, comparison.baseline_value) == (first.value, first.baseline_value):
        return f"{where}: the same values and verdict."
    low, high = comparison.improvement_low, comparison.improvement_high
    told = f"{number(comparison.value)} against {number(comparison.baseline_value)} after {spending(comparison)}"
    assert evidence.baseline is not None
    ends = (evidence.best, comparison.value), (evidence.baseline, comparison.baseline_value)
    unended = [winner.optimizer for winner, value in ends if winner.value != value]
    if len(unended) == 1:
        told += f", where the training of {optimizer_title(unended[0])} had not ended"
    if comparison.improvement is not None and low is not None and high is not None:
        low, high = told_interval(evidence, (low, high))
        told += f", {signed_share(comparison.improvement)} ({signed_share(low)} to {signed_share(high)})"
    return f"{where}: {'by the search, ' if _over_seeds(evidence) is None else ''}{comparison.verdict}, {told}."


def _over_seeds(evidence: Evidence) -> Interval | None:
    """The gain of the config, in units of the objective; None: the two were not compared over seeds."""
    return None if evidence.confirmation is None else compare_over_seeds(evidence.confirmation, evidence.direction)


def _theirs(evidence: Evidence) -> str:
    """Words for what the search was compared with, where it was."""
    assert evidence.baseline is not None
    return rivals_title([best.optimizer for best in evidence.baselines] or [evidence.baseline.optimizer])


def _interval_words(evidence: Evidence, result: ConfirmationResult, interval: tuple[float, float]) -> str:
    low, high = told_interval(evidence, interval)
    words = [
        f"Over {len(result.seeds)} new seeds, the improvement lies between {signed_share(low)} and "
        f"{signed_share(high)} ({result.confidence:.0%} interval)."
    ]
    if len(result.seeds) < SURE_SEEDS:
        words.append(
            f"With fewer than {SURE_SEEDS} seeds that holds for normal noise, and less often for an unstable config."
        )
    if evidence.search_interval is None:
        words.append(ONLY_SEEDS)
    else:
        words.append(luck_words(*told_interval(evidence, evidence.search_interval)))
    return " ".join(words)


def _means_words(result: ConfirmationResult, ours: float, theirs: float) -> str:
    """The means over the compared seeds, where the baseline's is 0."""
    over = f"Over {len(result.seeds)} new seeds"
    if ours == 0.0:
        return f"{over}, the mean of both is 0."
    return f"{over}, the means are {number(ours)} and {number(theirs)}: of 0 there is no share to tell."


def _few(evidence: Evidence) -> str:
    tried, baseline = evidence.num_tried, evidence.baseline
    assert baseline is not None
    rivals = [(best.optimizer, best.num_tried) for best in evidence.baselines]
    of_baselines = [
        f"{num} of {optimizer_title(name)}" for name, num in rivals or [(baseline.optimizer, tried[Phase.BASELINE])]
    ]
    return (
        f"{counted(tried[Phase.SEARCH], 'trial')} of {optimizer_title(evidence.best.optimizer)} and "
        f"{' and '.join(of_baselines)} completed or were pruned; below {MIN_TRIED} on a side, another search as short "
        "may find the opposite."
    )


def _failures(result: ConfirmationResult | None) -> str:
    failed = [
        f"the config of trial {config.number} with seed {outcome.seed}"
        for config in (result.configs if result is not None else [])
        for outcome in config.results
        if outcome.has_failed
    ]
    return f"What failed: {', '.join(failed)}." if failed else "The baseline's best was not trained with them."


def evidence_lines(evidence: Evidence, *, num_front: int | None = None) -> list[str]:
    """The evidence for a config, whether it won or not: a sentence a line.

    Args:
        num_front: trials of a front to name at most; None: all of them.
    """
    best, baseline, answer = evidence.best, evidence.baseline, answer_of(evidence)
    lines = [
        f"{standing_of(evidence).heading}: {optimizer_title(best.optimizer)} has {evidence.metric} "
        f"{described(best_of(evidence.confirmation, best))} after {best.num_steps} steps."
    ]
    if evidence.status is EvidenceStatus.PROVISIONAL and answer is None:
        lines.append(f"{SEARCH_VALUES} {NOT_CONFIRMED}")
    if baseline is not None and answer is not None:
        theirs = optimizer_title(baseline.optimizer)
        value = described(best_of(evidence.confirmation, baseline))
        lines += [f"Best of the {theirs} baseline: {evidence.metric} {value}."]
        lines += [*_baselines_lines(evidence, baseline), f"{answer.headline}. {answer.detail}"]
        if evidence.verdict in (Verdict.WORSE, Verdict.EQUAL):
            lines.append(f"`recommend --job JOB --trial {baseline.number}` prints the config of {theirs}.")
    lines += [] if evidence.branches is None else [branches_words(evidence.branches)]
    bests = [best_of(evidence.confirmation, winner) for winner in (best, baseline) if winner is not None]
    lines += [PLUS_MINUS] if any(found.standard_deviation is not None for found in bests) else []
    lines += [*probability_lines(evidence), *(caveat.sentence for caveat in evidence.verdict_caveats)]
    lines += currency_lines(evidence)
    lines += [words for words in (speed_words(evidence), break_even_words(evidence)) if words is not None]
    lines += [alternative_words(alternative) for alternative in evidence.alternatives]
    lines += transfer_lines(evidence.transfers)
    lines += [*_front_lines(evidence, num_front), _trials_line(evidence), *_seconds_lines(evidence)]
    return [*lines, *(caveat.sentence for caveat in evidence.caveats)]


def transfer_lines(transfers: Sequence[TransferResult]) -> list[str]:
    """Lines on the configs that were moved from other models: each with its distance and what came of it."""
    found: list[str] = []
    for one in transfers:
        if one.value is None:
            came = "was not trained to its end"
        elif one.behind == 0:
            came = f"reached {number(one.value)}, the best of the search"
        else:
            gap = "" if one.behind is None else f", {share(one.behind)} behind the best of the search"
            came = f"reached {number(one.value)}{gap}"
        found.append(f"Trial {one.number}, moved from {one.source} ({one.distance:.1f} octaves away), {came}.")
    return found


def branches_words(branches: Branches) -> str:
    """Words on which choice suits best of the parameter that the space branches by, and how sure that is."""
    known = [(own.probability_best_alone, own.choice) for own in branches.choices]
    told = [f"{choice} {chance(p)}" for p, choice in sorted(known, key=lambda one: -(one[0] or 0)) if p is not None]
    won = f"{branches.winner} won as {branches.parameter}"
    if not branches.is_decided:
        won = f"Which {branches.parameter} suits best is undecided; the recommended config is of {branches.winner}"
    if not told:
        found = [f"{own.choice} {number(own.value)}" for own in branches.choices if own.value is not None]
        return f"{won}: the best values found are {', '.join(found)}."
    return f"{won}. How probably each would do best, searched alone with as many trials: {', '.join(told)}."


def _baselines_lines(evidence: Evidence, chosen: Winner) -> list[str]:
    """Says of each baseline how good its best was, where there are several."""
    if len(evidence.baselines) < 2:
        return []
    told = [
        f"{optimizer_title(best.optimizer)} "
        + ("completed no trial" if best.number is None else f"{number(best.value)} (trial {best.number})")
        for best in evidence.baselines
    ]
    num_seeds = max(best.num_new_seeds for best in evidence.baselines)
    by = f"over the {counted(num_seeds, 'new seed')} that chose" if num_seeds else "found"
    return [f"{optimizer_title(chosen.optimizer)} stands for the baselines, by the values {by}: {'; '.join(told)}."]


def alternative_words(alternative: Alternative) -> str:
    """Another config that confirmed alike, and what speaks for either."""
    words = (
        f"New seeds cannot tell the config of trial {alternative.number} from the recommended one: with those that "
        f"choose, it had {number(alternative.mean)} and the recommended one {number(alternative.recommended_mean)}, no "
        "farther apart than noise."
    )
    for favoured, reasons in (
        ("In its favour", alternative.speaks_for_it),
        ("In favour of the recommended one", alternative.speaks_for_recommended),
    ):
        words += f" {favoured}: {'; '.join(reasons)}." if reasons else ""
    return words


def _front_lines(evidence: Evidence, num_shown: int | None) -> list[str]:
    """The trials that no other one betters in every objective, a line for each."""
    front = evidence.front
    if not front:
        return []
    lines = ["No other trial betters these in every objective; `recommend --job JOB --trial NUMBER` prints a config:"]
    for point in front[:num_shown]:
        values = ", ".join(named_values(point.values, evidence.metric))
        lines.append(f"  trial {point.number}{' (baseline)' if point.phase is Phase.BASELINE else ''}: {values}")
    num_left = 0 if num_shown is None else len(front) - num_shown
    return [*lines, *([f"  and {num_left} more"] if num_left > 0 else [])]


def _trials_line(evidence: Evidence) -> str:
    by_phase = {phase: evidence.num_trials[phase] for phase in Phase if phase in evidence.num_trials}
    phases = "; ".join(
        f"{phase} {sum(endings.values())} ({', '.join(f'{count} {ending}' for ending, count in endings.items())})"
        for phase, endings in by_phase.items()
    )
    return f"{counted(sum(sum(endings.values()) for endings in by_phase.values()), 'trial')}: {phases}."


def _seconds_lines(evidence: Evidence) -> list[str]:
    """Says how long each side trained, where there are several and it was measured."""
    if len(evidence.side_seconds) < 2 or not any(evidence.side_seconds.values()):
        return []
    told = [
        f"{'the search' if side == Phase.SEARCH else optimizer_title(side)} {duration(seconds)}"
        for side, seconds in evidence.side_seconds.items()
    ]
    return [f"Training time without the confirmation: {', '.join(told)}."]
