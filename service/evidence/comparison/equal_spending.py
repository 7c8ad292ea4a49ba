"""Two configs compared after both have spent equally much: steps, seconds, examples or tokens. Pure.

With each seed, what counts is the value of either trial at the spending at which the one that spent less ended: its own
last value, and of the other the one that it had there, on the line between its measurements before and after.
"""

from __future__ import annotations

import bisect
import dataclasses
import statistics
from collections.abc import Sequence

from service.domain import Currency, Direction
from service.evidence.best_values import compare, improvement_over
from service.evidence.comparison.confirm import verdict_of
from service.evidence.comparison.missed_target import TIMES_TO_TARGET
from service.evidence.comparison.paired import MIN_SEEDS, interval_of
from service.evidence.finished_trial import FinishedTrial, Pair
from service.evidence.types import CurrencyComparison, Verdict


@dataclasses.dataclass(frozen=True, slots=True)
class _Meeting:
    """The values of a pair where both had spent equally much."""

    spent: float
    ours: float
    theirs: float
    is_open: bool
    """True if the objective is how soon a target is reached, and neither had reached it there."""


def compare_at_equal_spending(
    pairs: Sequence[Pair], metric: str, direction: Direction, asked: Currency, *, as_planned: bool = False
) -> list[CurrencyComparison]:
    """The comparison in the currency asked for, and in the two others that stand beside it; empty without pairs.

    Tokens take the place of examples where they are asked for, and examples theirs where none were counted.

    Args:
        as_planned: whether all trials were given steps with which they spend equally much of what is asked for: then
            their last values are compared, whatever else the machines did meanwhile.
    """
    if not pairs:
        return []
    counted = Currency.EXAMPLES
    if asked is Currency.TOKENS:
        are_counted = all(trial.tokens_per_example is not None for pair in pairs for trial in pair)
        asked = counted = Currency.TOKENS if are_counted else Currency.EXAMPLES
    others = (currency for currency in (Currency.STEPS, Currency.SECONDS, counted) if currency is not asked)
    of_asked = compare_by(pairs, metric, direction, asked, at_ends=as_planned)
    return [of_asked, *(compare_by(pairs, metric, direction, currency) for currency in others)]


def compare_by(
    pairs: Sequence[Pair], metric: str, direction: Direction, currency: Currency, *, at_ends: bool = False
) -> CurrencyComparison:
    """The comparison in one currency; `at_ends`: of the last values, whatever was spent.

    With two or more pairs the interval of `paired.interval_of` decides (`confirm.verdict_of`); with one pair the two
    values do.

    Returns:
        One without values, `undecided`, where a trial measured nothing before the other one had ended, or did not count
        the currency; an `undecided` one where neither had reached the target whose time is the objective.
    """
    met = [_meeting(pair, metric, currency, at_ends=at_ends) for pair in pairs]
    meetings = [meeting for meeting in met if meeting is not None]
    if not meetings or len(meetings) < len(met):
        return CurrencyComparison(currency, Verdict.UNDECIDED)
    ours, theirs = (
        statistics.fmean(values)
        for values in ([meeting.ours for meeting in meetings], [meeting.theirs for meeting in meetings])
    )
    found = CurrencyComparison(
        currency,
        compare(ours, theirs, direction),
        spent=statistics.fmean(meeting.spent for meeting in meetings),
        value=ours,
        baseline_value=theirs,
        improvement=improvement_over(theirs, ours, direction),
    )
    is_open = any(meeting.is_open for meeting in meetings)
    if len(meetings) < MIN_SEEDS:
        return dataclasses.replace(found, verdict=Verdict.UNDECIDED) if is_open else found
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    interval = interval_of([sign * (meeting.theirs - meeting.ours) for meeting in meetings])
    share = abs(theirs)
    low, high = (interval.low / share, interval.high / share) if share else (None, None)
    verdict = Verdict.UNDECIDED if is_open else verdict_of(interval, theirs)
    return dataclasses.replace(found, verdict=verdict, improvement_low=low, improvement_high=high)


def _meeting(pair: Pair, metric: str, currency: Currency, *, at_ends: bool) -> _Meeting | None:
    curves = [_curve(trial, metric, currency) for trial in pair]
    ours, theirs = curves
    if not ours or not theirs:
        return None
    ends = [curve[-1][0] for curve in curves]
    # The last batch of a trial may go beyond the examples that it was to see.
    is_counted = currency in (Currency.EXAMPLES, Currency.TOKENS)
    slack = max(_per_step(trial, currency) or 0.0 for trial in pair) if is_counted else 0.0
    spent = min(ends)
    if at_ends or abs(ends[0] - ends[1]) <= slack:
        return _Meeting(spent, ours[-1][1], theirs[-1][1], _is_open(pair, metric, currency, max(ends)))
    own, other = (_value_at(curve, spent) for curve in curves)
    if own is None or other is None:
        return None
    return _Meeting(spent, own, other, _is_open(pair, metric, currency, spent))


def _is_open(pair: Pair, metric: str, currency: Currency, spent: float) -> bool:
    return metric in TIMES_TO_TARGET and all(_has_missed(trial, currency, spent) for trial in pair)


def _has_missed(trial: FinishedTrial, currency: Currency, spent: float) -> bool:
    """True if the trial had not reached its target by then; False, too, if it does not measure that."""
    measured = _curve(trial, "target_reached", currency)
    return bool(measured) and not any(reached and at <= spent for at, reached in measured)


def _curve(trial: FinishedTrial, metric: str, currency: Currency) -> list[tuple[float, float]]:
    """Spending, and the value there, at each finite measurement; empty: it was not counted."""
    per_step = _per_step(trial, currency)
    if per_step is None:
        return []
    return [
        (seconds if currency is Currency.SECONDS else step * per_step, value)
        for step, seconds, metrics in trial.curve
        if (value := metrics.get(metric)) is not None
    ]


def _per_step(trial: FinishedTrial, currency: Currency) -> float | None:
    """The amount of a currency that a step spends; None: it was not counted."""
    match currency:
        case Currency.STEPS | Currency.SECONDS:
            return 1.0
        case Currency.EXAMPLES:
            return float(trial.batch_size)
        case Currency.TOKENS:
            tokens = trial.tokens_per_example
            return None if tokens is None else tokens * trial.batch_size


def _value_at(curve: Sequence[tuple[float, float]], spent: float) -> float | None:
    """The value on the line between the measurements around a spending; None: the first came later."""
    index = bisect.bisect_right([at for at, _ in curve], spent)
    if index == 0:
        return None
    at, value = curve[index - 1]
    if at == spent or index == len(curve):
        return value
    following, then = curve[index]
    return value + (then - value) * (spent - at) / (following - at)
