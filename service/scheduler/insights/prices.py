"""The price of cheaper settings: the loss in the objective of the best config, and the gain in time and memory.

There is no list of the parameters that cost something: a parameter counts if its values change the operations or the
state that `shampoo.cost` predicts for the shapes of the model. If these are not known, nothing is priced.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from search_spaces import Categorical, Float, Integer, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active, is_same, sectioned
from service.domain import Direction
from service.evidence.insights import MIN_TRIALS
from service.evidence.prices import Basis, CheaperSetting, RelativeChange
from service.scheduler.insights.compared import EndedTrial, sampled
from service.scheduler.insights.early_late import Curve
from service.scheduler.insights.effects import Observed, SideModel, measured_change, observed_objective
from service.scheduler.insights.predicted_cost import OptimizerCost, PredictedCosts
from service.specification.search.pauses import PAUSE_SHARES

TELLING = 0.02
"""Share of the operations or of the state that a setting must change to count."""
MIN_NEAR = 3
"""Least number of trials on either side of a value; with fewer, nothing is said about it."""
ALIKE = 0.02
"""Positions in a range that differ by no more count as the same."""
MAX_MODELLED = 200
"""Trials of a side that a model is fitted to."""
MAX_VALUES = 3
"""Cheaper values of a number."""
TIMED_SECTIONS = ("training", "workload", "averaging", "compression")
"""Sections of a config whose parameters can change the time of a step, whatever the optimizer."""


def best_trial(trials: Sequence[EndedTrial], direction: Direction) -> EndedTrial | None:
    """The trial with the best config; None: none completed. If configs were trained again without failures, it is among
    those with the most new seeds, because these seeds decided the choice."""
    done = [trial for trial in trials if trial.has_value]
    again = [trial for trial in done if trial.confirmed and None not in trial.confirmed.values()]
    most = max((len(trial.confirmed) for trial in again), default=0)
    chosen = [trial for trial in again if len(trial.confirmed) == most] or done
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    return min(chosen, key=lambda trial: sign * statistics.fmean(_values(trial)), default=None)


def _again(trial: EndedTrial) -> dict[int, float]:
    """The values with new seeds, by seed."""
    return {seed: value for seed, value in trial.confirmed.items() if value is not None}


def _values(trial: EndedTrial) -> list[float]:
    """The values of a config with new seeds, or the one that it was found with."""
    return list(_again(trial).values()) or [value for value in (trial.value,) if value is not None]


def prices_of(
    trials: Sequence[EndedTrial],
    best: EndedTrial,
    space: SearchSpace,
    direction: Direction,
    curves: Mapping[str, Curve],
    costs: PredictedCosts,
) -> list[CheaperSetting]:
    """The settings that are cheaper than the best config's, each with its price, in the order of the space.

    Args:
        trials: the compared trials of the side.
        curves: the curves of the trials that completed, or of some of them, by the id of the trial.
        costs: the costs of the best trial's model.
    """
    settings = list(_cheaper(trials, best, space, direction, costs))
    if not settings:
        return []
    pricing = _Pricing(trials, best, space, direction)
    seen = _sampled(trials, best)
    observed = [one for trial in seen if (one := observed_objective(trial, curves.get(trial.id, ()))) is not None]
    is_minimised = direction is Direction.MINIMIZE
    model = SideModel(space, observed, is_minimised=is_minimised) if len(observed) >= MIN_TRIALS else None
    timed = _sampled([trial for trial in trials if pricing.is_timed(trial)], best)
    clock = None
    if len(timed) >= MIN_TRIALS:
        seconds = [Observed(trial.parameters, [(1.0, trial.seconds_per_step or 0.0)]) for trial in timed]
        clock = SideModel(space, seconds, is_minimised=True, only=_timed_names(space, best.parameters, costs))
    found = [pricing.of(setting, model, clock, timed) for setting in settings]
    return [one for one in found if not _proved_dear(one)]


def _proved_dear(setting: CheaperSetting) -> bool:
    """True if its steps were measured to be longer, against the prediction, and it has no other advantage."""
    timed = setting.step_seconds
    return timed is not None and timed.low > 0 and setting.state > -TELLING


def _sampled(trials: Sequence[EndedTrial], best: EndedTrial) -> list[EndedTrial]:
    """The trials that a model is fitted to, including the best one."""
    found = sampled(trials, at_most=MAX_MODELLED)
    return found if best in found or best not in trials else [*found[1:], best]


@dataclass(frozen=True, slots=True)
class _Setting:
    """A cheaper config than the best one, and what it costs."""

    parameter: Parameter
    value: Scalar
    values: Mapping[str, Scalar]
    """All of it."""
    like: EndedTrial | None
    is_unknown: bool
    """True if it activates other parameters, and no trial with it completed: good values of these are unknown."""
    cost: OptimizerCost
    best_cost: OptimizerCost


def _cheaper(
    trials: Sequence[EndedTrial],
    best: EndedTrial,
    space: SearchSpace,
    direction: Direction,
    costs: PredictedCosts,
) -> Iterator[_Setting]:
    whole = costs.of(best.parameters)
    if whole is None:
        return
    branching = {parameter.name for parameter in space.branching}
    for parameter in space.active(best.parameters):
        tried = [
            trial.parameters[parameter.name]
            for trial in trials
            if trial.confirmed and _is_twin(trial, best, parameter, space)
        ]
        found: list[_Setting] = []
        for value in _distinct(parameter, [*tried, *_values_of(parameter, best.parameters[parameter.name])]):
            values, like = _moved(space, best.parameters, parameter, value), None
            if parameter.name in branching:
                own = [trial for trial in trials if is_same(trial.parameters.get(parameter.name), value)]
                like = best_trial(own, direction)
                values = values if like is None else dict(like.parameters)
            cost = costs.of(values)
            if cost is not None and _is_cheaper(cost, whole):
                is_unknown = parameter.name in branching and like is None
                found.append(_Setting(parameter, value, values, like, is_unknown, cost, whole))
        if not isinstance(parameter, Categorical):
            found = found[:MAX_VALUES]
        yield from sorted(found, key=lambda one: -one.cost.step_operations)


def _is_cheaper(cost: OptimizerCost, than: OptimizerCost) -> bool:
    """True if it saves operations or state, without costing more of the other than it saves."""
    operations = cost.step_operations / than.step_operations if than.step_operations else 1.0
    state = cost.state_bytes / than.state_bytes if than.state_bytes else 1.0
    return min(operations, state) < 1 - TELLING and operations * state < 1 - TELLING


def _differs(cost: OptimizerCost, other: OptimizerCost) -> bool:
    pairs = ((cost.step_operations, other.step_operations), (cost.state_bytes, other.state_bytes))
    return any(abs(one - another) > TELLING * max(one, another) for one, another in pairs)


def _distinct(parameter: Parameter, values: Sequence[Scalar]) -> list[Scalar]:
    """The values without those that count as the same as an earlier one."""
    found: list[Scalar] = []
    for value in values:
        if all(_distance(parameter, value, other) > ALIKE for other in found):
            found.append(value)
    return found


def _values_of(parameter: Parameter, best: Scalar) -> list[Scalar]:
    """Other values of a parameter: all choices, or for a number the ends of its range and one between each end and the
    best."""
    if isinstance(parameter, Categorical):
        return [choice for choice in parameter.choices if not is_same(choice, best)]
    values = [
        value
        for bound in (parameter.low, parameter.high)
        for value in (_between(parameter, best, bound), bound)  # type: ignore[arg-type]  # a number's is one
    ]
    return [value for value in values if not is_same(value, best)]


def _between(parameter: Float | Integer, best: float, bound: float) -> Scalar:
    """The middle of the two on the parameter's scale; for integers on a logarithmic scale, the best doubled or
    halved."""
    positions = [parameter.to_unit(value) for value in (best, bound)]
    middle = parameter.from_unit(sum(positions) / 2)
    if isinstance(parameter, Float) or parameter.scale != "log":
        return middle
    octaves = round(math.log2(middle / best))
    stepped = round(best * 2.0**octaves)
    return stepped if octaves and min(best, bound) <= stepped <= max(best, bound) else middle


def _moved(space: SearchSpace, values: Mapping[str, Scalar], parameter: Parameter, value: Scalar) -> dict[str, Scalar]:
    """The config with one other value; parameters that this value activates take their defaults if their range is
    another one than before."""
    domains = {one.name: one.domain for one in space.active(values)}
    found: dict[str, Scalar] = {}
    for one in space.parameters:
        if is_active(one, found):
            is_kept = domains.get(one.name) == one.domain
            found[one.name] = value if one.name == parameter.name else values[one.name] if is_kept else one.default
    return found


def _is_twin(trial: EndedTrial, best: EndedTrial, parameter: Parameter, space: SearchSpace) -> bool:
    """True if a completed trial has the best config except for this parameter."""
    if not trial.has_value or trial.number == best.number or parameter.name not in trial.parameters:
        return False
    value = trial.parameters[parameter.name]
    wanted = _moved(space, best.parameters, parameter, value)
    is_other = _distance(parameter, value, best.parameters[parameter.name]) > ALIKE
    active = space.active(wanted)
    return (
        is_other
        and space.active(trial.parameters) == active
        and all(_distance(one, trial.parameters[one.name], wanted[one.name]) <= ALIKE for one in active)
    )


def _distance(parameter: Parameter, one: Scalar, other: Scalar) -> float:
    """The distance of two positions in the range; 1 for different choices."""
    if isinstance(parameter, Categorical):
        return 0.0 if is_same(one, other) else 1.0
    return abs(parameter.to_unit(one) - parameter.to_unit(other))  # type: ignore[arg-type]  # numbers of its range


def _timed_names(space: SearchSpace, best: Mapping[str, Scalar], costs: PredictedCosts) -> frozenset[str]:
    """The parameters that the time of a step can depend on: those that cost operations or state, whatever the others
    are, and those of sections outside the optimizer."""
    found = {one.name for one in space.parameters if sectioned(one.name)[0] in TIMED_SECTIONS}
    for values in (dict(best), *space.branch_defaults()):
        whole = costs.of(values)
        for parameter in space.active(values):
            if whole is None or parameter.name in found:
                continue
            for value in _values_of(parameter, values[parameter.name]):
                cost = costs.of(_moved(space, values, parameter, value))
                if cost is not None and _differs(cost, whole):
                    found.add(parameter.name)
    return frozenset(found)


class _Pricing:
    """Prices the settings that are cheaper than one config."""

    def __init__(
        self, trials: Sequence[EndedTrial], best: EndedTrial, space: SearchSpace, direction: Direction
    ) -> None:
        self._trials, self._best, self._space, self._direction = trials, best, space, direction

    def is_timed(self, trial: EndedTrial) -> bool:
        """True if a trial measured the time of a step on devices like the best one's, and long enough."""
        return bool(trial.seconds_per_step) and trial.place == self._best.place and trial.progress >= PAUSE_SHARES[0]

    def of(
        self, setting: _Setting, model: SideModel | None, clock: SideModel | None, timed: Sequence[EndedTrial]
    ) -> CheaperSetting:
        """The price of one setting."""
        near_best, near = self._near(setting, self._trials)
        objective, basis = self._measured(setting), Basis.MEASURED
        if objective is None:
            basis = Basis.ESTIMATED
            is_known = near >= MIN_NEAR and near_best + near >= MIN_TRIALS and not setting.is_unknown
            objective = model.change(self._best.parameters, setting.values) if model is not None and is_known else None
        seconds = None
        if clock is not None and min(self._near(setting, timed)) >= MIN_NEAR:
            seconds = clock.change(self._best.parameters, setting.values)
        return CheaperSetting(
            parameter=setting.parameter.name,
            best_value=self._best.parameters[setting.parameter.name],
            value=setting.value,
            num_trials=near,
            like=None if setting.like is None else setting.like.number,
            objective=objective,
            basis=None if objective is None else basis,
            step_seconds=seconds,
            step_operations=_share(setting.cost.step_operations, setting.best_cost.step_operations),
            state_bytes=setting.cost.state_bytes,
            best_state_bytes=setting.best_cost.state_bytes,
        )

    def _near(self, setting: _Setting, trials: Sequence[EndedTrial]) -> tuple[int, int]:
        """The numbers of trials with values nearer to the best config's, and of those with values nearer to the
        setting's."""
        parameter, best = setting.parameter, self._best.parameters[setting.parameter.name]
        counts = [0, 0]
        for trial in trials:
            own = next((one for one in self._space.active(trial.parameters) if one.name == parameter.name), None)
            if own is None or own.domain != parameter.domain:
                continue
            to_best, to_value = (
                _distance(parameter, trial.parameters[parameter.name], value) for value in (best, setting.value)
            )
            if isinstance(parameter, Categorical):
                counts[0] += to_best == 0
                counts[1] += to_value == 0
            else:
                counts[to_value < to_best] += 1
        return counts[0], counts[1]

    def _measured(self, setting: _Setting) -> RelativeChange | None:
        """The change to a trial of the setting's config, if it and the best were trained with the same new seeds."""
        own = (setting.like,) if setting.like is not None else self._trials
        changes = (
            measured_change(_again(self._best), _again(trial))
            for trial in own
            if trial is setting.like
            or (
                trial.confirmed
                and _is_twin(trial, self._best, setting.parameter, self._space)
                and _distance(setting.parameter, trial.parameters[setting.parameter.name], setting.value) <= ALIKE
            )
        )
        return next((change for change in changes if change is not None), None)


def _share(value: float, whole: float) -> float:
    return value / whole - 1 if whole else 0.0
