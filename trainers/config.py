"""What one trial trains, as plain values: frozen dataclasses, JSON in and out, no torch.

The scheduler stores a `TrialConfig` with its trial, the ranks rebuild it from JSON, and a person can write one by hand
for `python -m trainers.run config.json`. Unknown or missing fields are errors that name the field.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None

OptimizerName: TypeAlias = Literal["shampoo", "adamw", "sgd"]
Decay: TypeAlias = Literal["cosine", "linear", "constant", "wsd"]
ParallelismMode: TypeAlias = Literal["ddp", "fsdp2", "hsdp", "simple_fsdp"]
Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]

DEFAULT_DECAY_FRACTION = 0.2
"""Of a `wsd` schedule."""

SUMMARY_PREFIXES = ("best_", "mean_of_last_")
"""Of the metrics that sum up a trial's curve so far: `best_validation_loss`."""


class InvalidConfig(ValueError):
    """A field of a trial's config is impossible; `field` is its path, e.g. `schedule.warmup_fraction`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type[InvalidConfig], tuple[str, str]]:
        return type(self), (self.field, self.message)


def _require(condition: bool, field_name: str, value: object, rule: str) -> None:
    if not condition:
        raise InvalidConfig(field_name, f"{rule}, got {value!r}")


def _require_one_of(field_name: str, value: object, alias: object) -> None:
    choices = get_args(alias)
    _require(value in choices, field_name, value, f"must be one of {', '.join(choices)}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _from_json(cls: type[Any], data: object, path: str) -> dict[str, Any]:
    """Checks that `data` is an object with exactly the fields of `cls` (defaults may be left out)."""
    _require(isinstance(data, Mapping), path or cls.__name__, data, "must be an object")
    assert isinstance(data, Mapping)
    known = {f.name: f for f in dataclasses.fields(cls)}
    prefix = f"{path}." if path else ""
    for name in data:
        _require(name in known, f"{prefix}{name}", data[name], f"unknown field (known: {', '.join(known)})")
    for name, f in known.items():
        optional = f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
        _require(name in data or optional, f"{prefix}{name}", None, "is required")
    return dict(data)


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """An optimizer and exactly the keyword arguments its constructor gets."""

    name: OptimizerName
    arguments: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_one_of("optimizer.name", self.name, OptimizerName)
        _require(isinstance(self.arguments, Mapping), "optimizer.arguments", self.arguments, "must be an object")


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """Learning-rate schedule: linear warm-up from 0 to the base value, then decay over the remaining steps."""

    warmup_fraction: float = 0.05
    """Share of the horizon spent warming up, in [0, 1)."""
    decay: Decay = "cosine"
    """Shape after the warm-up. `cosine` and `linear` end at 0; `wsd` (warm-up, stable, decay; arXiv 2404.06395) stays
    at the base value and then falls linearly to 0."""
    decay_fraction: float | None = None
    """With `wsd` only, the share of the horizon that the fall takes, in (0, 1], cut short if the warm-up leaves less;
    None: 0.2."""
    horizon: float = 1.0
    """Length of the schedule as a multiple of the trial's steps, > 0. Above 1 the trial ends before the learning rate
    is 0, as a part of a longer run would; below 1 it stays at 0 (at the base value if `constant`) from there on."""

    def __post_init__(self) -> None:
        warmup, fall, horizon = self.warmup_fraction, self.decay_fraction, self.horizon
        is_share = _is_finite(warmup) and 0 <= warmup < 1
        _require(is_share, "schedule.warmup_fraction", warmup, "must be in [0, 1)")
        if fall is not None:
            _require(_is_finite(fall) and 0 < fall <= 1, "schedule.decay_fraction", fall, "must be in (0, 1]")
            _require(self.decay == "wsd", "schedule.decay_fraction", fall, f"has no effect with decay {self.decay}")
        _require(_is_finite(horizon) and horizon > 0, "schedule.horizon", horizon, "must be > 0")
        _require_one_of("schedule.decay", self.decay, Decay)


@dataclass(frozen=True, slots=True)
class ParallelismConfig:
    """How the ranks of a trial share its work; with one rank, every mode trains the plain model."""

    mode: ParallelismMode = "ddp"
    """`ddp`: each rank has the whole model. `fsdp2`: parameters, gradients and state are sharded over all ranks
    (`fully_shard`). `hsdp`: sharded within groups of ranks, replicated across them. `simple_fsdp`: as `fsdp2`, by
    DTensor parametrizations that the compiler sees through (arXiv 2411.00284).

    With `ddp` every rank has Shampoo's whole state and does all of its work, unless the optimizer's argument
    `distributed` is "lossless": then both are divided by the number of ranks (ZeRO-1), with the same losses. It is not
    the default, because the exchange costs small models more than it saves."""
    shard_size: int | None = None
    """With `hsdp`, ranks that share one copy of the model; divides the world size. Required by `hsdp`, and by no other.
    """

    def __post_init__(self) -> None:
        _require_one_of("parallelism.mode", self.mode, ParallelismMode)
        if self.mode == "hsdp":
            is_legal = _is_int(self.shard_size) and self.shard_size is not None and self.shard_size >= 1
            _require(is_legal, "parallelism.shard_size", self.shard_size, "must be an integer >= 1 with mode hsdp")
        else:
            _require(
                self.shard_size is None, "parallelism.shard_size", self.shard_size, f"has no effect with {self.mode}"
            )


@dataclass(frozen=True, slots=True)
class CompressionConfig:
    """PowerSGD compression of the gradients that ranks exchange (arXiv 1905.13727), with `ddp` only."""

    rank: int = 4
    """Rank of the approximation of each gradient matrix, >= 1."""
    start_step: int = 10
    """Steps with exact gradients before compression starts, >= 2."""
    error_feedback: bool = True
    """Whether what compression lost is added to the next step's gradient."""

    def __post_init__(self) -> None:
        _require(_is_int(self.rank) and self.rank >= 1, "compression.rank", self.rank, "must be an integer >= 1")
        start = self.start_step
        _require(_is_int(start) and start >= 2, "compression.start_step", start, "must be an integer >= 2")
        feedback = self.error_feedback
        _require(isinstance(feedback, bool), "compression.error_feedback", feedback, "must be true or false")


@dataclass(frozen=True, slots=True)
class AveragingConfig:
    """Weight averaging around the optimizer; the averaged weights are the ones that are evaluated."""

    method: str
    """Of `shampoo.WeightAveraging`: ema, lawa, schedule_free or primal."""
    arguments: Mapping[str, Json] = field(default_factory=dict)
    """Its other keyword arguments."""

    def __post_init__(self) -> None:
        _require(isinstance(self.method, str), "averaging.method", self.method, "must be a name")
        _require(isinstance(self.arguments, Mapping), "averaging.arguments", self.arguments, "must be an object")


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """A value of a metric that the trial is to reach; adds the metrics `steps_to_target` and `seconds_to_target`."""

    metric: str
    value: float
    direction: Literal["minimize", "maximize"] | None = None
    """Whether the target is reached from above (minimize) or from below; None: the metric's own direction."""

    def __post_init__(self) -> None:
        _require(bool(self.metric) and isinstance(self.metric, str), "target.metric", self.metric, "must be a name")
        _require(_is_finite(self.value), "target.value", self.value, "must be a finite number")
        if self.direction is not None:
            _require_one_of("target.direction", self.direction, Literal["minimize", "maximize"])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialConfig:
    """Everything that determines one training run; equal configs train equal models."""

    workload: str
    """Name of a registered workload, or `module:Class` (`trainers.workloads.registry`)."""
    workload_options: Mapping[str, Json] = field(default_factory=dict)
    """Arguments of the workload, e.g. label smoothing."""
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    averaging: AveragingConfig | None = None
    num_steps: int
    """Optimizer steps of the whole trial."""
    batch_size: int
    """Examples per step over all ranks; divisible by the world size times `accumulation_steps`."""
    accumulation_steps: int = 1
    """Forward and backward passes per optimizer step, each on an equal part of the batch."""
    gradient_clip_norm: float | None = None
    """Global gradient norm above which gradients are scaled down; None: no clipping."""
    seed: int = 0
    """Seeds parameters, data order and everything else that is random."""
    max_loss: float = 1e4
    """A training loss above this, or one that is not finite, ends the trial as diverged."""

    evaluate_every: int | None = None
    """Steps between measurements; the last step is always measured. Exactly one of the three is given."""
    evaluate_every_epochs: float | None = None
    """Epochs between measurements: each is taken at the first step that completes so many."""
    evaluate_every_seconds: float | None = None
    """Seconds of training between measurements, by rank 0's clock. The steps at which such measurements fall differ
    from run to run."""
    target: TargetConfig | None = None
    summaries: tuple[str, ...] = ()
    """Metrics of the curve so far to report as well: `best_<metric>` or `mean_of_last_<metric>`."""

    precision: Precision = "float32"
    """Of the forward and backward passes; parameters and optimizer stay in float32. float16 scales the loss."""
    activation_checkpointing: bool = False
    """Whether activations inside the model's blocks are computed again in the backward pass instead of kept."""
    compile: bool = False
    """Whether the model is compiled with `torch.compile`."""
    parallelism: ParallelismConfig = field(default_factory=ParallelismConfig)
    compression: CompressionConfig | None = None

    checkpoint_every: int | None = None
    """Steps between checkpoints; each is written at the first measurement after so many (with `evaluate_every`, it
    must be a multiple). None: after each measurement."""
    keep_checkpoints: int = 2
    """How many checkpoints are kept, the newest ones."""

    def __post_init__(self) -> None:
        _require(bool(self.workload) and isinstance(self.workload, str), "workload", self.workload, "must be a name")
        for name in ("num_steps", "batch_size", "accumulation_steps", "keep_checkpoints"):
            value = getattr(self, name)
            _require(_is_int(value) and value >= 1, name, value, "must be an integer >= 1")
        _require(_is_int(self.seed) and self.seed >= 0, "seed", self.seed, "must be an integer >= 0")
        clip = self.gradient_clip_norm
        _require(clip is None or (_is_finite(clip) and clip > 0), "gradient_clip_norm", clip, "must be > 0 or null")
        _require(_is_finite(self.max_loss) and self.max_loss > 0, "max_loss", self.max_loss, "must be > 0")
        for name in ("activation_checkpointing", "compile"):
            value = getattr(self, name)
            _require(isinstance(value, bool), name, value, "must be true or false")
        options = self.workload_options
        _require(isinstance(options, Mapping), "workload_options", options, "must be an object")
        _require_one_of("precision", self.precision, Precision)
        if self.compression is not None:
            mode, precision = self.parallelism.mode, self.precision
            _require(mode == "ddp", "compression", mode, "is for parallelism mode ddp")
            # Its error memory would keep what overflowed once for ever.
            _require(precision != "float16", "compression", precision, "is for the precisions float32 and bfloat16")
        _require(
            self.batch_size % self.accumulation_steps == 0,
            "accumulation_steps",
            self.accumulation_steps,
            f"must divide batch_size ({self.batch_size})",
        )
        self._check_measurements()

    def _check_measurements(self) -> None:
        steps, epochs, seconds = self.evaluate_every, self.evaluate_every_epochs, self.evaluate_every_seconds
        given = [value for value in (steps, epochs, seconds) if value is not None]
        rule = "exactly one of evaluate_every, evaluate_every_epochs and evaluate_every_seconds must be given"
        _require(len(given) == 1, "evaluate_every", given, rule)
        is_legal = steps is None or (_is_int(steps) and steps >= 1)
        _require(is_legal, "evaluate_every", steps, "must be an integer >= 1")
        for name, value in (("evaluate_every_epochs", epochs), ("evaluate_every_seconds", seconds)):
            _require(value is None or (_is_finite(value) and value > 0), name, value, "must be > 0")
        every = self.checkpoint_every
        is_legal = every is None or (_is_int(every) and every >= 1 and (steps is None or every % steps == 0))
        rule = "must be null or a positive integer" + (
            "" if steps is None else f" multiple of evaluate_every ({steps})"
        )
        _require(is_legal, "checkpoint_every", every, rule)
        is_list = isinstance(self.summaries, list | tuple)
        _require(is_list, "summaries", self.summaries, "must be a list of names")
        for summary in self.summaries:
            is_legal = isinstance(summary, str) and summary.startswith(SUMMARY_PREFIXES)
            is_legal = is_legal and summary not in SUMMARY_PREFIXES
            _require(is_legal, "summaries", summary, f"must begin with {' or '.join(SUMMARY_PREFIXES)}")

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Builds a config from decoded JSON.

        Raises:
            InvalidConfig: a field is unknown, missing or out of range; the message names it and its value.
        """
        fields = _from_json(cls, data, "")
        for name, part in _PARTS.items():
            if name in fields and not (fields[name] is None and name in _MAY_BE_NULL):
                fields[name] = part(**_from_json(part, fields[name], name))
        if isinstance(fields.get("summaries"), list):
            fields["summaries"] = tuple(fields["summaries"])
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """The config as JSON-able values; `from_json` gives back an equal config."""
        return {**dataclasses.asdict(self), "summaries": list(self.summaries)}


_PARTS: Mapping[str, Any] = {
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "averaging": AveragingConfig,
    "target": TargetConfig,
    "parallelism": ParallelismConfig,
    "compression": CompressionConfig,
}
_MAY_BE_NULL = frozenset({"averaging", "target", "compression"})


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a trial reports at one step; metrics are already reduced over ranks."""

    step: int
    """Optimizer steps done so far."""
    epoch: float
    """Passes over the training data so far."""
    seconds: float
    """Training time so far, without evaluation and checkpoints; continues over a resume."""
    metrics: Mapping[str, float]


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
