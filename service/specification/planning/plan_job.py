"""The making of a plan: a specification with every default filled in and every field checked."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Literal

from search_spaces import SearchSpace
from service.domain import Objective, Phase, PrunerName, Side
from service.errors import InvalidInput
from service.faults import Faults
from service.specification.external.trials import EXTERNAL
from service.specification.imported import known_points
from service.specification.job import JobSpecification
from service.specification.length import job_length
from service.specification.objectives import check_constraint, objectives_of
from service.specification.phases import allot, allot_sides, check_workload_options, fields_of, pinned_of, spaces_of
from service.specification.planning import agreement
from service.specification.planning.own_workload import described, workload_of
from service.specification.planning.plan import JobPlan
from service.specification.search.method import search_method
from service.specification.search.population import PopulationPlan, plan_populations, refuse_without_pbt
from service.specification.tokens import EVERY as EVERY_TOKENS
from service.specification.tokens import IN_EXAMPLES
from service.specification.trial_lengths.trial_length import JobLength
from trainers.config import InvalidConfig
from trainers.workload.description import WorkloadDescription
from trainers.workload.user_workload import is_reference


def plan_job(specification: JobSpecification, workload: WorkloadDescription | None = None) -> JobPlan:
    """Checks a specification against the registered workloads and the search spaces, and fills in its defaults.

    Args:
        workload: what `workload_of` says of it, where it was asked already.

    Raises:
        InvalidInput: names every field that is impossible by itself, or else those that do not go together.
        WorkloadNotDescribed: the process that was to describe the workload was killed; it may do later.
    """
    faults = Faults()
    own_workload = workload
    with faults.noted():
        own_workload = workload or workload_of(specification)
    objectives: tuple[Objective, ...] = ()
    if own_workload is not None:
        with faults.noted():
            objectives = _checked_objectives(specification, own_workload)
    for check in (
        specification.resources.check,
        specification.training.check_contradictions,
        specification.training.check_averaging,
        functools.partial(agreement.check_external, specification),
        functools.partial(agreement.check_code, specification),
        functools.partial(search_method, specification),
        functools.partial(agreement.check_shards, specification),
        functools.partial(agreement.check_mode, specification),
        functools.partial(allot, specification),
        functools.partial(agreement.check_sides, specification),
    ):
        with faults.noted():
            check()
    faults.tell()
    assert own_workload is not None, "there would have been a fault"
    plan = _planned(specification, own_workload, objectives)
    for side in plan.spaces:
        with faults.noted():
            _check_default_trial(plan, side)
    faults.tell()
    return plan


def check_names(specification: JobSpecification) -> None:
    """Checks what a specification names: its search spaces, and the workload with its options and metrics, unless that
    is the user's own code or trained by clients; and that its training settings go with each other. It is for one of
    which some fields could not be read.

    Raises:
        InvalidInput: names every field.
        WorkloadNotDescribed: as `plan_job`.
    """
    name, faults = specification.workload.name, Faults()
    if name != EXTERNAL and not is_reference(name):
        with faults.noted():
            _checked_objectives(specification, described(name))
    for check in (functools.partial(spaces_of, specification), specification.training.check_contradictions):
        with faults.noted():
            check()
    faults.tell()


def _checked_objectives(specification: JobSpecification, workload: WorkloadDescription) -> tuple[Objective, ...]:
    """The objectives, of a specification whose options and metrics the workload has."""
    objectives, faults = tuple[Objective, ...](), Faults()
    with faults.noted():
        agreement.check_options(workload, specification.workload.options)
    with faults.noted():
        objectives = objectives_of(specification, workload)
    for index, constraint in enumerate(specification.constraints):
        with faults.noted():
            check_constraint(f"constraints[{index}]", constraint, workload, has_target=specification.target is not None)
    faults.tell()
    return objectives


def _planned(
    specification: JobSpecification, workload: WorkloadDescription, objectives: tuple[Objective, ...]
) -> JobPlan:
    """The plan of a specification whose fields are possible, each for itself."""
    sampler, pruner = search_method(specification)
    spaces = spaces_of(specification)
    fields = {side: own.space for side, own in fields_of(specification).items()}
    length = job_length(specification, workload, spaces, fields, pruner=None if pruner == "auto" else pruner)
    spaces = spaces_of(specification, num_steps=length.num_steps)
    side_allotments = allot_sides(specification)
    return JobPlan(
        specification=specification,
        workload=workload,
        objectives=objectives,
        length=length,
        sampler=sampler,
        pruner=pruner,
        first_judged_at=_first_judged_at(specification, length),
        population=_population(specification, pruner, spaces, side_allotments, length),
        spaces=spaces,
        allotments=allot(specification),
        side_allotments=side_allotments,
        pinned=pinned_of(specification, spaces),
        imported=known_points(specification.imported, spaces[Phase.SEARCH], objectives),
    )


def _first_judged_at(specification: JobSpecification, length: JobLength) -> int:
    given = specification.pruner.min_steps
    if given is not None and given > length.num_steps:
        raise InvalidInput("pruner.min_steps", f"{given} exceeds the trial's {length.num_steps} steps")
    return given or max(length.measured_every or 1, length.whole // 4)


def _population(
    specification: JobSpecification,
    pruner: Literal["auto"] | PrunerName,
    spaces: Mapping[Side, SearchSpace],
    allotments: Mapping[Side, int],
    length: JobLength,
) -> PopulationPlan | None:
    if pruner != "pbt":
        refuse_without_pbt(specification)
        return None
    every = length.evaluate_every_examples
    if every is not None and math.ceil(every / length.batch_size) >= length.num_steps:
        in_tokens = specification.training.evaluate_every_tokens is not None
        raise InvalidInput(
            EVERY_TOKENS if in_tokens else IN_EXAMPLES[EVERY_TOKENS],
            f"{every} examples leave 'pbt' no step to compare trials at before the last, {length.num_steps}",
        )
    return plan_populations(
        specification, spaces, allotments, num_steps=length.num_steps, evaluate_every=length.evaluate_every
    )


def check_population_is_measured(plan: JobPlan, num_train_examples: int) -> None:
    """Checks that trials of a population are measured before their last step, where there is nothing left to compare.

    Raises:
        InvalidInput: they are measured by epochs, and one of those is as long as a trial.
    """
    every = plan.specification.training.evaluate_every_epochs
    if plan.population is None or every is None:
        return
    first = math.ceil(every * num_train_examples / plan.length.batch_size - 1e-9)
    if first >= plan.num_steps:
        raise InvalidInput(
            "training.evaluate_every_epochs",
            f"{every:g} epochs are {first} steps, and 'pbt' compares trials every {plan.population.interval} of their "
            f"{plan.num_steps} steps (pruner.interval): nothing is measured before the last of training.num_steps",
        )


def _check_default_trial(plan: JobPlan, side: Side) -> None:
    """Checks that a side's space goes with the workload and the training, by the trial of its defaults."""
    specification, space = plan.specification, plan.spaces[side]
    field = fields_of(specification)[side].space
    check_workload_options(field, space, plan.workload, given=specification.workload.options)
    try:
        config = plan.trial_config(side, space.defaults())
    except InvalidConfig as error:
        section = error.field.partition(".")[0]
        if getattr(specification.training, section, None) is not None:
            raise InvalidInput(f"training.{error.field}", error.message) from error
        raise InvalidInput(field, f"its default trial is impossible: {error}") from error
    except ValueError as error:
        raise InvalidInput(field, f"its default trial is impossible: {error}") from error
    if specification.resources.workers_per_trial == 1 and config.compression is not None:
        where = "training.compression" if specification.training.compression is not None else field
        raise InvalidInput(where, "compression of gradients has no effect with workers_per_trial = 1")
