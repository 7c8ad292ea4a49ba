"""The populations of a job whose pruner is `pbt`, population based training: sizes and interval, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces import SearchSpace, may_change_in_flight
from service.domain import Phase, Side
from service.errors import InvalidInput, TooFewTrials
from service.specification.job import JobSpecification
from service.specification.phases import fields_of

DEFAULT_POPULATION = 8
"""Members, by judgement: a job's trials are few beside those of the paper; half of them if that is less."""
DEFAULT_INTERVALS = 10
"""Intervals in a whole trial."""
MIN_KEPT_CHECKPOINTS = 2
"""A fork begins from the checkpoint of its parent's last ready step, while that one writes the next."""


@dataclass(frozen=True, slots=True)
class PopulationPlan:
    """The populations of a job, and how often their trials are compared."""

    sizes: Mapping[Side, int]
    interval: int
    """Steps between ready steps, each with a checkpoint."""


def plan_populations(
    specification: JobSpecification,
    spaces: Mapping[Side, SearchSpace],
    allotments: Mapping[Side, int],
    *,
    num_steps: int,
    evaluate_every: int | None,
) -> PopulationPlan:
    """The populations of a job whose pruner is `pbt`.

    Raises:
        InvalidInput: names the first field that does not go with it.
    """
    pruner, training = specification.pruner, specification.training
    for name in ("min_steps", "reduction_factor"):
        if getattr(pruner, name) is not None:
            raise InvalidInput(f"pruner.{name}", f"has no effect with 'pbt', got {getattr(pruner, name)}")
    if specification.confirmation not in (None, "auto"):
        raise InvalidInput(
            "confirmation",
            "does not go with the pruner 'pbt': what its best trial reached, it reached with a schedule of "
            "hyperparameters over several trials, and a confirmation trains one config from the start",
        )
    if training.evaluate_every_seconds is not None:
        raise InvalidInput(
            "training.evaluate_every_seconds",
            "does not go with the pruner 'pbt', which compares trials at equal steps, got "
            f"{training.evaluate_every_seconds}",
        )
    if training.checkpoint_every is not None:
        raise InvalidInput(
            "training.checkpoint_every",
            f"has no effect with the pruner 'pbt', which takes a checkpoint every pruner.interval steps, got "
            f"{training.checkpoint_every}",
        )
    if training.keep_checkpoints < MIN_KEPT_CHECKPOINTS:
        raise InvalidInput(
            "training.keep_checkpoints",
            f"must be at least {MIN_KEPT_CHECKPOINTS} with the pruner 'pbt', got {training.keep_checkpoints}: trials "
            "begin from the checkpoints of others",
        )
    for side, space in spaces.items():
        if not any(may_change_in_flight(space, parameter) for parameter in space.parameters):
            field = fields_of(specification)[side].space
            names = ", ".join(sorted(parameter.name for parameter in space.parameters)) or "none"
            raise InvalidInput(
                field, f"has no parameter that may change in training, as 'pbt' wants to (its parameters: {names})"
            )
    return PopulationPlan(
        population_sizes(pruner.population, allotments),
        _interval(pruner.interval, num_steps=num_steps, evaluate_every=evaluate_every),
    )


def refuse_without_pbt(specification: JobSpecification) -> None:
    """Checks that nothing is asked for that only `pbt` has.

    Raises:
        InvalidInput: it is.
    """
    for name in ("population", "interval"):
        value = getattr(specification.pruner, name)
        if value is not None:
            raise InvalidInput(f"pruner.{name}", f"has no effect without the pruner 'pbt', got {value}")


def population_sizes(given: int | None, allotments: Mapping[Side, int]) -> dict[Side, int]:
    """The number of trials of each side that train at once.

    Raises:
        TooFewTrials: the search has too few for any population.
        InvalidInput: it has too few for `given`.
    """
    num_search = allotments[Phase.SEARCH]
    if given is not None and given >= num_search:
        raise InvalidInput(
            "pruner.population", f"{given} leaves none of the search's {num_search} trials for forks of the best"
        )
    if num_search < 3:
        raise TooFewTrials(f"'pbt' needs at least 3 trials of the search, which has {num_search}")
    of_search = given or min(DEFAULT_POPULATION, max(2, num_search // 2))
    return {
        side: of_search if side == Phase.SEARCH else min(of_search, max(2, num // 2))
        for side, num in allotments.items()
    }


def _interval(given: int | None, *, num_steps: int, evaluate_every: int | None) -> int:
    unit = evaluate_every or 1
    interval = given or max(1, round(num_steps / DEFAULT_INTERVALS / unit)) * unit
    if interval % unit:
        raise InvalidInput("pruner.interval", f"{interval} is no multiple of training.evaluate_every = {unit}")
    if interval >= num_steps:
        if given is None:
            raise InvalidInput(
                "training.evaluate_every",
                f"{unit} leaves 'pbt' no step to compare trials at before the last, {num_steps}",
            )
        raise InvalidInput("pruner.interval", f"{interval} must be below the trial's {num_steps} steps")
    return interval
