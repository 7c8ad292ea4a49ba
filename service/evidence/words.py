"""Evidence in words: the one renderer of what a job found, for the snippet, the terminal and the page.

Numbers are rounded in one way: measured values to four significant digits, shares to a tenth of a percent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from service.domain import Direction, Phase
from service.evidence.best_values import BestTrial, best_of, compare, improvement_over
from service.evidence.types import EQUAL_WITHIN, ConfirmationResult, Evidence, Verdict

DASH = "–"
OPTIMIZER_TITLES = {
    "shampoo": "Shampoo",
    "adamw": "AdamW",
    "sgd": "SGD",
    "muon": "Muon",
    "soap-peer": "SOAP of pytorch_optimizer",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The comparison of the search's best with the baseline's: a headline, and the numbers behind it."""

    kind: Literal["better", "worse", "equal", "open"]
    headline: str
    detail: str


def number(value: float | None, digits: int = 4) -> str:
    """A measured value with `digits` significant digits, trailing zeros kept so that columns line up."""
    if value is None or not math.isfinite(value):
        return DASH
    if 10**digits <= abs(value) < 10 ** (digits + 2):
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".removesuffix(".")


def spread(standard_deviation: float) -> str:
    """A standard deviation, as it follows its mean."""
    return f"± {number(standard_deviation, 2)}"


def share(value: float) -> str:
    """A share without its sign, in percent."""
    return f"{abs(value):.1%}"


def signed_share(value: float) -> str:
    """A share with its sign, in percent."""
    return f"{value:+.1%}"


def times(ratio: float) -> str:
    """A ratio as a factor: `1.8×`."""
    return f"{ratio:.2g}×"


def duration(seconds: float | None) -> str:
    """Seconds as at most two units: `8.3 s`, `2 min 05 s`, `1 h 04 min`, `3 d 02 h`."""
    if seconds is None:
        return DASH
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def device_hours(spent: float, limit: float) -> str:
    """The device-hours spent and allowed."""
    return f"{spent:.3g} of {limit:g} device-hours"


def optimizer_title(name: str) -> str:
    """An optimizer as people call it."""
    return OPTIMIZER_TITLES.get(name, name)


def described(best: BestTrial) -> str:
    """A best value with its spread and its origin: `0.07680 ± 0.00035 (mean of 3 new seeds, config of trial 8)`."""
    deviation = "" if best.standard_deviation is None else f" {spread(best.standard_deviation)}"
    whose = f"config of trial {best.number}" if best.num_new_seeds else f"trial {best.number}"
    return f"{number(best.value)}{deviation} ({best.basis}, {whose})"


def named_values(values: Mapping[str, float], metric: str) -> list[str]:
    """The values of a point of a front, that of the objective `metric` first: stored JSON need not keep the order."""
    return [f"{name} {number(values[name])}" for name in sorted(values, key=lambda name: name != metric)]


def answer_by_values(
    best: float, baseline: float, direction: Direction, *, ours: str, theirs: str, is_over: bool
) -> Answer:
    """The comparison of two best values.

    Args:
        ours: what the search tunes, as people call it.
        theirs: what the baseline tunes.
        is_over: the job has ended.
    """
    outcome = compare(best, baseline, direction)
    if outcome is Verdict.EQUAL:
        headline = f"{ours} and {theirs} are level" + ("" if is_over else " so far")
        return Answer("equal", headline, f"Their best values differ by less than {share(EQUAL_WITHIN)}.")
    gap, improvement = abs(best - baseline), improvement_over(baseline, best, direction)
    size = number(gap) if improvement is None else share(improvement)
    relation = "lower" if best < baseline else "higher"
    detail = f"Its best value is {relation} by {number(gap, 3)}."
    if outcome is Verdict.BETTER:
        return Answer("better", f"{ours} {'beats' if is_over else 'leads'} {theirs} by {size}", detail)
    return Answer("worse", f"{ours} {'falls short of' if is_over else 'trails'} {theirs} by {size}", detail)


def answer_of(evidence: Evidence) -> Answer | None:
    """The comparison that a recommendation's evidence makes; None: it has no baseline."""
    if evidence.baseline is None:
        return None
    ours, theirs = optimizer_title(evidence.best.optimizer), optimizer_title(evidence.baseline.optimizer)
    result = evidence.confirmation
    interval = None if result is None else result.improvement
    if evidence.verdict is not Verdict.UNDECIDED and interval is None:
        return answer_by_values(
            evidence.best.value, evidence.baseline.value, evidence.direction, ours=ours, theirs=theirs, is_over=True
        )
    if result is None or interval is None:
        return Answer("open", f"{ours} and {theirs} could not be compared over new seeds", _failures(result))
    low, high = interval
    detail = (
        f"Over {len(result.seeds)} new seeds, the improvement lies between {signed_share(low)} and "
        f"{signed_share(high)} ({result.confidence:.0%} interval)."
    )
    by = "" if evidence.improvement is None else f" by {share(evidence.improvement)}"
    match evidence.verdict:
        case Verdict.BETTER:
            return Answer("better", f"{ours} beats {theirs}{by}", detail)
        case Verdict.WORSE:
            return Answer("worse", f"{ours} falls short of {theirs}{by}", detail)
        case Verdict.EQUAL:
            return Answer("equal", f"{ours} and {theirs} are level", detail)
    return Answer("open", f"{len(result.seeds)} new seeds do not tell {ours} from {theirs}", detail)


def _failures(result: ConfirmationResult | None) -> str:
    failed = [
        f"the config of trial {config.number} with seed {outcome.seed}"
        for config in (result.configs if result is not None else [])
        for outcome in config.results
        if outcome.has_failed
    ]
    return f"What failed: {', '.join(failed)}." if failed else "The baseline's mean is 0, of which there is no share."


def evidence_lines(evidence: Evidence, *, num_front: int | None = None) -> list[str]:
    """The evidence for a config, whether it won or not: a sentence a line.

    Args:
        num_front: trials of a front to name at most; None: all of them.
    """
    best, baseline, answer = evidence.best, evidence.baseline, answer_of(evidence)
    lines = [
        f"Best of the search: {evidence.metric} {described(best_of(evidence.confirmation, best))} "
        f"after {best.num_steps} steps."
    ]
    if baseline is not None and answer is not None:
        theirs = optimizer_title(baseline.optimizer)
        value = described(best_of(evidence.confirmation, baseline))
        lines += [f"Best of the {theirs} baseline: {evidence.metric} {value}.", f"{answer.headline}. {answer.detail}"]
        if answer.kind == "worse":
            lines.append(f"NOT RECOMMENDED over {theirs}: the baseline did better.")
    lines += evidence.verdict_caveats
    reached = evidence.reached_baseline
    if reached is not None:
        lines.append(
            f"It was as good as the baseline's best at step {reached.step}; the baseline was at step "
            f"{reached.baseline_step} ({times(reached.step_ratio)})."
        )
    return [*lines, *_front_lines(evidence, num_front), _trials_line(evidence), *evidence.caveats]


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
    return f"{sum(sum(endings.values()) for endings in by_phase.values())} trials: {phases}."
