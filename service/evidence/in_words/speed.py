"""Words on the speed of the recommended config: how soon it was as good as the baseline's best.

Fewer steps are no gain where each takes longer: what counts is the training time, where it was measured.
"""

from __future__ import annotations

import math
from enum import StrEnum

from service.domain import Currency
from service.evidence.comparison.missed_target import TIMES_TO_TARGET
from service.evidence.in_words.wording import counted, device_time, duration, share, times
from service.evidence.types import Evidence, ReachedBaseline, Verdict, Winner

ALIKE = 0.05
"""Ratios of times of one pair of trials that differ from 1 by less than this are called alike."""
TELLING_STEP_RATIO = 1.2
"""Ratio of the times of a step from which on it explains why steps and time disagree."""


class OnTheClock(StrEnum):
    """The recommended config against the baseline's best by training time."""

    FASTER = "faster"
    SLOWER = "slower"
    ALIKE = "alike"
    UNKNOWN = "unknown"
    """No time was measured, or what was measured does not tell."""


def on_the_clock(evidence: Evidence) -> OnTheClock:
    """The comparison of the two by training time: where both had spent equally much of it, or else by how long each
    took to the baseline's best."""
    by_time = next((found for found in evidence.comparisons if found.currency is Currency.SECONDS), None)
    if by_time is not None and by_time.value is not None:
        match by_time.verdict:
            case Verdict.BETTER:
                return OnTheClock.FASTER
            case Verdict.WORSE:
                return OnTheClock.SLOWER
            case Verdict.EQUAL:
                return OnTheClock.ALIKE
    reached = evidence.reached_baseline
    return OnTheClock.UNKNOWN if reached is None else _by_reaching(reached)


def _by_reaching(reached: ReachedBaseline) -> OnTheClock:
    ratio, low, high = reached.seconds_ratio, reached.seconds_ratio_low, reached.seconds_ratio_high
    if ratio is None:
        return OnTheClock.UNKNOWN
    has_interval = low is not None and high is not None
    if low is None or high is None:
        low, high = ratio / (1 + ALIKE), ratio * (1 + ALIKE)
    if low > 1.0:
        return OnTheClock.FASTER
    if reached.is_first_measurement:
        return OnTheClock.UNKNOWN  # it may have been as good long before
    if high < 1.0:
        return OnTheClock.SLOWER
    return OnTheClock.UNKNOWN if has_interval else OnTheClock.ALIKE


def but_on_the_clock(evidence: Evidence) -> str | None:
    """Words that a headline about equal steps must add, so that nobody takes fewer steps for a gain; None: none."""
    if evidence.baseline is None or evidence.currency is Currency.SECONDS:
        return None
    clock, ratio = on_the_clock(evidence), step_time_ratio(evidence.best, evidence.baseline)
    if clock is OnTheClock.SLOWER:
        return "but is slower on the clock"
    if clock is OnTheClock.FASTER or ratio is None or ratio < TELLING_STEP_RATIO:
        return None
    return f"with steps that take {times(ratio)} as long"


def step_time_ratio(best: Winner, baseline: Winner) -> float | None:
    """The time of a step of the recommended config, in units of one of the baseline's; None: not measured."""
    if not (best.seconds and baseline.seconds and best.num_steps and baseline.num_steps):
        return None
    return (best.seconds / best.num_steps) / (baseline.seconds / baseline.num_steps)


def ratio_words(ratio: float, low: float | None, high: float | None, of: str) -> str:
    """A ratio with its interval over the seeds: `1.8× as many steps (1.2× to 2.7×)`."""
    if low is None or high is None:
        return f"{times(ratio)} {of}"
    # Measurements are rare: often each seed's curve crosses at the same one.
    told = "with every seed" if times(low) == times(high) else f"{times(low)} to {times(high)}"
    return f"{times(ratio)} {of} ({told})"


def has_own_examples(reached: ReachedBaseline) -> bool:
    """True if examples tell another ratio than steps, because batch sizes differ."""
    return reached.examples_ratio is not None and not math.isclose(reached.examples_ratio, reached.step_ratio)


def step_words(reached: ReachedBaseline) -> str:
    """The step at which the recommended config was as good: `step 40 or before`, if nothing was measured earlier."""
    return f"step {reached.step:.0f}{' or before' if reached.is_first_measurement else ''}"


def ratios_words(reached: ReachedBaseline) -> list[str]:
    """Words on how many steps, examples and seconds the baseline took for one of the recommended config's."""
    at_least = "at least " if reached.is_first_measurement else ""
    found = [
        at_least + ratio_words(reached.step_ratio, reached.step_ratio_low, reached.step_ratio_high, "as many steps")
    ]
    if has_own_examples(reached):
        assert reached.examples_ratio is not None
        found.append(
            at_least
            + ratio_words(
                reached.examples_ratio, reached.examples_ratio_low, reached.examples_ratio_high, "as many examples"
            )
        )
    if reached.seconds_ratio is not None:
        found.append(
            at_least
            + ratio_words(
                reached.seconds_ratio, reached.seconds_ratio_low, reached.seconds_ratio_high, "as much training time"
            )
        )
    return found


def speed_words(evidence: Evidence) -> str | None:
    """A sentence on how soon the recommended config was as good as the baseline's best, and what that saves; None:
    there is nothing to compare with."""
    baseline, reached = evidence.baseline, evidence.reached_baseline
    if baseline is None:
        return None
    if reached is None and evidence.metric in TIMES_TO_TARGET and evidence.improvement is None:
        return None  # a training that missed its target has no time at which it was as good
    if reached is None:
        return _never_words(evidence, baseline) if evidence.comparisons else None
    has_time = reached.seconds_ratio is not None
    own, other = (
        f", after {duration(seconds)} of training" if has_time else ""
        for seconds in (reached.seconds, reached.baseline_seconds)
    )
    words = (
        f"The config was as good as the baseline's best at {step_words(reached)}{own}. The baseline was so at step "
        f"{reached.baseline_step:.0f}{other}: {', '.join(ratios_words(reached))}."
    )
    return f"{words}{_worth_words(evidence, baseline)}"


def _never_words(evidence: Evidence, baseline: Winner) -> str:
    has_seeds = evidence.confirmation is not None and len(evidence.confirmation.seeds) > 1
    words = f"The config {'was not with every seed' if has_seeds else 'never was'} as good as the baseline's best."
    ratio = step_time_ratio(evidence.best, baseline)
    if ratio is not None and ratio >= TELLING_STEP_RATIO:
        words += f" A step of it takes {times(ratio)} as long as the baseline's."
    return words


def _worth_words(evidence: Evidence, baseline: Winner) -> str:
    """Words on what the clock says against fewer steps, or against needing no more of them; empty: nothing."""
    reached, ratio = evidence.reached_baseline, step_time_ratio(evidence.best, baseline)
    assert reached is not None
    if reached.seconds_ratio is None:
        return " No training time was measured, so whether that saves time is not known."
    clock = on_the_clock(evidence)
    if ratio is None or ratio < TELLING_STEP_RATIO:
        return " That saves no training time." if clock is OnTheClock.SLOWER else ""
    words = f" A step of it takes {times(ratio)} as long as the baseline's"
    if clock is OnTheClock.FASTER or reached.step_ratio <= 1.0:
        return f"{words}."
    if clock is OnTheClock.UNKNOWN:
        return f"{words}: whether fewer steps save time is not known."
    return f"{words}, so that fewer steps are no gain."


def break_even_words(evidence: Evidence) -> str | None:
    """A sentence on when the job will have paid off; None: it is not known that it will."""
    found = evidence.break_even
    if found is None:
        return None
    runs = counted(found.num_runs, "training")
    return (
        f"This search cost {device_time(found.device_hours)}; at {share(found.saved_share)} fewer seconds to the "
        f"baseline's best it pays after {runs} of this length."
    )
