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
Decay: TypeAlias = Literal["cosine", "linear", "constant"]


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
        names = get_args(OptimizerName)
        _require(self.name in names, "optimizer.name", self.name, f"must be one of {', '.join(names)}")
        _require(isinstance(self.arguments, Mapping), "optimizer.arguments", self.arguments, "must be an object")

    @classmethod
    def from_json(cls, data: object) -> Self:
        return cls(**_from_json(cls, data, "optimizer"))


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """Learning-rate schedule: linear warm-up from 0 to the base value, then decay over the remaining steps."""

    warmup_fraction: float = 0.05
    """Share of all steps spent warming up, in [0, 1)."""
    decay: Decay = "cosine"
    """Shape after the warm-up; `cosine` and `linear` end at 0."""

    def __post_init__(self) -> None:
        _require(
            _is_finite(self.warmup_fraction) and 0 <= self.warmup_fraction < 1,
            "schedule.warmup_fraction",
            self.warmup_fraction,
            "must be in [0, 1)",
        )
        shapes = get_args(Decay)
        _require(self.decay in shapes, "schedule.decay", self.decay, f"must be one of {', '.join(shapes)}")

    @classmethod
    def from_json(cls, data: object) -> Self:
        return cls(**_from_json(cls, data, "schedule"))


@dataclass(frozen=True, slots=True)
class TrialConfig:
    """Everything that determines one training run; equal configs train equal models."""

    workload: str
    """Name of a registered workload (`trainers.workload`)."""
    optimizer: OptimizerConfig
    num_steps: int
    """Optimizer steps of the whole trial; also the horizon of the schedule."""
    evaluate_every: int
    """Steps between measurements; the last step is always measured."""
    batch_size: int
    """Examples per step over all ranks; divisible by the world size."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    workload_options: Mapping[str, Json] = field(default_factory=dict)
    """Arguments of the workload, e.g. label smoothing."""
    seed: int = 0
    """Seeds parameters, data order and everything else that is random."""
    gradient_clip_norm: float | None = None
    """Global gradient norm above which gradients are scaled down; None: no clipping."""
    max_loss: float = 1e4
    """A training loss above this, or one that is not finite, ends the trial as diverged."""
    checkpoint_every: int | None = None
    """Steps between checkpoints (a multiple of `evaluate_every`); None: after each measurement."""

    def __post_init__(self) -> None:
        _require(bool(self.workload) and isinstance(self.workload, str), "workload", self.workload, "must be a name")
        for name in ("num_steps", "evaluate_every", "batch_size"):
            value = getattr(self, name)
            _require(_is_int(value) and value >= 1, name, value, "must be an integer >= 1")
        _require(_is_int(self.seed) and self.seed >= 0, "seed", self.seed, "must be an integer >= 0")
        clip = self.gradient_clip_norm
        _require(clip is None or (_is_finite(clip) and clip > 0), "gradient_clip_norm", clip, "must be > 0 or null")
        _require(_is_finite(self.max_loss) and self.max_loss > 0, "max_loss", self.max_loss, "must be > 0")
        _require(
            isinstance(self.workload_options, Mapping), "workload_options", self.workload_options, "must be an object"
        )
        every = self.checkpoint_every
        _require(
            every is None or (_is_int(every) and every >= 1 and every % self.evaluate_every == 0),
            "checkpoint_every",
            every,
            f"must be null or a positive multiple of evaluate_every ({self.evaluate_every})",
        )

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Builds a config from decoded JSON.

        Raises:
            InvalidConfig: a field is unknown, missing or out of range; the message names it and its value.
        """
        fields = _from_json(cls, data, "")
        fields["optimizer"] = OptimizerConfig.from_json(fields["optimizer"])
        if "schedule" in fields:
            fields["schedule"] = ScheduleConfig.from_json(fields["schedule"])
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """The config as JSON-able values; `from_json` gives back an equal config."""
        return dataclasses.asdict(self)


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

    def __init__(self, step: int, detail: str) -> None:
        super().__init__(f"diverged at step {step}: {detail}")
        self.step = step
        self.detail = detail

    def __reduce__(self) -> tuple[type[Diverged], tuple[int, str]]:
        return type(self), (self.step, self.detail)
