"""What one trial trains, as plain values: frozen dataclasses, JSON in and out, no torch.

A field is declared once, here: its type with its bounds, its default, its prose. The dataclasses check themselves by
that, and whoever reads requests or writes a schema does so from the same declaration. A person can write a
`TrialConfig` by hand for `python -m trainers.run config.json`. Unknown or missing fields are errors that name them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args, get_origin

Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None

OptimizerName: TypeAlias = Literal["shampoo", "adamw", "sgd"]
Decay: TypeAlias = Literal["cosine", "linear", "constant", "wsd"]
ParallelismMode: TypeAlias = Literal["ddp", "fsdp2", "hsdp", "simple_fsdp"]
Precision: TypeAlias = Literal["float32", "bfloat16", "float16"]
AveragingMethod: TypeAlias = Literal["ema", "lawa", "schedule_free", "primal"]

MAX_COUNT = 2**31 - 1
"""Steps and examples: what an INTEGER column holds."""
MAX_SEED = 2**63 - 1
"""What torch and NumPy both take, and JSON readers in other languages do not overflow on."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of a number, declared with its type: `Annotated[float, Bounds(gt=0)]`; without `gt` or `ge` none below.

    The names are those of pydantic, which reads them where it validates such a field (`docs.pydantic.dev`, "Handling
    third-party types"); nothing of it is imported for that.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def holds(self, number: float) -> bool:
        """True if the number is within the bounds."""
        return (
            (self.ge is None or number >= self.ge)
            and (self.gt is None or number > self.gt)
            and (self.le is None or number <= self.le)
            and (self.lt is None or number < self.lt)
        )

    def __str__(self) -> str:
        low, high = self.ge if self.gt is None else self.gt, self.le if self.lt is None else self.lt
        if high is None or high in (MAX_COUNT, MAX_SEED):
            return f"{'>=' if self.gt is None else '>'} {low:g}"
        return f"in {'[' if self.gt is None else '('}{low:g}, {high:g}{']' if self.lt is None else ')'}"

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], dict[str, Any]]) -> Any:
        given = {name: getattr(self, name) for name in ("ge", "gt", "le", "lt")}
        return {**handler(source), **{name: bound for name, bound in given.items() if bound is not None}}


class _JsonObject:
    """Says that a mapping's values are any JSON, which the recursive type `Json` cannot tell pydantic."""

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        return {"type": "dict", "keys_schema": {"type": "str"}}


Count: TypeAlias = Annotated[int, Bounds(ge=1, le=MAX_COUNT)]
Positive: TypeAlias = Annotated[float, Bounds(gt=0)]
JsonObject: TypeAlias = Annotated[Mapping[str, Json], _JsonObject()]

_Rule: TypeAlias = Callable[[object], str | None]
"""Tells what a value must be, if it is not that."""


def _rule_of(hint: Any) -> _Rule | None:
    """The rule that a field's type declares; None: it is a part with rules of its own."""
    if get_origin(hint) is Annotated:
        kind, declared = get_args(hint)[:2]
        return functools.partial(_number_rule, kind, declared) if isinstance(declared, Bounds) else _rule_of(kind)
    if get_origin(hint) in (typing.Union, types.UnionType):
        rule = _rule_of(next(choice for choice in get_args(hint) if choice is not type(None)))
        return None if rule is None else lambda value: None if value is None else rule(value)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return lambda value: None if value in choices else f"must be one of {', '.join(choices)}"
    if hint is bool:
        return lambda value: None if isinstance(value, bool) else "must be true or false"
    if hint is str:
        return lambda value: None if isinstance(value, str) and value else "must be a name"
    if get_origin(hint) is Mapping:
        return lambda value: None if isinstance(value, Mapping) else "must be an object"
    return None


def _number_rule(kind: type, bounds: Bounds, value: object) -> str | None:
    is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and bounds.holds(value):  # type: ignore[arg-type]
        return None
    return f"must be an integer {bounds}" if kind is int else f"must be {bounds}"


@functools.cache
def _hints(settings: type) -> dict[str, Any]:
    hints = typing.get_type_hints(settings, include_extras=True)
    return {declared.name: hints[declared.name] for declared in dataclasses.fields(settings)}


@functools.cache
def _rules(settings: type) -> dict[str, _Rule]:
    rules = {name: _rule_of(hint) for name, hint in _hints(settings).items()}
    return {name: rule for name, rule in rules.items() if rule is not None}


class Settings:
    """A part of a trial's config: a dataclass whose fields keep to what their types declare."""

    __slots__ = ()
    section: ClassVar[str] = ""
    """What the paths of its fields begin with: where it stands in the config."""

    def __init_subclass__(cls, section: str | None = None) -> None:
        if section is not None:  # a dataclass with slots is made twice, the second time without
            cls.section = section

    def __post_init__(self) -> None:
        own: type = type(self)
        for name, rule in _rules(own).items():
            broken = rule(value := getattr(self, name))
            _require(broken is None, self.section + name, value, broken or "")

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Builds it from decoded JSON.

        Raises:
            InvalidConfig: a field is unknown, missing or out of range; the message names it and its value.
        """
        _require(isinstance(data, Mapping), cls.section.rstrip(".") or cls.__name__, data, "must be an object")
        assert isinstance(data, Mapping)
        own: type = cls
        hints = _hints(own)
        for name in data:
            _require(name in hints, f"{cls.section}{name}", data[name], f"unknown field (known: {', '.join(hints)})")
        for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # its subclasses are dataclasses
            optional = (
                declared.default is not dataclasses.MISSING or declared.default_factory is not dataclasses.MISSING
            )
            _require(declared.name in data or optional, f"{cls.section}{declared.name}", None, "is required")
        return cls(**{name: _value_from_json(hints[name], value) for name, value in data.items()})

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
        schema = handler(source)
        # A strict model's fields stay strict; but in place of a part JSON has an object.
        handler.resolve_ref_schema(schema)["strict"] = False
        return schema


def _value_from_json(hint: Any, value: Any) -> Any:
    choices = (hint, *get_args(hint))
    part = next((kind for kind in choices if isinstance(kind, type) and issubclass(kind, Settings)), None)
    if part is not None and not (value is None and type(None) in choices):
        return part.from_json(value)
    return tuple(value) if get_origin(hint) is tuple and isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class OptimizerConfig(Settings, section="optimizer."):
    """An optimizer and exactly the keyword arguments its constructor gets."""

    name: OptimizerName
    arguments: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScheduleConfig(Settings, section="schedule."):
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
        Settings.__post_init__(self)
        fall = self.decay_fraction
        is_used = fall is None or self.decay == "wsd"
        _require(is_used, "schedule.decay_fraction", fall, f"has no effect with decay {self.decay}")


@dataclass(frozen=True, slots=True)
class ParallelismConfig(Settings, section="parallelism."):
    """How the ranks of a trial share its work; with one rank, every mode trains the plain model."""

    mode: ParallelismMode = "ddp"
    """`ddp`: each rank has the whole model. `fsdp2`: parameters, gradients and state are sharded over all ranks
    (`fully_shard`). `hsdp`: sharded within groups of ranks, replicated across them. `simple_fsdp`: as `fsdp2`, by
    DTensor parametrizations that the compiler sees through (arXiv 2411.00284).

    With `ddp` every rank has Shampoo's whole state and does all of its work, unless the optimizer's argument
    `distributed` is "lossless": then both are divided by the number of ranks (ZeRO-1), with the same losses."""
    shard_size: Count | None = None
    """With `hsdp`, ranks that share one copy of the model: a divisor of the world size. Required by `hsdp` alone."""

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        size, mode = self.shard_size, self.mode
        if mode == "hsdp":
            _require(size is not None, "parallelism.shard_size", size, "must be an integer >= 1 with mode hsdp")
        else:
            _require(size is None, "parallelism.shard_size", size, f"has no effect with {mode}")


@dataclass(frozen=True, slots=True)
class CompressionConfig(Settings, section="compression."):
    """PowerSGD compression of the gradients that ranks exchange (arXiv 1905.13727), with `ddp` only."""

    rank: Count = 4
    """Rank of the approximation of each gradient matrix, >= 1."""
    start_step: Annotated[int, Bounds(ge=2, le=MAX_COUNT)] = 10
    """Steps with exact gradients before compression starts, >= 2."""
    error_feedback: bool = True
    """Whether what compression lost is added to the next step's gradient."""


@dataclass(frozen=True, slots=True)
class AveragingConfig(Settings, section="averaging."):
    """Weight averaging around the optimizer; the averaged weights are the ones that are evaluated."""

    method: AveragingMethod
    """Of `shampoo.WeightAveraging`."""
    arguments: JsonObject = field(default_factory=dict)
    """Its other keyword arguments."""


@dataclass(frozen=True, slots=True)
class TargetConfig(Settings, section="target."):
    """A value of a metric that the trial is to reach; adds the metrics `steps_to_target` and `seconds_to_target`."""

    metric: str
    value: Annotated[float, Bounds()]
    direction: Literal["minimize", "maximize"] | None = None
    """Whether the target is reached from above (minimize) or from below; None: the metric's own direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings(Settings):
    """How a trial trains, apart from its workload, its optimizer and its length: what all trials of a job have in
    common, but for what the search varies."""

    accumulation_steps: Count = 1
    """Forward and backward passes per optimizer step, each on an equal part of the batch."""
    gradient_clip_norm: Positive | None = None
    """Global gradient norm above which gradients are scaled down; null: no clipping."""
    seed: Annotated[int, Bounds(ge=0, le=MAX_SEED)] = 0
    """Seeds parameters, data order and everything else that is random."""
    max_loss: Positive = 1e4
    """A training loss above this, or one that is not finite, ends the trial as diverged."""

    evaluate_every: Count | None = None
    """Steps between measurements; the last step is always measured. A trial has exactly one of this and the next two;
    a job that gives none takes the workload's default."""
    evaluate_every_epochs: Positive | None = None
    """Epochs between measurements: each is taken at the first step that completes so many."""
    evaluate_every_seconds: Positive | None = None
    """Seconds of training between measurements, by rank 0's clock. The steps at which such measurements fall differ
    from run to run."""

    precision: Precision = "float32"
    """Of the forward and backward passes; parameters and optimizer state stay in float32. float16 scales the loss."""
    activation_checkpointing: bool = False
    """Whether activations inside the model's blocks are computed again in the backward pass instead of kept."""
    compile: bool = False
    """Whether the model is compiled with `torch.compile`."""
    parallelism: ParallelismConfig = field(default_factory=ParallelismConfig)
    compression: CompressionConfig | None = None
    averaging: AveragingConfig | None = None

    checkpoint_every: Count | None = None
    """Steps between checkpoints; each is written at the first measurement after so many (with `evaluate_every`, it
    must be a multiple). Null: after each measurement."""
    keep_checkpoints: Count = 2
    """How many checkpoints of a trial are kept, the newest ones."""


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
        Settings.__post_init__(self)
        if self.compression is not None:
            mode, precision = self.parallelism.mode, self.precision
            _require(mode == "ddp", "compression", mode, "is for parallelism mode ddp")
            # Its error memory would keep what overflowed once for ever.
            _require(precision != "float16", "compression", precision, "is for the precisions float32 and bfloat16")
        passes = self.accumulation_steps
        divides = self.batch_size % passes == 0
        _require(divides, "accumulation_steps", passes, f"must divide batch_size ({self.batch_size})")
        self._check_measurements()

    def _check_measurements(self) -> None:
        steps, every = self.evaluate_every, self.checkpoint_every
        intervals = (steps, self.evaluate_every_epochs, self.evaluate_every_seconds)
        given = [interval for interval in intervals if interval is not None]
        rule = "exactly one of evaluate_every, evaluate_every_epochs and evaluate_every_seconds must be given"
        _require(len(given) == 1, "evaluate_every", given, rule)
        if every is not None and steps is not None:
            rule = f"must be null or a positive integer multiple of evaluate_every ({steps})"
            _require(every % steps == 0, "checkpoint_every", every, rule)
        is_list = isinstance(self.summaries, list | tuple)
        _require(is_list, "summaries", self.summaries, "must be a list of names")
        for summary in self.summaries:
            is_legal = isinstance(summary, str) and summary.startswith(SUMMARY_PREFIXES)
            is_legal = is_legal and summary not in SUMMARY_PREFIXES
            _require(is_legal, "summaries", summary, f"must begin with {' or '.join(SUMMARY_PREFIXES)}")

    @classmethod
    def of(cls, settings: TrainingSettings, **own: Any) -> Self:
        """The config of a trial that trains with these settings; `own`: the fields that only trials have."""
        shared = {declared.name: getattr(settings, declared.name) for declared in dataclasses.fields(TrainingSettings)}
        return cls(**shared, **own)

    def to_json(self) -> dict[str, Any]:
        """The config as JSON-able values, its own fields first; `from_json` gives back an equal config."""
        values = {**dataclasses.asdict(self), "summaries": list(self.summaries)}
        return {name: values[name] for name in (*TrialConfig.__annotations__, *TrainingSettings.__annotations__)}


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
