"""The config of one trial, as plain values: frozen dataclasses, JSON in and out, no torch.

A field is declared once, here: its type with its bounds, its default, its prose. The dataclasses check themselves by
that, and whoever reads requests or writes a schema does so from the same declaration. A person can write a
`TrialConfig` by hand for `python -m trainers.run config.json`. Unknown or missing fields are errors that name them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeAlias

from trainers.config_part import MAX_COUNT as MAX_COUNT
from trainers.config_part import MAX_SEED as MAX_SEED
from trainers.config_part import Bounds, ConfigPart, JsonObject, require
from trainers.config_part import Count as Count
from trainers.config_part import InvalidConfig as InvalidConfig
from trainers.config_part import Json as Json
from trainers.config_part import Positive as Positive

OptimizerName: TypeAlias = Literal["shampoo", "adamw", "sgd", "muon", "soap-peer", "lora-rite"]
Decay: TypeAlias = Literal["cosine", "linear", "constant", "wsd"]
ParallelismMode: TypeAlias = Literal["ddp", "fsdp2", "hsdp", "simple_fsdp"]
Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
AveragingMethod: TypeAlias = Literal["ema", "lawa", "schedule_free", "primal"]

NEED_WHOLE_PARAMETERS: tuple[OptimizerName, ...] = ("muon", "soap-peer", "lora-rite")
"""Optimizers that cannot step shards."""

FOR_ADAPTERS: tuple[OptimizerName, ...] = ("lora-rite",)
"""Optimizers that train low-rank adapters, and no model without any."""

DEFAULT_DECAY_FRACTION = 0.2
"""Share of a `wsd` schedule's steps."""

SUMMARY_PREFIXES = ("best_", "mean_of_last_")
"""Prefixes of the metrics that sum up a trial's curve so far: `best_validation_loss`."""

_ONE_INTERVAL = (
    "exactly one of evaluate_every, evaluate_every_examples, evaluate_every_epochs and evaluate_every_seconds must be "
    "given"
)


@dataclass(frozen=True, slots=True)
class OptimizerConfig(ConfigPart, section="optimizer."):
    """An optimizer and exactly the keyword arguments its constructor gets."""

    name: OptimizerName
    arguments: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScheduleConfig(ConfigPart, section="schedule."):
    """Learning-rate schedule: linear warm-up from 0 to the base value, then decay over the remaining steps."""

    warmup_fraction: Annotated[float, Bounds(ge=0, lt=1)] = 0.05
    """Share of the horizon spent warming up, in [0, 1)."""
    decay: Decay = "cosine"
    """Shape after the warm-up. `cosine` and `linear` end at 0; `wsd` (warm-up, stable, decay; arXiv 2404.06395) stays
    at the base value and then falls linearly to 0."""
    decay_fraction: Annotated[float, Bounds(gt=0, le=1)] | None = None
    """With `wsd` only, the share of the horizon that the fall takes, in (0, 1], cut short if the warm-up leaves less;
    None: 0.2."""
    horizon: Positive = 1.0
    """Length of the schedule as a multiple of the trial's steps, > 0. Above 1 the trial ends before the learning rate
    is 0, as a part of a longer run would; below 1 it stays at 0 (at the base value if `constant`) from there on."""

    def __post_init__(self) -> None:
        ConfigPart.__post_init__(self)
        fall = self.decay_fraction
        is_used = fall is None or self.decay == "wsd"
        require(is_used, "schedule.decay_fraction", fall, f"has no effect with decay {self.decay}")


@dataclass(frozen=True, slots=True)
class ParallelismConfig(ConfigPart, section="parallelism."):
    """The sharing of a trial's work among its ranks; with one rank, every mode trains the plain model."""

    mode: ParallelismMode = "ddp"
    """`ddp`: each rank has the whole model. `fsdp2`: parameters, gradients and state are sharded over all ranks
    (`fully_shard`). `hsdp`: sharded within groups of ranks, replicated across them. `simple_fsdp`: as `fsdp2`, by
    DTensor parametrizations that the compiler sees through (arXiv 2411.00284).

    With `ddp` every rank has Shampoo's whole state and does all of its work, unless the optimizer's argument
    `distributed` is "lossless": then both are divided by the number of ranks (ZeRO-1), with the same losses. It is not
    the default, because the exchange costs small models more than it saves."""
    shard_size: Count | None = None
    """With `hsdp`, ranks that share one copy of the model: a divisor of the world size. Required by `hsdp` alone."""

    def __post_init__(self) -> None:
        ConfigPart.__post_init__(self)
        size, mode = self.shard_size, self.mode
        if mode == "hsdp":
            require(size is not None, "parallelism.shard_size", size, "must be an integer >= 1 with mode hsdp")
        else:
            require(size is None, "parallelism.shard_size", size, f"has no effect with {mode}")


@dataclass(frozen=True, slots=True)
class CompressionConfig(ConfigPart, section="compression."):
    """PowerSGD compression of the gradients that ranks exchange (arXiv 1905.13727), with `ddp` only."""

    rank: Count = 4
    """Rank of the approximation of each gradient matrix, >= 1."""
    start_step: Annotated[int, Bounds(ge=2, le=MAX_COUNT)] = 10
    """Steps with exact gradients before compression starts, >= 2."""
    error_feedback: bool = True
    """True: the error of the compression is added to the next step's gradient."""


@dataclass(frozen=True, slots=True)
class AveragingConfig(ConfigPart, section="averaging."):
    """Weight averaging around the optimizer; the averaged weights are the ones that are evaluated."""

    method: AveragingMethod
    """The method of `shampoo.WeightAveraging`."""
    arguments: JsonObject = field(default_factory=dict)
    """The other keyword arguments of `shampoo.WeightAveraging`."""


@dataclass(frozen=True, slots=True)
class TargetConfig(ConfigPart, section="target."):
    """A value of a metric that the trial is to reach; adds the metrics `steps_to_target` and `seconds_to_target`."""

    metric: str
    value: Annotated[float, Bounds()]
    direction: Literal["minimize", "maximize"] | None = None
    """`minimize`: the target is reached from above; `maximize`: from below; null: the metric's own direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings(ConfigPart):
    """The settings of a trial beside its workload, its optimizer and its length. All trials of a job have them in
    common, but for those that the search varies."""

    accumulation_steps: Count = 1
    """Forward and backward passes per optimizer step, each on an equal part of the batch."""
    gradient_clip_norm: Positive | None = None
    """Global gradient norm above which gradients are scaled down; null: no clipping."""
    seed: Annotated[int, Bounds(ge=0, le=MAX_SEED)] = 0
    """Seeds parameters, data order and everything else that is random."""
    max_loss: Positive = 1e4
    """A training loss above this, or one that is not finite, ends the trial as diverged."""

    evaluate_every: Count | None = None
    """Steps between measurements; the last step is always measured. A trial has exactly one of this and the next
    three; a job that gives none takes the workload's default."""
    evaluate_every_examples: Count | None = None
    """Training examples between measurements: each is taken at the first step that completes that many, so trials with
    different batch sizes are measured after equally many."""
    evaluate_every_epochs: Positive | None = None
    """Epochs between measurements: each is taken at the first step that completes that many."""
    evaluate_every_seconds: Positive | None = None
    """Seconds of training between measurements, by rank 0's clock. The steps at which such measurements fall differ
    from run to run."""

    precision: Precision = "float32"
    """The precision of the forward and backward passes; parameters and optimizer state stay in float32. float16 scales
    the loss."""
    activation_checkpointing: bool = False
    """True: activations inside the model's blocks are computed again in the backward pass instead of kept."""
    compile: bool = False
    """True: the model is compiled with `torch.compile`."""
    parallelism: ParallelismConfig = field(default_factory=ParallelismConfig)
    """The share of the model and its state that each rank keeps."""
    compression: CompressionConfig | None = None
    """The compression of the gradients that ranks exchange; null: they are exact."""
    averaging: AveragingConfig | None = None
    """The averaging of the weights over steps; null: those of the last step are evaluated."""

    checkpoint_every: Count | None = None
    """Steps between checkpoints; each is written at the first measurement after that many (with `evaluate_every`, it
    must be a multiple). Null: after each measurement."""
    keep_checkpoints: Count = 2
    """Number of checkpoints of a trial that are kept, the newest ones."""

    def contradictions(self) -> Iterator[InvalidConfig]:
        """The fields whose values do not go with others of these settings."""
        mode, steps, every = self.parallelism.mode, self.evaluate_every, self.checkpoint_every
        if self.compression is not None and mode != "ddp":
            yield InvalidConfig("compression", f"is for parallelism mode ddp, got {mode!r}")
        if len(self.intervals) > 1:
            yield InvalidConfig("evaluate_every", f"{_ONE_INTERVAL}, got {list(self.intervals)!r}")
        if every is not None and steps is not None and every % steps:
            rule = f"must be null or a positive integer multiple of evaluate_every ({steps})"
            yield InvalidConfig("checkpoint_every", f"{rule}, got {every!r}")

    @property
    def intervals(self) -> tuple[float, ...]:
        """The intervals between measurements that are given."""
        of_all = (
            self.evaluate_every,
            self.evaluate_every_examples,
            self.evaluate_every_epochs,
            self.evaluate_every_seconds,
        )
        return tuple(interval for interval in of_all if interval is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialConfig(TrainingSettings):
    """Everything that determines one training run; equal configs train equal models."""

    workload: str
    """Name of a registered workload, or `module:Class` (`trainers.workloads.registry`)."""
    workload_options: JsonObject = field(default_factory=dict)
    """Arguments of the workload, e.g. label smoothing."""
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    num_steps: Count
    """Optimizer steps of the whole trial."""
    batch_size: Count
    """Examples per step over all ranks; divisible by the world size times `accumulation_steps`."""
    target: TargetConfig | None = None
    summaries: tuple[str, ...] = ()
    """Metrics of the curve so far to report as well: `best_<metric>` or `mean_of_last_<metric>`."""

    def __post_init__(self) -> None:
        ConfigPart.__post_init__(self)
        for contradiction in self.contradictions():
            raise contradiction
        if self.compression is not None:
            # Its error memory would keep what overflowed once for ever.
            is_legal, rule = self.precision != "float16", "is for the precisions float32 and bfloat16"
            require(is_legal, "compression", self.precision, rule)
        if self.optimizer.name in NEED_WHOLE_PARAMETERS:
            mode, rule = self.parallelism.mode, f"must be ddp with {self.optimizer.name}, which steps whole parameters"
            require(mode == "ddp", "parallelism.mode", mode, rule)
        passes = self.accumulation_steps
        divides = self.batch_size % passes == 0
        require(divides, "accumulation_steps", passes, f"must divide batch_size ({self.batch_size})")
        require(bool(self.intervals), "evaluate_every", list(self.intervals), _ONE_INTERVAL)
        is_list = isinstance(self.summaries, list | tuple)
        require(is_list, "summaries", self.summaries, "must be a list of names")
        for summary in self.summaries:
            is_legal = isinstance(summary, str) and summary.startswith(SUMMARY_PREFIXES)
            is_legal = is_legal and summary not in SUMMARY_PREFIXES
            require(is_legal, "summaries", summary, f"must begin with {' or '.join(SUMMARY_PREFIXES)}")

    @classmethod
    def of(cls, settings: TrainingSettings, **own: Any) -> Self:
        """The config of a trial that trains with these settings; `own`: the fields that only trials have."""
        shared = {declared.name: getattr(settings, declared.name) for declared in dataclasses.fields(TrainingSettings)}
        return cls(**shared, **own)

    def to_json(self) -> dict[str, Any]:
        """The config as JSON-able values, its own fields first; `from_json` gives back an equal config."""
        values = {**dataclasses.asdict(self), "summaries": list(self.summaries)}
        return {name: values[name] for name in (*TrialConfig.__annotations__, *TrainingSettings.__annotations__)}


MAX_METRIC = 1e50
"""Size of a metric beyond which nothing is reckoned with it, as with one that is not finite: searches and evidence take
squares of squares of what is measured, and these have to be finite."""


def is_usable(metric: float) -> bool:
    """True if a metric is finite and no larger than `MAX_METRIC`."""
    return abs(metric) <= MAX_METRIC  # NaN is not


@dataclass(frozen=True, slots=True)
class Measurement:
    """The report of a trial at one step; metrics are already reduced over ranks."""

    step: int
    """Optimizer steps done so far."""
    epoch: float
    """Passes over the training data so far."""
    seconds: float
    """Training time so far, without evaluation and checkpoints; continues over a resume."""
    metrics: Mapping[str, float]
    remarks: tuple[str, ...] = ()
    """Remarks for a person on the data, as the workload makes them (`HasRemarks`), or the loop of batches larger than
    the training set; of all ranks, each once, those of before a resume too."""


class Diverged(Exception):
    """A trial's loss became non-finite or exceeded its bound; all ranks raise it at the same step."""

    def __init__(self, step: int, detail: str, parameter: str | None = None) -> None:
        super().__init__(f"diverged at step {step}: {detail}")
        self.step = step
        self.detail = detail
        self.parameter = parameter
        """Name of the first offending parameter, if one is to blame."""

    def __reduce__(self) -> tuple[type[Diverged], tuple[int, str, str | None]]:
        return type(self), (self.step, self.detail, self.parameter)
