"""The plan of a job: its specification with every default filled in and every field checked. Its run follows it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import JsonValue

from search_spaces import Scalar, SearchSpace, SpaceError
from search_spaces.nearest import did_you_mean
from search_spaces.parameters import sectioned
from service.domain import Direction, Objective, Phase, PrunerName, Side, side_of
from service.errors import InvalidInput, WorkloadNotDescribed
from service.faults import Faults
from service.specification.external.trials import EXTERNAL, describe_external
from service.specification.imported import KnownPoint, known_points
from service.specification.job import JobSpecification, SamplerReference
from service.specification.length import JobLength, job_length, parts_of_batch, told_parts
from service.specification.objectives import check_constraint, objectives_of, summaries_of, target_of
from service.specification.phases import (
    ConfirmationSizes,
    allot,
    allot_sides,
    check_workload_options,
    confirmation_of,
    fields_of,
    pinned_of,
    spaces_of,
)
from service.specification.search.method import SamplerOfJob, search_method
from service.specification.search.population import PopulationPlan, plan_populations, refuse_without_pbt
from service.specification.workloads import describe_workload
from trainers.config import MAX_SEED, SUMMARY_PREFIXES, InvalidConfig, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.workload.description import WorkloadDescription
from trainers.workload.user_workload import is_reference
from trainers.workloads.describe import DescriptionKilled
from trainers.workloads.registry import check_options

BEYOND_BOUNDS_HINT = ' (the range of the search space; with "beyond_bounds": true, --beyond-bounds, it is tried anyway)'


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A checked specification with every default filled in."""

    specification: JobSpecification
    workload: WorkloadDescription
    objectives: tuple[Objective, ...]
    """The one that counts first."""
    length: JobLength
    """The steps, measurements and batch sizes of its trials."""
    sampler: SamplerOfJob
    pruner: Literal["auto"] | PrunerName
    """`auto`: the sampler of that name pauses trials itself."""
    first_judged_at: int
    """What a trial has done, in steps or where those differ in examples, before a pruner judges it."""
    population: PopulationPlan | None
    """With the pruner `pbt`, and only then."""
    spaces: dict[Side, SearchSpace]
    """The search's first, then the baselines' in their order."""
    allotments: dict[Phase, int]
    """Trials of each phase; of the confirmation about so many: fewer if fewer configs completed, more if some fail."""
    side_allotments: dict[Side, int]
    """Trials of each side."""
    pinned: dict[Side, tuple[dict[str, Scalar], ...]]
    """Assignments that a side tries first, after the defaults."""
    imported: tuple[KnownPoint, ...]
    """What the search's sampler is told before the first trial."""

    @property
    def num_steps(self) -> int:
        """Steps of a full trial; where trials differ in their batch sizes, of the longest."""
        return self.length.num_steps

    @property
    def metric(self) -> str:
        """Of the first objective."""
        return self.objectives[0].metric

    @property
    def direction(self) -> Direction:
        """Of the first objective."""
        return self.objectives[0].direction

    @property
    def num_trials(self) -> int:
        """Trials of all phases."""
        return sum(self.allotments.values())

    @property
    def confirmation(self) -> ConfirmationSizes | None:
        """None: there is none."""
        return confirmation_of(self.specification)

    @property
    def confirmation_seeds(self) -> list[int]:
        """The new seeds, those that choose first; empty without a confirmation."""
        return confirmation_seeds(self.specification)

    @property
    def baselines(self) -> list[Side]:
        """The optimizers of the baselines, in their order."""
        return [side for side in self.spaces if side != Phase.SEARCH]

    def trial_config(self, side: Side, parameters: dict[str, Any], *, seed: int | None = None) -> TrialConfig:
        """The config of a trial of this side with these sampled values ({parameter name: value}).

        Args:
            seed: None: the job's.
        """
        space, requested, length = self.spaces[side], self.specification, self.length
        assignment = space.assign(parameters)
        training = dataclasses.replace(
            requested.training.with_assigned(assignment),
            evaluate_every=length.evaluate_every,
            evaluate_every_examples=length.evaluate_every_examples,
        )
        batch_size = training.batch_size or length.batch_size
        if batch_size % parts_of_batch(requested):
            raise InvalidConfig("batch_size", f"{batch_size} is not divisible by {told_parts(requested)}")
        of_trial = length.of_trial(batch_size)
        if self.population is not None:
            training = dataclasses.replace(training, checkpoint_every=self.population.interval)
        if seed is not None:
            training = dataclasses.replace(training, seed=seed)
        return TrialConfig.of(
            training,
            workload=self.workload.name,
            workload_options={**requested.workload.options, **assignment.workload_options},
            optimizer=OptimizerConfig(space.optimizer, dict(assignment.optimizer_arguments)),
            schedule=ScheduleConfig(**assignment.schedule),
            num_steps=length.num_steps if of_trial is None else of_trial.num_steps,
            batch_size=batch_size,
            target=target_of(requested, self.workload),
            summaries=summaries_of(requested, self.workload),
        )


def confirmation_seeds(specification: JobSpecification) -> list[int]:
    """The new seeds of a job's confirmation: those after the one that all other trials have."""
    sizes, seed = confirmation_of(specification), specification.training.seed
    return [(seed + 1 + index) % (MAX_SEED + 1) for index in range(sizes.num_seeds if sizes else 0)]


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
            _check_options(own_workload, specification.workload.options)
        with faults.noted():
            objectives = objectives_of(specification, own_workload)
        for index, constraint in enumerate(specification.constraints):
            with faults.noted():
                check_constraint(
                    f"constraints[{index}]", constraint, own_workload, has_target=specification.target is not None
                )
    for check in (
        specification.resources.check,
        specification.training.check_averaging,
        functools.partial(_check_external, specification),
        functools.partial(_check_code, specification),
        functools.partial(search_method, specification),
        functools.partial(_check_shards, specification),
        functools.partial(_check_mode, specification),
        functools.partial(allot, specification),
        functools.partial(_check_sides, specification),
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


def _planned(
    specification: JobSpecification, workload: WorkloadDescription, objectives: tuple[Objective, ...]
) -> JobPlan:
    """The plan of a specification whose fields are possible, each for itself."""
    sampler, pruner = search_method(specification)
    spaces = spaces_of(specification)
    fields = {side: own.space for side, own in fields_of(specification).items()}
    length = job_length(specification, workload, spaces, fields, pruner=None if pruner == "auto" else pruner)
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


def _check_sides(specification: JobSpecification) -> None:
    """Checks the search spaces, and what they try first."""
    pinned_of(specification, spaces_of(specification))


def _check_mode(specification: JobSpecification) -> None:
    mode = specification.training.parallelism.mode
    if specification.resources.workers_per_trial == 1 and mode != "ddp":
        raise InvalidInput("training.parallelism.mode", f"{mode!r} has no effect with workers_per_trial = 1")


def workload_of(specification: JobSpecification) -> WorkloadDescription:
    """The description of a job's workload: `described`, or what the job itself says of one that its clients train.

    Raises:
        InvalidInput, WorkloadNotDescribed: as `plan_job`.
    """
    name, external, training = specification.workload.name, specification.external, specification.training
    if name != EXTERNAL:
        return described(name)
    if external is None or not external.metrics:
        raise InvalidInput("external.metrics", f"is required with workload {EXTERNAL!r}: what its clients measure")
    if all(length is None for length in (training.num_steps, training.num_examples)):
        raise InvalidInput("training.num_steps", f"is required with workload {EXTERNAL!r}: its length is not known")
    named = {
        name
        for space in spaces_of(specification).values()
        for section, name in map(sectioned, [*(parameter.name for parameter in space.parameters), *space.fixed])
        if section == "workload"
    }
    options = {**dict.fromkeys(sorted(named)), **specification.workload.options}
    return describe_external(external.metrics, options, batch_size=parts_of_batch(specification))


def _check_code(specification: JobSpecification) -> None:
    if specification.code is None:
        return
    if specification.external is not None:
        raise InvalidInput("code", "has no effect: trials are trained by others, with code of their own")
    names_class = is_reference(specification.workload.name) or isinstance(specification.sampler.name, SamplerReference)
    if not names_class:
        raise InvalidInput("code", "has no effect: neither workload.name nor sampler.name is a module:Class")


def _check_external(specification: JobSpecification) -> None:
    if specification.external is None:
        return
    if specification.workload.name != EXTERNAL and specification.external.metrics:
        raise InvalidInput(
            "external.metrics", f"has no effect: the workload {specification.workload.name!r} says what is measured"
        )
    if specification.pruner.name == "pbt":
        raise InvalidInput("pruner.name", "'pbt' forks checkpoints, and those of external trials are their clients'")
    if specification.target is not None:
        raise InvalidInput("target", "has no effect on external trials, whose clients measure what they like")
    for index, choice in enumerate(specification.objectives):
        if choice.metric.startswith(SUMMARY_PREFIXES) and choice.metric not in specification.external.metrics:
            field = f"objectives[{index}].metric"
            raise InvalidInput(field, f"{choice.metric!r} is what the service's own training sums up of a curve")


def _check_shards(specification: JobSpecification) -> None:
    shard_size, workers = specification.training.parallelism.shard_size, specification.resources.workers_per_trial
    if shard_size is not None and workers % shard_size:
        raise InvalidInput(
            "training.parallelism.shard_size", f"{shard_size} does not divide workers_per_trial = {workers}"
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
        raise InvalidInput(
            "training.evaluate_every_examples",
            f"{every} leaves 'pbt' no step to compare trials at before the last, {length.num_steps}",
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


def proposed_side(plan: JobPlan, phase: Phase, optimizer: str | None) -> Side:
    """The side of a trial that is proposed for a phase.

    Args:
        optimizer: of the baseline; None: of the only one, or of the search.

    Raises:
        InvalidInput: the job has no such side; names the field.
    """
    sides = list(plan.spaces) if phase is Phase.SEARCH else plan.baselines
    if phase not in plan.allotments or phase is Phase.CONFIRMATION:
        known = ", ".join(phase for phase in plan.allotments if phase is not Phase.CONFIRMATION)
        raise InvalidInput("phase", f"trials can be proposed for {known}, got {phase.value!r}")
    if optimizer is None and (phase is Phase.SEARCH or len(sides) == 1):
        return sides[0]
    known = ", ".join(plan.spaces[side].optimizer for side in (sides[:1] if phase is Phase.SEARCH else sides))
    if optimizer is None:
        raise InvalidInput("optimizer", f"must say which baseline: {known}")
    side = side_of(phase, optimizer)
    if side not in sides or plan.spaces[side].optimizer != optimizer:
        raise InvalidInput("optimizer", f"the {phase} tunes {known}, got {optimizer!r}")
    return side


def check_proposal(
    plan: JobPlan, side: Side, given: Mapping[str, JsonValue], *, beyond_bounds: bool = False
) -> tuple[dict[str, Scalar], TrialConfig]:
    """The values of a proposed trial, those left out at their defaults, and its config.

    Args:
        beyond_bounds: whether numbers may lie beyond the space's ranges, as far as the optimizer accepts them.

    Raises:
        InvalidInput: the side's space has no such values; names the field.
    """
    space = plan.spaces[side]
    names = {parameter.name for parameter in space.parameters}
    faults = Faults()
    for name in sorted(given.keys() - names):
        known = ", ".join(sorted(names)) or "none"
        hint = did_you_mean(name, names)
        faults.note(
            InvalidInput(f"parameters.{name}", f"is not a parameter of the {side} space (known: {known}){hint}")
        )
    faults.tell()
    try:
        values = space.defaults(given, beyond_bounds=beyond_bounds)  # type: ignore[arg-type]  # it checks the values
    except SpaceError as error:
        hint = "" if beyond_bounds or not _is_possible(space, given) else BEYOND_BOUNDS_HINT
        raise InvalidInput(f"parameters.{error.field}", error.message + hint) from error
    try:
        return values, plan.trial_config(side, values)
    except ValueError as error:
        raise InvalidInput("parameters", f"give an impossible trial: {error}") from error


def _is_possible(space: SearchSpace, given: Mapping[str, JsonValue]) -> bool:
    try:
        space.defaults(given, beyond_bounds=True)  # type: ignore[arg-type]  # it checks the values
    except SpaceError:
        return False
    return True


def described(name: str) -> WorkloadDescription:
    """The description of a workload by its name; of one that is not built in, a process tells it, for seconds.

    Raises:
        InvalidInput: there is none, or it does not describe itself.
        WorkloadNotDescribed: the process was killed; it may do later.
    """
    try:
        return describe_workload(name)
    except DescriptionKilled as error:
        raise WorkloadNotDescribed(error.message) from error
    except InvalidConfig as error:
        raise InvalidInput("workload.name", error.message) from error


def _check_options(workload: WorkloadDescription, options: Mapping[str, JsonValue]) -> None:
    try:
        check_options(workload, options)
    except InvalidConfig as error:
        raise InvalidInput(error.field.replace("workload_options", "workload.options"), error.message) from error
