"""The values that the workload or an optimizer of a job refuses, before any of its trials is launched."""

from __future__ import annotations

import time
from itertools import chain

from search_spaces import Scalar, SearchSpace, presets
from search_spaces.parameters import Categorical, sectioned
from search_spaces.space import FixedValue
from service.domain import Side
from service.errors import InvalidInput
from service.faults import Faults
from service.specification.job import JobSpecification
from service.specification.phases import fields_of, spaces_of
from service.specification.planning import JobPlan, check_population_is_measured
from service.use_cases.estimating.memory_predictor import (
    MemoryPredictor,
    NotPredictable,
    OptimizerRefused,
    WorkloadRefused,
)
from service.use_cases.estimating.option_values import argument_choices, option_values, place_of
from trainers.config import FOR_ADAPTERS
from trainers.workloads.registry import BUILT_IN

MARGIN = 3.0
"""A value of an option is tried only if the time left is this many times that of the slowest earlier one: a process
that is stopped has no answer about memory, either."""


def is_known_to_build(specification: JobSpecification) -> bool:
    """True for a built-in workload without any option, on CPUs, with optimizers for any model whose arguments cannot
    contradict each other: nothing can be refused."""
    named = specification.workload
    if named.name not in BUILT_IN or named.options or specification.resources.gpus_per_worker:
        return False
    spaces = spaces_of(specification).values()
    if any(space.optimizer in FOR_ADAPTERS or not _is_consistent(space) for space in spaces):
        return False
    return not any(sectioned(name)[0] == "workload" for space in spaces for name in _assigned(space))


def _is_consistent(space: SearchSpace) -> bool:
    """True if no arguments of the optimizer contradict each other, judged without the optimizer: for a shipped space,
    and for one that leaves all choices at their defaults."""
    searched = any(isinstance(p, Categorical) and not sectioned(p.name)[0] for p in space.parameters)
    fixed = any(isinstance(value, bool | str | None) and not sectioned(name)[0] for name, value in space.fixed.items())
    return not (searched or fixed) or space in presets().values()


def _assigned(space: SearchSpace) -> list[str]:
    return [*(parameter.name for parameter in space.parameters), *space.fixed]


def build_defaults(
    predictor: MemoryPredictor, plan: JobPlan, *, start_seconds: float, data_are_here: bool
) -> dict[Side, int]:
    """Bytes of each side's default trial, whose workload and model are built.

    Raises:
        NotPredictable: they cannot be built, or not in time.
        InvalidInput: as `memory_estimates.predict_job`.
    """
    # The first one takes as long as the imports; later ones take milliseconds.
    started_by = time.monotonic() + start_seconds
    found: dict[Side, int] = {}
    for side, space in plan.spaces.items():
        field, config = fields_of(plan.specification)[side].space, plan.trial_config(side, space.defaults())
        try:
            found[side] = predictor.predict(config, timeout_seconds=started_by - time.monotonic())
        except OptimizerRefused as error:
            why = f"its default trial is impossible: {error}" if error.is_of_arguments else str(error)
            raise InvalidInput(field, why) from error
        except WorkloadRefused as error:
            if not data_are_here:
                raise
            place = place_of(space, error.option)
            if place is not None:
                raise InvalidInput(f"{field}.{place}", str(error)) from error
            values = ", ".join(f"{name} = {value!r}" for name, value in _default_options(space).items())
            if error.option or not values:
                raise InvalidInput(error.field, str(error)) from error
            if plan.specification.workload.options:
                raise InvalidInput(error.field, f"{error}; the default trial has {values}") from error
            raise InvalidInput(field, f"its default trial, with {values}, is impossible: {error}") from error
    if data_are_here and predictor.num_train_examples is not None:
        check_population_is_measured(plan, predictor.num_train_examples)
    _check_values(predictor, plan, started_by=started_by, data_are_here=data_are_here)
    return found


def _default_options(space: SearchSpace) -> dict[str, FixedValue]:
    """The options of the workload that the default trial of a space has from it."""
    assigned: dict[str, FixedValue] = {**space.fixed, **space.defaults()}
    return {name: value for name, value in assigned.items() if sectioned(name)[0] == "workload"}


def _check_values(predictor: MemoryPredictor, plan: JobPlan, *, started_by: float, data_are_here: bool) -> None:
    """Checks the values that the job searches for its workload's options, if the data are here, and for its optimizers'
    arguments, as time allows: otherwise a refusal would end a trial later.

    Raises:
        InvalidInput: a value is refused with the defaults, and with all other values that were tried with it.
    """
    faults, longest = Faults(), 0.0
    for side, space in plan.spaces.items():
        field = fields_of(plan.specification)[side].space
        told: set[str] = set()
        for option in chain(option_values(space) if data_are_here else (), argument_choices(space)):
            if option.field in told:
                continue  # for another value inside the range
            refusal: str | None = None
            for trial in option.trials:
                began = time.monotonic()
                if began + MARGIN * longest > started_by:
                    refusal = None
                    break
                refusal = _refusal(predictor, plan, side, trial, timeout_seconds=started_by - began)
                longest = max(longest, time.monotonic() - began)
                if refusal is None:
                    break
            if refusal is not None:
                told.add(option.field)
                advice = "; give the values that it takes as choices" if option.is_inside else ""
                message = f"{option.name} = {option.value!r}: {refusal}{advice}"
                faults.note(InvalidInput(f"{field}.{option.field}", message))
    faults.tell()


def _refusal(
    predictor: MemoryPredictor, plan: JobPlan, side: Side, trial: dict[str, Scalar], *, timeout_seconds: float
) -> str | None:
    """The reason why the workload, or the optimizer because of the model, refuses a trial; None: no refusal is
    known."""
    try:
        predictor.predict(plan.trial_config(side, trial), timeout_seconds=timeout_seconds)
    except (WorkloadRefused, OptimizerRefused) as error:
        return str(error)
    except (NotPredictable, ValueError):
        return None
    return None
