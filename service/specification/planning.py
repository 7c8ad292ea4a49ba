"""From a job specification to the plan that a run follows: every default filled in, every field checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import JsonValue

from search_spaces import Scalar, SearchSpace, SpaceError, algoperf_points, preset, presets
from service.domain import Direction, Phase, PrunerName, SamplerName
from service.errors import InvalidInput, WorkloadNotDescribed
from service.specification.job import Constraint, EarlierWinner, JobSpecification, Objective, Pinned, WorkloadChoice
from service.specification.population import PopulationPlan, plan_populations, refuse_without_pbt
from service.specification.strict_model import MAX_SEED
from service.specification.workloads import describe_workload
from trainers.config import SUMMARY_PREFIXES, InvalidConfig, TrialConfig
from trainers.workload.description import LOOP_METRICS, TARGET_METRICS, WorkloadDescription, split_summary
from trainers.workloads.describe import DescriptionKilled
from trainers.workloads.registry import check_options


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A checked specification with every default filled in."""

    specification: JobSpecification
    workload: WorkloadDescription
    metric: str
    direction: Direction
    further: tuple[tuple[str, Direction], ...]
    """Metric and direction of the objectives after the first."""
    num_steps: int
    evaluate_every: int | None
    """Null: trials are measured by epochs or seconds."""
    batch_size: int
    sampler: Literal["auto"] | SamplerName
    pruner: Literal["auto"] | PrunerName
    """`auto`: the sampler of that name pauses trials itself."""
    min_pruning_steps: int
    population: PopulationPlan | None
    """With the pruner `pbt`, and only then."""
    spaces: dict[Phase, SearchSpace]
    allotments: dict[Phase, int]
    """Trials of each phase; of the confirmation at most so many: fewer if fewer configs completed."""
    pinned: dict[Phase, tuple[dict[str, Scalar], ...]]
    """Assignments that a phase tries first, after the defaults."""

    @property
    def num_trials(self) -> int:
        """Trials of all phases."""
        return sum(self.allotments.values())

    @property
    def confirmation_seeds(self) -> list[int]:
        """The new seeds: those after the one that all other trials have."""
        confirmation, seed = self.specification.confirmation, self.specification.training.seed
        num_seeds = 0 if confirmation is None else confirmation.num_seeds
        return [(seed + 1 + index) % (MAX_SEED + 1) for index in range(num_seeds)]

    def trial_config(self, phase: Phase, parameters: dict[str, Any], *, seed: int | None = None) -> TrialConfig:
        """The config of a trial of search or baseline with these sampled values ({parameter name: value}).

        Args:
            seed: None: the job's.
        """
        space = self.spaces[phase]
        assignment = space.assign(parameters)
        return TrialConfig.from_json(
            {
                "workload": self.workload.name,
                "workload_options": {**self.specification.workload.options, **assignment.workload_options},
                "optimizer": {"name": space.optimizer, "arguments": dict(assignment.optimizer_arguments)},
                "schedule": assignment.schedule,
                "num_steps": self.num_steps,
                "batch_size": self.batch_size,
                "evaluate_every": self.evaluate_every,
                **measured_fields(self.specification.objective, self.workload),
                **self.specification.training.trial_fields(assignment),
                **({} if self.population is None else {"checkpoint_every": self.population.interval}),
                **({} if seed is None else {"seed": seed}),
            }
        )


def plan_job(specification: JobSpecification) -> JobPlan:
    """Checks a specification against the registered workloads and the search spaces, and fills in its defaults.

    Raises:
        InvalidInput: names the first field that is impossible.
        WorkloadNotDescribed: the process that was to describe the workload was killed; it may do later.
    """
    workload = _workload(specification.workload)
    metric, direction = _objective(specification.objective, workload)
    further = _further(specification.objective, workload)
    for index, constraint in enumerate(specification.constraints):
        _check_constraint(f"constraints[{index}]", constraint, specification.objective, workload)
    training = specification.training
    specification.resources.check()
    if training.averaging is not None:
        training.averaging.check_arguments()
    num_steps = training.num_steps or workload.default_num_steps
    evaluate_every = training.evaluate_every
    if evaluate_every is None and training.evaluate_every_epochs is None and training.evaluate_every_seconds is None:
        evaluate_every = min(workload.default_evaluate_every, num_steps)
    if evaluate_every is not None and evaluate_every > num_steps:
        raise InvalidInput("training.evaluate_every", f"{evaluate_every} exceeds the trial's {num_steps} steps")
    batch_size = training.batch_size or workload.default_batch_size
    workers = specification.resources.workers_per_trial
    if batch_size % (workers * training.accumulation_steps):
        parts = f"workers_per_trial = {workers}"
        if training.accumulation_steps > 1:
            parts += f" times accumulation_steps = {training.accumulation_steps}"
        raise InvalidInput("training.batch_size", f"{batch_size} is not divisible by {parts}")
    shard_size = training.parallelism.shard_size
    if shard_size is not None and workers % shard_size:
        raise InvalidInput(
            "training.parallelism.shard_size", f"{shard_size} does not divide workers_per_trial = {workers}"
        )
    min_pruning_steps = specification.pruner.min_steps or max(evaluate_every or 1, num_steps // 4)
    if specification.pruner.min_steps is not None and min_pruning_steps > num_steps:
        raise InvalidInput("pruner.min_steps", f"{min_pruning_steps} exceeds the trial's {num_steps} steps")

    sampler, pruner = _search(specification)
    spaces = {Phase.SEARCH: _space("search_space", specification.search_space)}
    if specification.baseline is not None:
        spaces[Phase.BASELINE] = _space("baseline.search_space", specification.baseline.search_space)
    pinned = {Phase.SEARCH: _pinned("pinned", specification.pinned, spaces[Phase.SEARCH])}
    if specification.baseline is not None:
        pinned[Phase.BASELINE] = _pinned("baseline.pinned", specification.baseline.pinned, spaces[Phase.BASELINE])
    allotments = allot(specification)
    population = None
    if pruner == "pbt":
        population = plan_populations(
            specification, spaces, allotments, num_steps=num_steps, evaluate_every=evaluate_every
        )
    else:
        refuse_without_pbt(specification)
    plan = JobPlan(
        specification=specification,
        workload=workload,
        metric=metric,
        direction=direction,
        further=further,
        num_steps=num_steps,
        evaluate_every=evaluate_every,
        batch_size=batch_size,
        sampler=sampler,
        pruner=pruner,
        min_pruning_steps=min_pruning_steps,
        population=population,
        spaces=spaces,
        allotments=allotments,
        pinned=pinned,
    )
    for phase, space in spaces.items():
        field = "search_space" if phase is Phase.SEARCH else "baseline.search_space"
        _check_workload_options(field, space, workload, given=specification.workload.options)
        try:
            config = plan.trial_config(phase, space.defaults())
        except InvalidConfig as error:
            section = error.field.partition(".")[0]
            if section in training.model_fields_set:
                raise InvalidInput(f"training.{error.field}", error.message) from error
            raise InvalidInput(field, f"its default trial is impossible: {error}") from error
        except ValueError as error:
            raise InvalidInput(field, f"its default trial is impossible: {error}") from error
        if workers == 1 and config.compression is not None:
            where = "training.compression" if training.compression is not None else field
            raise InvalidInput(where, "compression of gradients has no effect with workers_per_trial = 1")
    if workers == 1 and training.parallelism.mode != "ddp":
        raise InvalidInput(
            "training.parallelism.mode", f"{training.parallelism.mode!r} has no effect with workers_per_trial = 1"
        )
    return plan


def allot(specification: JobSpecification) -> dict[Phase, int]:
    """How many trials each phase gets; the confirmation fewer, if fewer configs complete than it is to confirm.

    More trials for the job are never fewer for a phase.

    Raises:
        InvalidInput: there are too few for the phases.
    """
    budget, baseline = specification.budget, specification.baseline
    num_trials = budget.num_trials
    allotments = {Phase.SEARCH: num_trials}
    if baseline is None and budget.extra_baseline_trials:
        raise InvalidInput("budget.extra_baseline_trials", "has no effect without a baseline")
    if baseline is not None:
        if num_trials < 2:
            raise InvalidInput("budget.num_trials", f"a job with a baseline needs at least 2 trials, got {num_trials}")
        of_baseline = min(max(round(num_trials * baseline.budget_share), 1), num_trials - 1)
        allotments = {
            Phase.SEARCH: num_trials - of_baseline,
            Phase.BASELINE: of_baseline + budget.extra_baseline_trials,
        }
    allotments[Phase.SEARCH] += budget.extra_search_trials
    if (confirmation := specification.confirmation) is not None:
        num_search = allotments[Phase.SEARCH]
        if confirmation.top_k > num_search:
            raise InvalidInput("confirmation.top_k", f"{confirmation.top_k} exceeds the search's {num_search} trials")
        num_configs = confirmation.top_k + (Phase.BASELINE in allotments)
        allotments[Phase.CONFIRMATION] = num_configs * confirmation.num_seeds
    return allotments


def check_proposal(
    plan: JobPlan, phase: Phase, given: Mapping[str, JsonValue]
) -> tuple[dict[str, Scalar], TrialConfig]:
    """The values of a proposed trial, those left out at their defaults, and its config.

    Raises:
        InvalidInput: the job has no such phase, or the phase's space no such values; names the field.
    """
    if phase not in plan.spaces:
        known = ", ".join(plan.spaces)
        raise InvalidInput("phase", f"trials can be proposed for {known}, got {phase.value!r}")
    space = plan.spaces[phase]
    names = {parameter.name for parameter in space.parameters}
    for name in given:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise InvalidInput(f"parameters.{name}", f"is not a parameter of the {phase} space (known: {known})")
    try:
        values = space.defaults(given)  # type: ignore[arg-type]  # it checks the values
    except SpaceError as error:
        raise InvalidInput(f"parameters.{error.field}", error.message) from error
    try:
        return values, plan.trial_config(phase, values)
    except ValueError as error:
        raise InvalidInput("parameters", f"give an impossible trial: {error}") from error


def _search(specification: JobSpecification) -> tuple[Literal["auto"] | SamplerName, Literal["auto"] | PrunerName]:
    """Which sampler and which pruner a job has."""
    given = specification.pruner.name
    if specification.objective is not None and specification.objective.also:
        return _search_for_front(specification)
    sampler = specification.sampler.name or ("auto" if given in (None, "none") else "tpe")
    if sampler in ("nsga2", "nsga3"):
        raise InvalidInput(
            "sampler.name", f"{sampler!r} is for several objectives: name further ones in objective.also"
        )
    if sampler != "auto":
        return sampler, given or "asha"
    if given not in (None, "none"):
        raise InvalidInput(
            "pruner.name", f"{given!r} does not go with the sampler 'auto', which pauses trials itself (or 'none')"
        )
    if specification.pruner.reduction_factor is not None:
        raise InvalidInput("pruner.reduction_factor", "has no effect with the sampler 'auto'")
    return sampler, given or "auto"


def _search_for_front(specification: JobSpecification) -> tuple[SamplerName, PrunerName]:
    """Sampler and pruner of a job with several objectives. In budgets of up to 50 trials TPE finds more of the front
    than the genetic ones do."""
    sampler, pruner = specification.sampler.name or "tpe", specification.pruner.name
    if sampler == "auto" or sampler in ("gp", "cmaes"):
        raise InvalidInput(
            "sampler.name",
            f"{sampler!r} knows one objective, and objective.also names further ones: "
            "choose 'tpe', 'nsga2', 'nsga3', 'quasi', 'random' or 'grid'",
        )
    if pruner not in (None, "none"):
        raise InvalidInput(
            "pruner.name",
            f"{pruner!r} judges trials by one objective, and objective.also names further ones, in which a trial that "
            "falls behind may be the best: choose 'none'",
        )
    return sampler, "none"


def measured_fields(objective: Objective | None, workload: WorkloadDescription) -> dict[str, Any]:
    """The fields of a trial's config that make it measure the objective."""
    if objective is None:
        return {}
    fields: dict[str, Any] = {}
    summaries = [
        metric
        for metric in (objective.metric, *objective.also)
        if metric.startswith(SUMMARY_PREFIXES) and metric not in workload.metrics
    ]
    if summaries:
        fields["summaries"] = summaries
    if objective.target is not None:
        target = objective.target
        fields["target"] = {**target.model_dump(), "direction": workload.metrics[target.metric]}
    return fields


def _objective(objective: Objective | None, workload: WorkloadDescription) -> tuple[str, Direction]:
    """The metric and the direction in which it is better."""
    if objective is None:
        return workload.default_objective, Direction(workload.metrics[workload.default_objective])
    if objective.target is not None and objective.target.metric not in workload.metrics:
        raise InvalidInput(
            "objective.target.metric", _no_such_metric(workload, objective.target.metric, sorted(workload.metrics))
        )
    return objective.metric, _direction("objective.metric", objective.metric, objective, workload)


def _further(objective: Objective | None, workload: WorkloadDescription) -> tuple[tuple[str, Direction], ...]:
    """The objectives after the first, with the direction in which each is better."""
    if objective is None:
        return ()
    found: dict[str, Direction] = {}
    for index, metric in enumerate(objective.also):
        field = f"objective.also[{index}]"
        if metric == objective.metric or metric in found:
            raise InvalidInput(field, f"{metric!r} is an objective already")
        found[metric] = _direction(field, metric, objective, workload)
    return tuple(found.items())


def _direction(field: str, metric: str, objective: Objective, workload: WorkloadDescription) -> Direction:
    """In which an objective is better; `field` names it in errors."""
    measured = {**LOOP_METRICS, **workload.metrics}
    if metric in TARGET_METRICS and metric not in workload.metrics and objective.target is None:
        raise InvalidInput("objective.target", f"is required by the metric {metric!r}")
    summarised = metric
    if metric.startswith(SUMMARY_PREFIXES) and metric not in (*measured, *SUMMARY_PREFIXES):
        summarised = split_summary(metric)[1]
        if summarised in TARGET_METRICS and summarised not in workload.metrics:
            raise InvalidInput(field, f"{metric!r}: {summarised} is of the whole curve already")
    if summarised not in measured:
        known = [*sorted(measured), *(f"{prefix}<metric>" for prefix in SUMMARY_PREFIXES)]
        raise InvalidInput(field, _no_such_metric(workload, metric, known))
    return Direction(measured[summarised])


def _check_constraint(
    field: str, constraint: Constraint, objective: Objective | None, workload: WorkloadDescription
) -> None:
    measured = {**LOOP_METRICS, **workload.metrics}
    if constraint.metric not in measured:
        raise InvalidInput(f"{field}.metric", _no_such_metric(workload, constraint.metric, sorted(measured)))
    has_target = objective is not None and objective.target is not None
    if constraint.metric in TARGET_METRICS and constraint.metric not in workload.metrics and not has_target:
        raise InvalidInput("objective.target", f"is required by the metric {constraint.metric!r}")
    if constraint.min is None and constraint.max is None:
        raise InvalidInput(field, "needs a min or a max")
    if constraint.min is not None and constraint.max is not None and constraint.min > constraint.max:
        raise InvalidInput(f"{field}.min", f"{constraint.min:g} exceeds the max, {constraint.max:g}")


def _no_such_metric(workload: WorkloadDescription, metric: str, known: list[str]) -> str:
    return f"workload {workload.name!r} has no metric {metric!r} (it has: {', '.join(known)})"


def _workload(choice: WorkloadChoice) -> WorkloadDescription:
    try:
        workload = describe_workload(choice.name)
    except DescriptionKilled as error:
        raise WorkloadNotDescribed("workload.name", error.message) from error
    except InvalidConfig as error:
        raise InvalidInput("workload.name", error.message) from error
    try:
        check_options(workload, choice.options)
    except InvalidConfig as error:
        raise InvalidInput(error.field.replace("workload_options", "workload.options"), error.message) from error
    return workload


def _space(field: str, given: str | dict[str, JsonValue]) -> SearchSpace:
    if isinstance(given, str):
        if given not in presets():
            known = ", ".join(sorted(presets()))
            raise InvalidInput(field, f"unknown preset {given!r} (known: {known})")
        return preset(given)
    try:
        return SearchSpace.from_json(given)
    except SpaceError as error:
        raise InvalidInput(f"{field}.{error.field}" if error.field else field, error.message) from error


def _pinned(field: str, given: Pinned, space: SearchSpace) -> tuple[dict[str, Scalar], ...]:
    """The assignments of a space that are to be tried first."""
    found: list[dict[str, Scalar]] = []
    for index, entry in enumerate(given):
        try:
            if entry == "winners":
                continue  # they are found when the job is submitted
            if entry != "algoperf":
                values = entry.parameters if isinstance(entry, EarlierWinner) else entry
                found.append(space.defaults(values))  # type: ignore[arg-type]  # it checks the values
                continue
            points = algoperf_points(space)
        except SpaceError as error:
            where = f"{field}[{index}]{'.parameters' if isinstance(entry, EarlierWinner) else ''}"
            names_one = error.field in {parameter.name for parameter in space.parameters}
            raise InvalidInput(f"{where}.{error.field}" if names_one else where, error.message) from error
        if not points:
            raise InvalidInput(f"{field}[{index}]", f"'algoperf': no point is of {space.optimizer!r} in this space")
        found.extend(points)
    return tuple(found)


def _check_workload_options(
    field: str, space: SearchSpace, workload: WorkloadDescription, *, given: Mapping[str, JsonValue]
) -> None:
    """Each option that the space assigns is the workload's, and not one that the job holds fixed."""
    named = {f"parameters[{index}].name": parameter.name for index, parameter in enumerate(space.parameters)}
    named.update({f"fixed.{name}": name for name in space.fixed})
    for where, name in named.items():
        section, _, option = name.partition(".")
        if section == "workload" and option not in workload.options:
            known = ", ".join(sorted(workload.options)) or "none"
            raise InvalidInput(
                f"{field}.{where}", f"workload {workload.name!r} has no option {option!r} (it has: {known})"
            )
        if section == "workload" and option in given:
            raise InvalidInput(
                f"{field}.{where}", f"workload.options holds {option!r} at {given[option]!r}: leave one of them out"
            )
