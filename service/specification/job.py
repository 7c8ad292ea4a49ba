"""The specification of a job: the JSON that a user submits. Fields left out take the workload's defaults, which
`service.specification.planning` fills in."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, JsonValue, RootModel, model_validator

from search_spaces.validation import MAX_PARAMETERS
from service.described_model import StrictModel
from service.domain import Currency, PrunerName, SamplerName
from service.specification.code import CodeChoice
from service.specification.external.trials import ExternalTrials
from service.specification.imported import MAX_IMPORTED, ImportedTrial
from service.specification.resources import Resources
from service.specification.training import RequestedTraining, Training
from service.specification.trial_lengths.step_times import MAX_TIMED, StepTime
from trainers.config import MAX_COUNT, MAX_SEED
from trainers.trackers.protocol import TrackerName
from trainers.workload.user_workload import MAX_REFERENCE_LENGTH, REFERENCE_PATTERN, is_reference

MAX_TRIALS = 10_000
"""The largest job that was measured: its driver holds 0.4 GB (`service/INSIDE.md`)."""
MAX_SEEDS = 100
"""New seeds of a confirmation, and configs that it trains with each."""
MAX_PINNED = 100
"""Configs that are tried first, by judgement; the specification holds them all."""
MAX_SOURCE_LENGTH = 500
"""Most characters of the name of a tuned model, which has its workload's options."""
MAX_OBJECTIVES = 4
"""Most objectives, by judgement: with more, most trials are on the front, and it tells little."""
MAX_BASELINES = 4
"""Most baselines, by judgement: each takes its share of the trials."""


class EarlierWinner(StrictModel):
    """A config that won an earlier job, as it fits the space of this one: what becomes of `winners`."""

    job_id: str = Field(max_length=40)
    """The job that found it."""
    trial: int = Field(ge=0, le=MAX_COUNT)
    """The number of the trial there."""
    value: float
    """The value of the objective there."""
    parameters: dict[str, JsonValue]
    """The values of the trial by name."""
    clipped: list[str] = Field(default_factory=list, max_length=MAX_PARAMETERS)
    """Parameters whose values this space does not have: the nearest ones stand in their place."""


class MovedConfig(StrictModel):
    """A config of a tuned model like this job's, moved to it by scaling rules: what becomes of `nearest`."""

    source: str = Field(max_length=MAX_SOURCE_LENGTH)
    """The model that it was tuned for, and by whom; for people."""
    distance: float = Field(ge=0)
    """Octaves between the two models: the farther, the wider the search looks around it."""
    recommendation_id: str | None = Field(default=None, max_length=40)
    """The recommendation that it is of; null: of the table that comes with the service."""
    parameters: dict[str, JsonValue]
    """The values of the config by name, as they are here."""
    clipped: list[str] = Field(default_factory=list, max_length=MAX_PARAMETERS)
    """Parameters whose values this space does not have: the nearest ones stand in their place."""
    of_one_side: bool = False
    """True if `nearest` in `pinned` asked for it, for this side alone. A clone asks for it again."""


PinnedEntry: TypeAlias = Literal["algoperf", "winners", "nearest"] | EarlierWinner | MovedConfig | dict[str, JsonValue]
Pinned: TypeAlias = Annotated[
    list[Annotated[PinnedEntry, Field(union_mode="left_to_right")]],
    Field(max_length=MAX_PINNED),
]
"""Trials to begin with, after the space's defaults: values by parameter, where those left out take their defaults;
`algoperf`: those of the five points of the Shampoo submission that won AlgoPerf that fit the space; or `winners`: the
best configs of up to five earlier jobs that succeeded with the same model (by its fingerprint), objective and
optimizer, the newest first; or `nearest`: up to three configs of the nearest tuned models, of the project or of the
table that comes with the service, moved to this one by scaling rules, around which the sampler `auto` then looks for as
long as what it measures does not speak against them. The last two are found when the job is submitted and stand in
their place from then on, none if there are none."""


KnownConfigs: TypeAlias = Literal["auto", "nearest", "none", "found"]


class WorkloadChoice(StrictModel):
    name: str = Field(examples=["digits-mlp"])
    """A registered workload (`GET /v1/workloads` lists them), or your own class as `module:Class`."""
    options: dict[str, JsonValue] = Field(default_factory=dict, examples=[{"width": 64, "depth": 2}])
    """Arguments of the workload, held fixed in every trial."""


class Target(StrictModel):
    """A value of a metric that trials are to reach: they then measure `steps_to_target` and `seconds_to_target`."""

    metric: str = Field(examples=["validation_loss"])
    """One of the workload's metrics."""
    value: float
    """The value to reach."""


class ObjectiveChoice(StrictModel):
    """A metric that the job is to better, in the direction that the metric has."""

    metric: str = Field(examples=["validation_loss"])
    """A metric of the workload or one that every trial measures, such as `step_seconds` or `peak_memory_bytes`;
    `best_<metric>` and `mean_of_last_<metric>` sum up a trial's curve. With a target also `steps_to_target` and
    `seconds_to_target`. A trial counts with its last measurement."""


class Constraint(StrictModel):
    """A bound that a trial must keep to be recommended; one that breaks it fails as `infeasible`, and the search learns
    from that. Judged by a trial's last measurement; a peak of memory by every one."""

    metric: str = Field(examples=["peak_memory_bytes"])
    """One of those that can be an objective."""
    min: float | None = None
    """The least that is allowed; null: any."""
    max: float | None = None
    """The most that is allowed; null: any."""


class Budget(StrictModel):
    num_trials: int = Field(default=20, ge=1, le=MAX_TRIALS)
    """Trials of search and baselines together, at most. Sides with equal shares get equally many, so with one baseline,
    one trial of an odd number is left over. Trials of the confirmation come on top."""
    extra_search_trials: int = Field(default=0, ge=0, le=MAX_TRIALS)
    """Trials of the search in addition to `num_trials`: each proposal of a user adds one."""
    wall_clock_seconds: float | None = Field(default=None, gt=0, examples=[3600])
    """Seconds of running time after which trials end; time in the queue or paused does not count. Null: no limit."""
    device_hours: float | None = Field(default=None, gt=0)
    """Device-hours after which trials end: the training time of all trials times `workers_per_trial`, counted at each
    measurement. Steps trained again after an interruption count again. Null: no limit."""
    cost: float | None = Field(default=None, gt=0)
    """The limit on the cost of those device-hours, in the service's currency, at the price for such ranks when the job
    was submitted; it ends trials as `device_hours` does. Null: no limit."""
    patience: int | None = Field(default=None, ge=1, le=MAX_TRIALS)
    """Trials without improvement after which a phase starts no more: those begun after its best one, or with several
    objectives after the last one on its front. Null: it starts all."""

    @property
    def limits_time(self) -> bool:
        """True if the job may end before all of its trials have begun, because its time is over."""
        return any(limit is not None for limit in (self.wall_clock_seconds, self.device_hours, self.cost))


class SamplerReference(RootModel[str], frozen=True):
    """A sampler of your own: a class made for Optuna, as `module:Class`."""

    root: str = Field(pattern=f"^{REFERENCE_PATTERN}$", max_length=MAX_REFERENCE_LENGTH, examples=["my_samplers:Mine"])

    def __str__(self) -> str:
        return self.root


class SamplerChoice(StrictModel):
    name: Literal["auto"] | SamplerName | SamplerReference | None = None
    """`auto` models learning curves and pauses trials itself; `tpe` (tree-structured Parzen estimator), `gp` (Gaussian
    process), `cmaes`, `nsga2`, `nsga3` (genetic, for several objectives), `quasi` (Sobol sequence), `random`, `grid`
    and a class of your own, an `optuna.samplers.BaseSampler` named `module:Class`, leave stopping to the pruner. Null:
    `tpe` with several objectives or if the pruner is `asha`, `hyperband`, `median` or `pbt`, else `auto`."""
    options: dict[str, JsonValue] = Field(default_factory=dict, examples=[{"population": 8}])
    """Arguments of your own class. If it takes a `seed` and these have none, it gets one that follows from `seed`."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """The seed of the search; the same one chooses the same values from the same results."""


class PrunerChoice(StrictModel):
    name: PrunerName | None = None
    """`asha` (asynchronous successive halving), `hyperband`, `median`, `pbt` or `none`: every trial is trained to its
    end. `pbt`, population based training, repeatedly replaces the worst quarter of a population of trials by forks of
    the best: trials that begin with another one's weights, and perturbed hyperparameters. Null: with the sampler `auto`
    its own pauses, with several objectives `none`, else `asha`."""
    min_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Steps before a trial can be pruned or paused; null: a quarter of the trial, because curves of decaying schedules
    cross, or with the sampler `auto` its own choice."""
    reduction_factor: int | None = Field(default=None, ge=2, le=1000)
    """At each rung of `asha` and `hyperband` the best 1/reduction_factor of the trials go on; null: 3."""
    population: int | None = Field(default=None, ge=2, le=MAX_TRIALS)
    """With `pbt`: trials that train side by side, the first ones the sampler's, fewer than the search has; those that
    it has beside them are forks. A population smaller than `resources.parallel_trials` leaves some of those idle. Null:
    8, or half of the search's trials if they are fewer; of a baseline's the same, and no more than the search's."""
    interval: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """With `pbt`: steps between the checkpoints at which trials are compared, dropped and forked, a multiple of
    `training.evaluate_every`. Null: a tenth of the trial."""


class Baseline(StrictModel):
    search_space: str | dict[str, JsonValue] = "adamw"
    """A preset's name (`adamw`, `muon`, `sgd`, `lora-rite`, or `soap-peer`, which needs the extra `peers`) or a search
    space."""
    budget_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the budget's trials that the baseline gets. Null: the same as the search, so that neither is favoured:
    with one baseline a half, with two a third."""
    pinned: Pinned = Field(default_factory=list)
    """Configs to try first, as in the search."""
    extra_trials: int = Field(default=0, ge=0, le=MAX_TRIALS)
    """Trials in addition to `budget.num_trials`: each proposal of a user adds one."""


class ConfirmationChoice(StrictModel):
    """The best configs of search and baselines trained again, at full length, with new seeds, the same for all. These
    trials alone then decide which config is recommended and how it compares with the best of the baselines: a quarter
    of the seeds choose one config of the search and one of all baselines, and only those two get the others, which
    compare them."""

    top_k: int | None = Field(default=None, ge=1, le=MAX_SEEDS)
    """Configs of the search and as many of each baseline, the best first. Null: 2, or 1 where a side has but one
    trial. With 1 and no more than one baseline there is nothing to choose, and all seeds compare."""
    num_seeds: int = Field(default=7, ge=2, le=MAX_SEEDS)
    """New seeds. Where there is something to choose, `num_seeds // 4` of them, at least one, do, and the others
    compare. Beside `budget.num_trials` the job gets `top_k` trials of the search and of each baseline for each seed
    that chooses, and 2 for each that compares: with one baseline 16 by default, and half of that without any; more
    where a config fails and another takes its place, fewer where the seeds contradict each other early.
    `budget.wall_clock_seconds` holds for them, too. Fewer than six that compare tell less, and with one nothing."""


class JobSpecification(StrictModel):
    """A tuning job: one workload, one search, and the baselines it is compared with."""

    workload: WorkloadChoice
    """The model and the data that are trained."""
    search_space: str | dict[str, JsonValue] = "shampoo"
    """A preset's name (`GET /v1/search-spaces`) or a search space."""
    objectives: list[ObjectiveChoice] = Field(
        default_factory=list, max_length=MAX_OBJECTIVES, examples=[[{"metric": "validation_loss"}]]
    )
    """Empty: the workload's default objective. What is recommended, compared with the baselines and confirmed goes by
    the first. With several, the search looks for configs that none beats in every objective, and the job and its
    recommendation list them as `front`; no trial is pruned, and the sampler is `tpe`, `nsga2`, `nsga3` or one that does
    not learn."""
    target: Target | None = None
    """Null: trials do not measure how soon they reach a value."""
    constraints: list[Constraint] = Field(default_factory=list, max_length=20)
    """Bounds that every trial must keep, the baselines' too."""
    budget: Budget = Field(default_factory=Budget)
    """The limits on what may be tried."""
    training: RequestedTraining = Field(default_factory=Training)
    """The settings by which each trial is trained."""
    resources: Resources = Field(default_factory=Resources)
    """The ranks of a trial, and their shares of the cluster."""
    external: ExternalTrials | None = None
    """Null: the service trains the trials."""
    code: CodeChoice | None = None
    """The directory that the workload's or the sampler's `module:Class` is imported from. Null: where the service
    imports from."""
    trackers: list[TrackerName] = Field(default_factory=list, max_length=3, examples=[["tensorboard"]])
    """Experiment trackers that are told of the trials while they train, by the worker that runs the job, below its
    setting `tracker_directory`: `tensorboard` and `mlflow` (the extra `trackers`), and `wandb` (the extra of that
    name), offline. What goes wrong there is a warning in the worker's log."""
    sampler: SamplerChoice = Field(default_factory=SamplerChoice)
    """Chooses the values of the next trial."""
    pruner: PrunerChoice = Field(default_factory=PrunerChoice)
    """Stops trials that fall behind."""
    pinned: Pinned = Field(default_factory=list)
    """Trials that the search begins with, after the defaults."""
    known_configs: KnownConfigs = "auto"
    """Configs of models like this one, with which the search and each baseline also begin: those that `nearest` in
    `pinned` stands for, all sides with equally many, so that none has a head start. `auto`: with the sampler `auto`;
    `nearest`: with any; `none`: with what `pinned` says alone. They are looked up when the job begins to run, and added
    to `pinned`; from then on this is `found`."""
    imported: list[ImportedTrial] = Field(default_factory=list, max_length=MAX_IMPORTED, fail_fast=True)
    """Trials of another study, as `shampoo-tuner import` writes them. They inform the samplers `tpe`, `gp`, `cmaes` and
    your own before its first trial; they are no trials of this job, and count in no verdict."""
    baselines: list[Baseline] = Field(
        default_factory=lambda: [Baseline()], max_length=MAX_BASELINES, examples=[[{"search_space": "adamw"}]]
    )
    """Each with an optimizer of its own, by whose name it is known; the search is compared with the best of them.
    Empty: no baseline, and so no evidence against one. `baseline`, with one or null, is read as a list of one or
    none."""
    currency: Annotated[Currency, Field(strict=False)] | None = None
    """The two configs that the verdict compares have spent equally much of this: `steps`, `seconds` of training,
    `examples` or `tokens`, where the workload counts them. With `seconds` all trials take equally long: the quickest
    has the steps of `training`, and others fewer, by the `step_times`. Where one of the two configs ended having spent
    less, the other one counts with its value there. Null: `examples`, or with `training.num_tokens` `tokens`, where the
    batch size is searched, as all trials see equally many, else `steps`."""
    step_times: list[StepTime] = Field(default_factory=list, max_length=MAX_TIMED)
    """With the currency `seconds`, the time of a step with the configs of which it may depend. Empty: they are measured
    when the job begins to run, and stand here from then on."""
    confirmation: ConfirmationChoice | Literal["auto"] | None = "auto"
    """`auto`: one of the default size where search and baselines have at least 8 trials each, as a comparison of fewer
    is undecided whatever new seeds say, and none with the pruner `pbt`. Null: each config is trained with one seed,
    and the recommendation stays provisional."""
    keep_weights: bool = True
    """The trained weights of the recommended config and of the baseline's best, of each those of its best trial in the
    confirmation, can be downloaded as safetensors until the job is deleted; while it confirms, those of each of these
    trials take disk. Without confirmation there are none."""

    @property
    def names_code(self) -> bool:
        """True if the workload or the sampler is a `module:Class`."""
        return is_reference(self.workload.name) or isinstance(self.sampler.name, SamplerReference)

    @property
    def pinned_of_sides(self) -> list[Pinned]:
        """The pinned entries of the search, then those of each baseline in their order."""
        return [self.pinned, *(baseline.pinned for baseline in self.baselines)]

    @model_validator(mode="before")
    @classmethod
    def _read_one_baseline(cls, value: Any) -> Any:
        """Reads `baseline`, as jobs are stored that were submitted when there could be but one."""
        if not isinstance(value, dict) or "baseline" not in value or "baselines" in value:
            return value
        changed = {name: given for name, given in value.items() if name != "baseline"}
        one, budget = value["baseline"], value.get("budget")
        if isinstance(budget, dict) and "extra_baseline_trials" in budget:
            extra = budget["extra_baseline_trials"]
            changed["budget"] = {name: given for name, given in budget.items() if name != "extra_baseline_trials"}
            one = {**one, "extra_trials": extra} if isinstance(one, dict) else one
        changed["baselines"] = [] if one is None else [one]
        return changed
