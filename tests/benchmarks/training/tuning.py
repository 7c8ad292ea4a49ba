"""The same search for every optimizer: the service's own sampler over its presets, an equal number of trials each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.policy.searching.phase_search import TrialOutcome
from service.scheduler.policy.searching.samplers import make_sampler
from tests.benchmarks.training.training_runs import Curve, Recipe
from trainers.config import OptimizerConfig, ScheduleConfig


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice of hyperparameters and what came of it."""

    parameters: dict[str, Scalar]
    recipe: Recipe
    curve: Curve


def search(
    searched: SearchSpace,
    *,
    num_trials: int,
    seed: str,
    train: Callable[[Recipe], Curve],
    ended: Callable[[Trial], None],
) -> list[Trial]:
    """Trains `num_trials` choices one after the other: the preset's defaults (one for each branch), then what TPE asks.

    In sequence, so that what is tried depends on `seed` alone, not on the number of processes.
    """
    sampler = make_sampler("tpe", searched, directions=[Direction.MINIMIZE], num_trials=num_trials, seed=seed)
    defaults = searched.branch_defaults()
    trials: list[Trial] = []
    for number in range(num_trials):
        if number < len(defaults):
            parameters = defaults[number]
            sampler.begin(number, parameters)
        else:
            suggested = sampler.suggest(number)
            assert suggested is not None, "TPE always has one more"
            parameters = suggested
        chosen = recipe(searched, parameters)
        curve = train(chosen)
        sampler.finish(number, _outcome(curve))
        trials.append(Trial(parameters, chosen, curve))
        ended(trials[-1])
    return trials


def recipe(searched: SearchSpace, parameters: dict[str, Scalar]) -> Recipe:
    """The part of a trial's config that the parameters give."""
    assigned = searched.assign(parameters)
    # The presets search nothing else.
    assert not assigned.workload_options
    assert not assigned.training
    return Recipe(
        OptimizerConfig(assigned.optimizer, assigned.optimizer_arguments), ScheduleConfig(**assigned.schedule)
    )


def replaced(given: Recipe, *, arguments: Mapping[str, Any], fields: Mapping[str, Any]) -> Recipe:
    """The recipe with other arguments of the optimizer and other fields of the config."""
    optimizer = dataclasses.replace(given.optimizer, arguments={**given.optimizer.arguments, **arguments})
    return dataclasses.replace(given, optimizer=optimizer, fields={**given.fields, **fields})


def best(trials: list[Trial]) -> Trial:
    """The trial with the least validation loss at any of its measurements."""
    return min(trials, key=lambda trial: trial.curve.best)


def _outcome(curve: Curve) -> TrialOutcome:
    points = tuple(zip(curve.steps, curve.losses, strict=True))
    if math.isfinite(curve.best):
        return TrialOutcome(TrialState.COMPLETED, None, (curve.best,), points)
    return TrialOutcome(TrialState.FAILED, FailureReason.DIVERGED, (), points)
