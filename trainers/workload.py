"""The `Workload` protocol and the registry of workloads.

A workload is a model with its data, loss and metrics. Descriptions are plain values, so that the API can list and
check workloads without importing torch; the implementation is imported by `load`, where training happens.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

from trainers.config import InvalidConfig, Json

if TYPE_CHECKING:
    from torch import Tensor, nn

Direction: TypeAlias = Literal["minimize", "maximize"]

ENTRY_POINT_GROUP = "shampoo_tuner.workloads"


@dataclass(frozen=True, slots=True)
class WorkloadOption:
    """One argument of a workload's constructor."""

    default: Json
    description: str


@dataclass(frozen=True, slots=True)
class WorkloadDescription:
    """What is known of a workload without building it."""

    name: str
    title: str
    implementation: str
    """`module:Class`; the class is called with the workload's options as keyword arguments."""
    metrics: Mapping[str, Direction]
    """Every metric a measurement holds, with the direction in which it is better."""
    default_objective: str
    default_num_steps: int
    default_evaluate_every: int
    default_batch_size: int
    options: Mapping[str, WorkloadOption] = field(default_factory=dict)


class Workload(Protocol):
    """A model with its data, loss and metrics, as the training loop uses it. Same on every rank."""

    def build_model(self) -> nn.Module:
        """A freshly initialised model on the CPU, drawn from torch's global generator (the loop seeds it)."""

    @property
    def num_train_examples(self) -> int:
        """Size of the training set, over all ranks."""

    def train_batches(
        self, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
    ) -> Iterator[object]:
        """Endless batches of this rank: its share of each global batch, beginning with the batch of step `start_step`.

        The global batch of a step (the first is 0) depends only on `batch_size`, `seed` and the step, never on the
        ranks, so resume and another world size see the same data; `trainers.data_order` does this. All ranks' shares
        are equally large. A batch is made of CPU tensors, or tuples, lists and dicts of them; the loop moves it to the
        rank's device.
        """

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """Mean training loss of one batch: a scalar with gradient."""

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """This rank's share of the validation metrics as {name: (weighted sum, weight)}; the loop reduces over ranks.

        Called without gradients and with the model in evaluation mode; the same names on every rank.
        """


_SIZE = WorkloadOption("tiny", "size of the model: tiny or small; steps and batch size have defaults for tiny")

_BUILT_IN: dict[str, WorkloadDescription] = {
    description.name: description
    for description in (
        WorkloadDescription(
            name="digits-mlp",
            title="Handwritten digits (8x8, 1,797 images from scikit-learn), multi-layer perceptron",
            implementation="trainers.workloads.digits:DigitsMLP",
            metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
            default_objective="validation_loss",
            default_num_steps=100,  # nine epochs: with more the best value is decided by overfitting, not optimization
            default_evaluate_every=10,
            default_batch_size=128,
            options={
                "hidden_sizes": WorkloadOption([128, 64], "units of each hidden layer"),
                "dropout": WorkloadOption(0.0, "share of each hidden layer's units dropped in training, in [0, 1)"),
                "label_smoothing": WorkloadOption(0.0, "label smoothing of the training loss, in [0, 1)"),
            },
        ),
        WorkloadDescription(
            name="digits-autoencoder",
            title="Handwritten digits (8x8, 1,797 images from scikit-learn), deep autoencoder",
            implementation="trainers.workloads.digits_autoencoder:DigitsAutoencoder",
            metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_squared_error": "minimize"},
            default_objective="validation_loss",
            default_num_steps=400,  # with more, a good optimizer's best value is decided by overfitting here, too
            default_evaluate_every=40,
            default_batch_size=128,
            options={"size": _SIZE},
        ),
        WorkloadDescription(
            name="digits-convnet",
            title="Handwritten digits (8x8, 1,797 images from scikit-learn), convolutional network",
            implementation="trainers.workloads.digits_convnet:DigitsConvnet",
            metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
            default_objective="validation_loss",
            default_num_steps=100,  # four and a half epochs: later the loss is near its floor with any optimizer
            default_evaluate_every=10,
            default_batch_size=64,
            options={
                "size": _SIZE,
                "label_smoothing": WorkloadOption(0.0, "label smoothing of the training loss, in [0, 1)"),
            },
        ),
        WorkloadDescription(
            name="stdlib-gpt",
            title="Source of Python's own standard library (about 4 MB, differs between versions), byte-level GPT",
            implementation="trainers.workloads.stdlib_gpt:StdlibGPT",
            metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
            default_objective="validation_loss",
            default_num_steps=400,  # a fifth of an epoch: no sequence is seen twice
            default_evaluate_every=40,
            default_batch_size=32,
            options={"size": _SIZE},
        ),
    )
}


class UnknownWorkload(InvalidConfig):
    """No workload of that name is registered."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__("workload", f"unknown workload {name!r} (known: {', '.join(known)})")
        self.name = name
        self.known = tuple(known)

    def __reduce__(self) -> tuple[type[UnknownWorkload], tuple[str, tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.name, self.known)


def descriptions() -> dict[str, WorkloadDescription]:
    """Every known workload by name: the built-in ones and those of installed packages.

    A package registers a workload with an entry point in the group `shampoo_tuner.workloads` that names a
    `WorkloadDescription`; keep that object in a module that does not import torch.
    """
    found = dict(_BUILT_IN)
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        description = entry_point.load()
        if not isinstance(description, WorkloadDescription):
            raise TypeError(f"entry point {entry_point.value} must name a WorkloadDescription, got {description!r}")
        found.setdefault(description.name, description)
    return found


def describe(name: str) -> WorkloadDescription:
    """The description of the workload `name`.

    Raises:
        UnknownWorkload: there is none; the message lists those there are.
    """
    found = descriptions()
    if name not in found:
        raise UnknownWorkload(name, sorted(found))
    return found[name]


def check_options(description: WorkloadDescription, options: Mapping[str, Json]) -> None:
    """Checks the names of workload options.

    Raises:
        InvalidConfig: an option the workload does not have; the message names it.
    """
    for name, value in options.items():
        if name not in description.options:
            known = ", ".join(sorted(description.options)) or "none"
            raise InvalidConfig(
                f"workload_options.{name}", f"unknown option of {description.name} (known: {known}), got {value!r}"
            )


def load(name: str, options: Mapping[str, Json]) -> Workload:
    """Builds the workload `name`; data are loaded here.

    Raises:
        UnknownWorkload: no such workload.
        InvalidConfig: an option is unknown or has a value the workload refuses.
    """
    description = describe(name)
    check_options(description, options)
    module_name, _, class_name = description.implementation.partition(":")
    implementation = getattr(importlib.import_module(module_name), class_name)
    defaults = {option: spec.default for option, spec in description.options.items()}
    try:
        return cast("Workload", implementation(**{**defaults, **options}))
    except ValueError as error:
        raise InvalidConfig("workload_options", f"refused by {name}: {error}") from error
