"""The questions to the process that predicts memory, and its answers: a line of JSON each."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Self, TypeAlias

from trainers.config import TrialConfig
from trainers.config_part import Refusal, RefusedPart
from trainers.data.roots import DataRoots
from trainers.identity.values import ModelShape


class Quantity(StrEnum):
    """The memory, or the cause of it, that is asked for."""

    KEPT = "kept"
    """Weights, gradients, averaged weights, and the optimizer's state and scratch memory."""
    ACTIVATIONS = "activations"
    """Activations of a step, for which one is run, and the batch."""
    SHAPE = "shape"
    """No memory, but the shape of the model that is built for it."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a rank of a trial."""

    config: TrialConfig
    quantity: Quantity
    world_size: int = 1
    device_type: str = "cpu"
    data_roots: DataRoots | None = None
    """The directories that the workload may read; None: all that the process may."""

    def to_line(self) -> str:
        """The question as `from_line` reads it."""
        roots = None if self.data_roots is None else asdict(self.data_roots)
        return json.dumps(
            [self.config.to_json(), self.quantity, self.world_size, self.device_type, roots], separators=(",", ":")
        )

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        """The question that `to_line` wrote."""
        config, quantity, world_size, device_type, roots = json.loads(line)
        return cls(
            TrialConfig.from_json(config),
            Quantity(quantity),
            world_size,
            device_type,
            None if roots is None else DataRoots.from_json(roots),
        )


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """The answer about what a rank keeps."""

    num_bytes: int
    weights_bytes: int
    """Parameters and buffers of the model alone, whole."""
    device_bytes: int | None
    """Memory of the process's first GPU, if the trial's ranks have GPUs; None: it has none."""
    num_train_examples: int
    """Training examples of the workload."""


@dataclass(frozen=True, slots=True)
class ActivationMemory:
    """The answer about a step."""

    num_bytes: int


@dataclass(frozen=True, slots=True)
class TrainedShape:
    """The answer about the shape of the model."""

    shape: ModelShape


class ProblemKind(StrEnum):
    """The kind of an error that is no refusal of the config."""

    CONSTRUCTION = "construction"
    """The workload's constructor or its `build_model` raised an error that is no refusal of its options."""
    STEP = "step"
    """The workload's code raised an error in a step."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PredictionProblem:
    """The answer that there is no telling, for another reason than a `Refusal`."""

    kind: ProblemKind
    message: str


Answer: TypeAlias = KeptMemory | ActivationMemory | TrainedShape | Refusal | PredictionProblem


def answer_to_line(answer: Answer) -> str:
    """An answer as `answer_from_line` reads it."""
    return json.dumps([type(answer).__name__, asdict(answer)], separators=(",", ":"))


def answer_from_line(line: str | bytes) -> Answer:
    """The answer that `answer_to_line` wrote.

    Raises:
        ValueError: the line is none.
    """
    try:
        name, fields = json.loads(line)
        if name == PredictionProblem.__name__:
            return PredictionProblem(ProblemKind(fields.pop("kind")), **fields)
        if name == Refusal.__name__:
            return Refusal(RefusedPart(fields.pop("part")), **fields)
        if name == TrainedShape.__name__:
            return TrainedShape(ModelShape.from_json(fields["shape"]["parameters"]))
        return {kind.__name__: kind for kind in (KeptMemory, ActivationMemory)}[name](**fields)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{line[:80]!r} is no answer") from error
