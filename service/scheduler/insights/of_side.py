"""Insights from the trials of one side: importance, direction, safe ranges, maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search_spaces import Categorical, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active, is_same
from service.domain import Direction, Side, TrialState
from service.evidence.insights import (
    MIN_TRIALS,
    ChoiceInsight,
    Importance,
    ParameterInsight,
    SideInsights,
    Trend,
)
from service.scheduler.insights.compared import MAX_TRIALS, EndedTrial, Standings, compared, sampled, standings
from service.scheduler.insights.early_late import Curve, early_late
from service.scheduler.insights.maps import maps_of
from service.scheduler.insights.predicted_cost import GroupShapes, PredictedCosts
from service.scheduler.insights.prices import best_trial, prices_of
from service.scheduler.insights.ranges import direction_of, good_trials, safe_range
from service.scheduler.policy.searching.sampling.dimensions import Dimensions, dimension_keys


def insights_of_side(
    side: Side,
    space: SearchSpace,
    ended: Sequence[EndedTrial],
    direction: Direction,
    curves: Mapping[str, Curve],
    model: Sequence[GroupShapes] | None = None,
) -> SideInsights:
    """The insights from the ended trials of a side.

    Args:
        curves: the curves of the trials that completed, or of some of them, by the id of the trial.
        model: the parameters of the best trial's model, for a side with Shampoo; None: they are not known.
    """
    known = compared(ended, space)
    seen = sampled(known, at_most=MAX_TRIALS)
    found = SideInsights(
        side=side,
        num_completed=sum(trial.state is TrialState.COMPLETED for trial in known),
        num_pruned=sum(trial.state is TrialState.PRUNED for trial in known),
        num_diverged=sum(trial.has_diverged for trial in known),
        num_left_out=len(ended) - len(known),
        num_sampled=len(seen),
        parameters=[],
        early_late_correlation=early_late(ended, curves),
    )
    standing = standings(seen, direction)
    importance = {} if found.has_few_trials else _importances(seen, standing, space)
    good = good_trials(known, direction)
    told = []
    for key, group in _dimensions(space).items():
        having = {trial.number for trial in _having(group, seen)}
        had = np.array([trial.number in having for trial in seen], dtype=bool)
        insight = _of_parameter(group, seen, standing, had, direction, importance.get(key))
        if insight.trend is not None:
            own, own_good = _having(group, known), _having(group, good)
            insight = dataclasses.replace(insight, safe_range=safe_range(insight.name, own, own_good))
        told.append((insight, group[0], had))
    told.sort(key=lambda entry: (-_share(entry[0].importance), entry[0].label))
    maps = []
    if not found.has_few_trials:
        shown = [entry for entry in told if entry[0].importance is not None]
        told = shown + [entry for entry in told if entry[0].importance is None]
        maps = maps_of([entry[1] for entry in shown], seen, standing, np.array([entry[2] for entry in shown]))
    found = dataclasses.replace(found, parameters=[insight for insight, _, _ in told], maps=maps)
    best = None if model is None else best_trial(known, direction)
    if model is None or best is None:
        return found
    costs = PredictedCosts(space, model, device=best.place.device if best.place else "cpu")
    if not costs.agrees_with(best):
        return found
    prices = prices_of(known, best, space, direction, curves, costs)
    return dataclasses.replace(found, priced_trial=best.number if prices else None, prices=prices)


def _importances(trials: Sequence[EndedTrial], standing: Standings, space: SearchSpace) -> dict[str, Importance]:
    # Optuna's evaluators import scikit-learn, which takes a second: a run that does not need it should not wait.
    from service.scheduler.insights.importance import importances

    return importances(trials, standing, Dimensions(space))


def _share(importance: Importance | None) -> float:
    return -1.0 if importance is None else importance.share


def _dimensions(space: SearchSpace) -> dict[str, list[Parameter]]:
    """The parameters of each dimension by Optuna's name for it."""
    found: dict[str, list[Parameter]] = {}
    for key, parameter in zip(dimension_keys(space), space.parameters, strict=True):
        found.setdefault(key, []).append(parameter)
    return found


def _conditions(group: Sequence[Parameter]) -> list[dict[str, list[Scalar]]]:
    """The conditions of a parameter, merged if they are about the same other parameter."""
    found: list[dict[str, list[Scalar]]] = []
    alone: dict[str, list[Scalar]] = {}
    for parameter in group:
        if len(parameter.when) == 1:
            [(name, allowed)] = parameter.when.items()
            if name not in alone:
                found.append({name: alone.setdefault(name, [])})
            alone[name].extend(allowed)
        else:
            found.append({name: list(allowed) for name, allowed in parameter.when.items()})
    return found


def _having(group: Sequence[Parameter], trials: Sequence[EndedTrial]) -> list[EndedTrial]:
    """The trials that had a parameter, under any of its conditions."""
    return [trial for trial in trials if any(is_active(one, trial.parameters) for one in group)]


def _of_parameter(
    group: Sequence[Parameter],
    trials: Sequence[EndedTrial],
    standing: Standings,
    had: NDArray[np.bool_],
    direction: Direction,
    importance: Importance | None,
) -> ParameterInsight:
    """The insights into one parameter, which may appear under several conditions."""
    parameter, own = group[0], np.flatnonzero(had).tolist()
    found = ParameterInsight(
        name=parameter.name,
        kind=parameter.kind,
        num_trials=len(own),
        active_when=[] if len(own) == len(trials) else _conditions(group),
        importance=importance if len(own) >= MIN_TRIALS else None,
    )
    with_it = [trials[index] for index in own]
    if isinstance(parameter, Categorical):
        return dataclasses.replace(found, choices=_choices(parameter, with_it, standing[own], direction))
    found = dataclasses.replace(found, scale=parameter.scale, low=float(parameter.low), high=float(parameter.high))
    if len(own) < MIN_TRIALS:
        return found
    values = np.array([float(trial.parameters[parameter.name]) for trial in with_it])
    direct = direction_of(values, standing[own], max(5, round(0.1 * len(own))))
    if importance is None or not importance.is_beyond_chance:
        return dataclasses.replace(found, correlation=direct.correlation, trend=Trend.NONE)
    turns_at = None if direct.turns_at is None else float(values[direct.turns_at])
    return dataclasses.replace(found, correlation=direct.correlation, trend=direct.trend, turns_at=turns_at)


def _choices(
    parameter: Categorical, trials: Sequence[EndedTrial], standing: Standings, direction: Direction
) -> list[ChoiceInsight]:
    found = []
    for choice in parameter.choices:
        own = [index for index, trial in enumerate(trials) if is_same(trial.parameters[parameter.name], choice)]
        values = [trials[index].value for index in own if trials[index].has_value]
        reached = [value for value in values if value is not None]
        best = min if direction is Direction.MINIMIZE else max
        found.append(
            ChoiceInsight(
                value=choice,
                num_trials=len(own),
                num_diverged=sum(trials[index].has_diverged for index in own),
                standing=float(np.median(standing[own])) if own else None,
                best_value=best(reached) if reached else None,
            )
        )
    return found
