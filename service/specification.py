"""What a user asks for: the job specification, its checks, and the plan that a run follows.

`JobSpecification` is the JSON a user writes; fields left out take the workload's defaults. `JobPlan` is the same job
with every default filled in, checked against the workload and the search spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from search_spaces import SearchSpace, SpaceError, preset, presets
from service.domain import Direction, Phase
from service.errors import InvalidInput
from trainers.config import InvalidConfig, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.description import WorkloadDescription
from trainers.workload import UnknownWorkload, check_options, describe

MAX_TRIALS = 10_000
MAX_COUNT = 2**31 - 1
"""Steps and examples: what an INTEGER column holds."""
MAX_SEED = 2**63 - 1
"""What torch and NumPy both take, and JSON readers in other languages do not overflow on."""


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,  # "8" is no number and true is no 1
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


class WorkloadChoice(_Model):
    name: str = Field(examples=["digits-mlp"])
    """A registered workload; `GET /v1/workloads` lists them."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the workload, held fixed in every trial."""


class Objective(_Model):
    metric: str = Field(examples=["validation_loss"])
    """One of the workload's metrics. Its direction is the workload's."""


class Budget(_Model):
    num_trials: int = Field(default=20, ge=1, le=MAX_TRIALS)
    """Trials of the whole job, the baseline's included."""
    wall_clock_seconds: float | None = Field(default=None, gt=0)
    """No trial goes on after this many seconds since the job started; null: no limit."""


class Training(_Model):
    num_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Optimizer steps of a full trial; null: the workload's default."""
    evaluate_every: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Steps between measurements; null: the workload's default."""
    batch_size: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Examples per step over all ranks; null: the workload's default."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    gradient_clip_norm: float | None = Field(default=None, gt=0)


class Resources(_Model):
    workers_per_trial: int = Field(default=1, ge=1, le=4096)
    """Ranks of a trial's process group."""
    cpus_per_worker: float = Field(default=1.0, ge=0.01)
    """What a rank takes of the cluster; it computes with as many threads, at least one."""
    gpus_per_worker: int = Field(default=0, ge=0, le=1)
    """0: CPU ranks on gloo; 1: one GPU a rank, on NCCL."""
    parallel_trials: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Trials at once; null: as many as the cluster holds."""


class Sampler(_Model):
    name: Literal["tpe", "random"] = "tpe"
    seed: int = Field(default=0, ge=0, le=MAX_SEED)


class Pruner(_Model):
    name: Literal["asha", "none"] = "asha"
    min_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Steps before a trial can be pruned; null: a quarter of the trial, because curves of decaying schedules cross."""
    reduction_factor: int = Field(default=3, ge=2, le=1000)
    """At each rung the best 1/reduction_factor of the trials go on."""


class Baseline(_Model):
    search_space: str | dict[str, JsonValue] = "adamw"
    """A preset's name or a search space."""
    budget_share: float = Field(default=0.25, gt=0, lt=1)
    """Share of the budget's trials that the baseline gets."""


class JobSpecification(_Model):
    """A tuning job: one workload, one search, and the baseline it is compared with."""

    workload: WorkloadChoice
    search_space: str | dict[str, JsonValue] = "shampoo"
    """A preset's name (`GET /v1/search-spaces`) or a search space."""
    objective: Objective | None = None
    """Null: the workload's default objective."""
    budget: Budget = Field(default_factory=Budget)
    training: Training = Field(default_factory=Training)
    resources: Resources = Field(default_factory=Resources)
    sampler: Sampler = Field(default_factory=Sampler)
    pruner: Pruner = Field(default_factory=Pruner)
    baseline: Baseline | None = Field(default_factory=Baseline)
    """Null: no baseline, and so no evidence against one."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A checked specification with every default filled in."""

    specification: JobSpecification
    workload: WorkloadDescription
    metric: str
    direction: Direction
    num_steps: int
    evaluate_every: int
    batch_size: int
    min_pruning_steps: int
    spaces: dict[Phase, SearchSpace]
    allotments: dict[Phase, int]
    """Trials of each phase; their sum is the budget."""

    def trial_config(self, phase: Phase, parameters: dict[str, Any]) -> TrialConfig:
        """The config of a trial of `phase` with these sampled values ({parameter name: value})."""
        space = self.spaces[phase]
        assignment = space.assign(parameters)
        training = {"gradient_clip_norm": self.specification.training.gradient_clip_norm, **assignment.training}
        return TrialConfig(
            workload=self.workload.name,
            workload_options={**self.specification.workload.options, **assignment.workload_options},
            optimizer=OptimizerConfig(space.optimizer, dict(assignment.optimizer_arguments)),
            schedule=ScheduleConfig(**assignment.schedule),
            num_steps=self.num_steps,
            evaluate_every=self.evaluate_every,
            batch_size=self.batch_size,
            seed=self.specification.training.seed,
            **training,
        )


def plan_job(specification: JobSpecification) -> JobPlan:
    """Checks a specification against the registered workloads and the search spaces, and fills in its defaults.

    Raises:
        InvalidInput: names the first field that is impossible.
    """
    workload = _workload(specification.workload)
    metric = specification.objective.metric if specification.objective else workload.default_objective
    if metric not in workload.metrics:
        known = ", ".join(sorted(workload.metrics))
        raise InvalidInput("objective.metric", f"workload {workload.name!r} has no metric {metric!r} (it has: {known})")
    training, budget = specification.training, specification.budget
    num_steps = training.num_steps or workload.default_num_steps
    evaluate_every = training.evaluate_every or min(workload.default_evaluate_every, num_steps)
    if evaluate_every > num_steps:
        raise InvalidInput("training.evaluate_every", f"{evaluate_every} exceeds the trial's {num_steps} steps")
    batch_size = training.batch_size or workload.default_batch_size
    workers = specification.resources.workers_per_trial
    if batch_size % workers:
        raise InvalidInput("training.batch_size", f"{batch_size} is not divisible by workers_per_trial = {workers}")
    min_pruning_steps = specification.pruner.min_steps or max(evaluate_every, num_steps // 4)
    if specification.pruner.name == "asha" and min_pruning_steps > num_steps:
        raise InvalidInput("pruner.min_steps", f"{min_pruning_steps} exceeds the trial's {num_steps} steps")

    spaces = {Phase.SEARCH: _space("search_space", specification.search_space)}
    allotments = {Phase.SEARCH: budget.num_trials}
    if specification.baseline is not None:
        spaces[Phase.BASELINE] = _space("baseline.search_space", specification.baseline.search_space)
        if budget.num_trials < 2:
            raise InvalidInput(
                "budget.num_trials", f"a job with a baseline needs at least 2 trials, got {budget.num_trials}"
            )
        share = round(budget.num_trials * specification.baseline.budget_share)
        baseline = min(max(share, 1), budget.num_trials - 1)
        allotments = {Phase.SEARCH: budget.num_trials - baseline, Phase.BASELINE: baseline}
    plan = JobPlan(
        specification=specification,
        workload=workload,
        metric=metric,
        direction=Direction(workload.metrics[metric]),
        num_steps=num_steps,
        evaluate_every=evaluate_every,
        batch_size=batch_size,
        min_pruning_steps=min_pruning_steps,
        spaces=spaces,
        allotments=allotments,
    )
    for phase, space in spaces.items():
        field = "search_space" if phase is Phase.SEARCH else "baseline.search_space"
        _check_workload_options(field, space, workload)
        try:
            plan.trial_config(phase, space.defaults())
        except ValueError as error:
            raise InvalidInput(field, f"its default trial is impossible: {error}") from error
    return plan


def _workload(choice: WorkloadChoice) -> WorkloadDescription:
    try:
        workload = describe(choice.name)
    except UnknownWorkload as error:
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


def _check_workload_options(field: str, space: SearchSpace, workload: WorkloadDescription) -> None:
    named = {f"parameters[{index}].name": parameter.name for index, parameter in enumerate(space.parameters)}
    named.update({f"fixed.{name}": name for name in space.fixed})
    for where, name in named.items():
        section, _, option = name.partition(".")
        if section == "workload" and option not in workload.options:
            known = ", ".join(sorted(workload.options)) or "none"
            raise InvalidInput(
                f"{field}.{where}", f"workload {workload.name!r} has no option {option!r} (it has: {known})"
            )
