"""The insights into a parameter, in words: one way for pages and commands."""

from __future__ import annotations

from search_spaces import Scalar
from service.evidence.in_words.wording import counted, mebibytes, signed_share
from service.evidence.insights import (
    MIN_TRIALS,
    DivergedBeyond,
    EarlyLate,
    Importance,
    ParameterInsight,
    SideInsights,
    Trend,
)
from service.evidence.prices import CheaperSetting, RelativeChange

STRONG, WEAK = 0.6, 0.3
"""Rank correlations from which early values tell the last ones well, and below which they hardly do."""

NONE_STANDS_OUT = "No parameter stands out: values dealt to these trials at random would seem as important."

SAME = 0.005
"""Change of the state, as a share, below which it is called the same."""


def side_words(side: SideInsights) -> str:
    """The trials that were compared, and those that were not."""
    kinds = ((side.num_completed, "completed"), (side.num_pruned, "pruned"), (side.num_diverged, "diverged"))
    of_kinds = ", ".join(f"{count:,} {kind}" for count, kind in kinds if count)
    told = f"{counted(side.num_trials, 'trial')}{f' ({of_kinds})' if of_kinds else ''}"
    if side.num_sampled < side.num_trials:
        told += f", of which {side.num_sampled:,} by chance were looked at"
    if side.num_left_out:
        told += f"; {side.num_left_out:,} that ended otherwise say nothing"
    return told


def too_few_words(num_trials: int) -> str:
    """The reason why nothing is said of a parameter: too few trials."""
    compared = f"Only {counted(num_trials, 'trial')} can be compared" if num_trials else "No trial can be compared"
    return f"{compared}: from {MIN_TRIALS} on, importance is told here. Among fewer, any parameter seems to matter."


def not_computed_words(num_trials: int) -> str:
    """The reason why nothing is said although there are enough trials; where a run is cancelled it may stay so."""
    return (
        f"{counted(num_trials, 'trial')} have ended, and what mattered is not computed: the job's run does that now "
        "and then, and when it comes to its end."
    )


def importance_words(importance: Importance | None) -> str:
    """Words on how important a parameter is, and how sure that is."""
    if importance is None:
        return "too few trials to say"
    if not importance.is_beyond_chance:
        return "not told from chance"
    return f"{importance.share:.0%} ({importance.low:.0%} to {importance.high:.0%})"


def trend_words(parameter: ParameterInsight) -> str:
    """The direction in which the parameter is better, or the choice that did best."""
    if parameter.choices:
        return _choice_words(parameter)
    if parameter.trend is Trend.BETWEEN and parameter.turns_at is not None:
        return f"higher is better up to about {_value(parameter.turns_at)}, then worse"
    if parameter.trend is Trend.HIGHER:
        above = parameter.safe_range.diverged_above if parameter.safe_range else None
        return "higher is better" + (f", up to {_value(above.value)}, where trials diverge" if above else "")
    if parameter.trend is Trend.LOWER:
        below = parameter.safe_range.diverged_below if parameter.safe_range else None
        return "lower is better" + (f", down to {_value(below.value)}, where trials diverge" if below else "")
    return "" if parameter.trend is None else "no direction seen"


def _choice_words(parameter: ParameterInsight) -> str:
    """The choice whose middle trial stands best, if the parameter matters."""
    known = [choice for choice in parameter.choices if choice.standing is not None]
    if parameter.importance is None or not known:
        return ""
    if not parameter.importance.is_beyond_chance:
        return "no choice seen to be better"
    best = max(known, key=lambda choice: choice.standing or 0.0)
    return f"{best.value} did best"


def range_words(parameter: ParameterInsight) -> str:
    """The range of the good trials, and where others diverged; empty: nothing is known."""
    safe = parameter.safe_range
    if safe is None:
        return ""
    told = f"the best {safe.num_trials} had {_value(safe.low)} to {_value(safe.high)}"
    for beyond, where in ((safe.diverged_above, "from {} up"), (safe.diverged_below, "from {} down")):
        if beyond is not None:
            told += f"; {_diverged_words(beyond, where)}"
    return told


def _diverged_words(beyond: DivergedBeyond, where: str) -> str:
    return f"{where.format(_value(beyond.value))}, {beyond.num_diverged:,} of {beyond.num_trials:,} diverged"


def early_late_words(found: EarlyLate) -> str:
    """Words on how well early values tell the last ones."""
    how = "hardly" if found.correlation < WEAK else "well" if found.correlation >= STRONG else "partly"
    interval = f"{found.correlation:.2f} ({found.low:.2f} to {found.high:.2f})"
    return (
        f"Values at {found.share:.0%} of the training tell the last ones {how}: rank correlation {interval} over "
        f"{counted(found.num_trials, 'trial')} that completed."
    )


def prices_words(side: SideInsights) -> str:
    """The config that the prices of a side are told against; empty: there are none."""
    if not side.prices:
        return ""
    return f"Settings that need less time or memory than trial {side.priced_trial}'s, which has the best config:"


def setting_words(setting: CheaperSetting) -> str:
    """The parameter with the best config's value and the cheaper one."""
    return f"{setting.parameter} {move_words(setting)}"


def move_words(setting: CheaperSetting) -> str:
    """The best config's value and the cheaper one."""
    told = f"{_setting(setting.best_value)} → {_setting(setting.value)}"
    return told if setting.like is None else f"{told}, as trial {setting.like} has it"


def objective_words(setting: CheaperSetting) -> str:
    """The change of the objective, or why there is no telling."""
    change = setting.objective
    if change is None:
        return "cannot be told: too few trials"
    told = _change(change)
    return told if change.is_seen else f"{told}: no difference to be seen"


def step_words(setting: CheaperSetting) -> str:
    """The change of the time of a step; where that was not measured or does not show, the change of the optimizer's
    operations."""
    measured, predicted = setting.step_seconds, f"the optimizer's operations {_signed(setting.step_operations)}"
    if measured is None:
        return predicted
    return _change(measured) if measured.is_seen else f"{_change(measured)}, {predicted}"


def state_words(setting: CheaperSetting) -> str:
    """The change of the memory of the optimizer's state."""
    if abs(setting.state) < SAME:
        return "the same"
    sizes = f"{mebibytes(setting.best_state_bytes)} → {mebibytes(setting.state_bytes)}"
    return f"{_signed(setting.state)} ({sizes})"


def basis_words(setting: CheaperSetting, metric: str) -> str:
    """Words on how the changes are known."""
    told = []
    if setting.objective is not None and setting.basis is not None:
        told.append(f"{metric} {setting.basis.value} from {counted(setting.objective.num_trials, 'trial')}")
    timed = setting.step_seconds
    told.append(
        "step and memory predicted" if timed is None else f"step measured in {counted(timed.num_trials, 'trial')}"
    )
    return ", ".join(told if timed is None else [*told, "memory predicted"])


def price_words(setting: CheaperSetting, metric: str) -> str:
    """All of a cheaper setting in a line."""
    changes = f"{metric} {objective_words(setting)}; step {step_words(setting)}; state memory {state_words(setting)}"
    return f"{setting_words(setting)}: {changes}; {basis_words(setting, metric)}"


def _change(change: RelativeChange) -> str:
    return f"{_signed(change.share)} ({_signed(change.low)} to {_signed(change.high)})"


def _signed(share: float) -> str:
    if abs(share) < 0.0005:
        return "0.0%"
    return signed_share(share) if abs(share) < 1 else f"{share:+,.0%}"


def _setting(value: Scalar) -> str:
    return _value(value) if isinstance(value, float) else str(value)


def _value(value: float) -> str:
    """A parameter's value; those close to 1 with the digits that tell them from it."""
    return f"{value:.3g}" if not 0.9 < value < 1 else f"{1 - float(f'{1 - value:.2g}'):.6g}"
