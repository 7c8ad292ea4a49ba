"""The same search for every optimizer, and the changes of its winner that are compared: one for each option.

The search is the service's own sampler over its presets, an equal number of trials each.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.policy.searching.phase_search import TrialOutcome
from service.scheduler.policy.searching.samplers import make_sampler
from tests.benchmarks.training.training_runs import Curve, Recipe
from trainers.config import AveragingConfig, OptimizerConfig, ParallelismConfig, ScheduleConfig

TUNED = ("adamw", "shampoo", "soap", "kl")
OPTIMIZERS = (*TUNED[1:], "spectral", "cosmos", "lora-rite")
"""Optimizers that can be compared with AdamW."""

_FACTORED = ("shampoo", "soap", "kl")
_BOUNDED = ("shampoo", "soap")
_FAMILY = (*_FACTORED, "spectral")


@dataclass(frozen=True, slots=True)
class Variant:
    """Changes of an optimizer's winner."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the optimizer that are changed."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the trial's config that are changed."""
    of: tuple[str, ...] = ("adamw", *OPTIMIZERS)
    num_ranks: int = 1


VARIANTS = {
    "int4": Variant(arguments={"state_dtype": "int4"}, of=("shampoo",)),
    "int8": Variant(arguments={"state_dtype": "int8"}, of=_FACTORED),
    "half": Variant(arguments={"exponent_override": 0.5}, of=("shampoo",)),
    "root-free": Variant(arguments={"exponent_override": 1.0}, of=("shampoo",)),
    "pseudo-inverse": Variant(arguments={"pseudo_inverse": True}, of=("shampoo",)),
    "absolute": Variant(arguments={"epsilon_type": "absolute"}, of=("shampoo", "kl")),
    "newton": Variant(arguments={"solver": "coupled_newton"}, of=("shampoo",)),
    "qr": Variant(arguments={"solver": "qr"}, of=_FACTORED),
    "one-sided": Variant(arguments={"one_sided": True}, of=_FACTORED),
    "long-diagonal": Variant(
        arguments={"max_preconditioner_dim": 64, "large_dim_method": "diagonal"}, of=("shampoo", "kl")
    ),
    "tolerant": Variant(arguments={"refresh_tolerance": 0.1}, of=_FACTORED),
    "rare-statistics": Variant(arguments={"statistics_frequency": 2, "precondition_frequency": 10}, of=_BOUNDED),
    "late": Variant(arguments={"start_preconditioning_step": 20}, of=_BOUNDED),
    "at-once": Variant(arguments={"stagger_refresh": False}, of=_FACTORED),
    "uncorrected": Variant(arguments={"use_bias_correction": False}, of=_FAMILY),
    "nadam": Variant(arguments={"beta3": 0.81}, of=_FAMILY),
    "nesterov": Variant(arguments={"betas": [0.0, 0.95], "momentum": 0.9, "nesterov": True}, of=("spectral",)),
    "slow-factors": Variant(arguments={"shampoo_beta": 0.999}, of=("soap",)),
    "rmsprop-length": Variant(
        arguments={"grafting": "rmsprop", "grafting_beta2": 0.95, "grafting_epsilon": 1e-6}, of=("shampoo",)
    ),
    "swan": Variant(arguments={"standardize_rows": True, "betas": [0.0, 0.95]}, of=("spectral",)),
    "rows": Variant(arguments={"matrix_norm": "rows"}, of=("spectral",)),
    "bfloat16-products": Variant(arguments={"product_dtype": "bfloat16"}, of=_FAMILY),
    "bfloat16": Variant(fields={"precision": "bfloat16"}),
    "ema": Variant(fields={"averaging": AveragingConfig("ema", {"decay": 0.98})}),
    "lawa": Variant(fields={"averaging": AveragingConfig("lawa", {"num_snapshots": 5, "update_frequency": 4})}),
    "fsdp2": Variant(fields={"parallelism": ParallelismConfig("fsdp2")}, num_ranks=2),
}
VARIANT_OF = "+"
"""Text between an optimizer's name and that of a variant."""


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
