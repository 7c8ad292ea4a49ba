"""The `Workload` protocol and the registry of workloads.

A workload is a model with its data, loss and metrics. Descriptions are plain values, so that the API can list and
check workloads without importing torch; the implementation is imported by `load`, where training happens.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from trainers.config import InvalidConfig, Json
from trainers.installation.distribution import needs
from trainers.workload.description import WorkloadDescription
from trainers.workload.user_workload import description_of, explain, import_class, is_reference
from trainers.workloads.built_in import BUILT_IN

if TYPE_CHECKING:
    from torch import Tensor, nn

ENTRY_POINT_GROUP = "shampoo_tuner.workloads"


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
        ranks, so resume and another world size see the same data; `trainers.data.order` does this. All ranks' shares
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


@runtime_checkable
class HasBlocks(Protocol):
    """A workload that says which modules of its model are alike and follow each other, e.g. a transformer's blocks.

    They are what is sharded, recomputed in the backward pass and compiled one by one. Without it, the elements of the
    model's `ModuleList`s are taken, or else its direct children.
    """

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Modules within `model`, none inside another."""


@runtime_checkable
class HasParameterGroups(Protocol):
    """A workload whose parameters are not all trained alike, e.g. without weight decay on biases."""

    def parameter_groups(self, model: nn.Module) -> Sequence[Mapping[str, Any]]:
        """Groups as a torch optimizer takes them: `params`, and the arguments that differ. Each trained parameter once.

        An argument that the optimizer does not have is left out.
        """


@runtime_checkable
class HasTokens(Protocol):
    """A workload on sequences, whose throughput is counted in tokens too."""

    @property
    def tokens_per_example(self) -> int:
        """Tokens that the model predicts, or reads, per training example."""


@runtime_checkable
class CountsEvents(Protocol):
    """A workload that counts what happens to its data, e.g. unreadable images that it passed over."""

    def counts(self) -> Mapping[str, int]:
        """This rank's counts since the workload was built; the same names on every rank. Summed over ranks, they are
        metrics of each measurement."""


class UnknownWorkload(InvalidConfig):
    """No workload of that name is registered."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            "workload", f"unknown workload {name!r} (known: {', '.join(known)}; or your own as module:Class)"
        )
        self.name = name
        self.known = tuple(known)

    def __reduce__(self) -> tuple[type[UnknownWorkload], tuple[str, tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.name, self.known)


def descriptions() -> dict[str, WorkloadDescription]:
    """Every workload that has a name of its own: the built-in ones and those of installed packages.

    A package registers a workload with an entry point in the group `shampoo_tuner.workloads` that names its class, or
    a `WorkloadDescription` in a module that does not import torch.

    Raises:
        InvalidConfig: an entry point names neither.
    """
    found = dict(BUILT_IN)
    for entry_point in entry_points():
        description = description_from(entry_point)
        found.setdefault(description.name, description)
    return found


def describe(name: str) -> WorkloadDescription:
    """The description of the workload `name`: a registered one, or a user's own class as `module:Class`.

    Raises:
        UnknownWorkload: there is none; the message lists those there are.
        InvalidConfig: `module:Class` cannot be imported, or does not describe itself.
    """
    return _find(name).description


def entry_points() -> tuple[EntryPoint, ...]:
    """Those of installed packages that name workloads; nothing of theirs is imported."""
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def description_from(entry_point: EntryPoint) -> WorkloadDescription:
    """What an entry point names, which is imported for it. A class is called by the entry point's name.

    Raises:
        InvalidConfig: it cannot be imported, or names no `WorkloadDescription` and no class that describes itself.
    """
    try:
        found = entry_point.load()
    except (Exception, SystemExit) as error:  # the boundary to a user's own code
        raise InvalidConfig("workload", f"{entry_point.value} cannot be imported: {explain(error)}") from error
    if isinstance(found, WorkloadDescription):
        return found
    if isinstance(found, type):
        return replace(description_of(found, name=entry_point.name), implementation=entry_point.value)
    raise InvalidConfig(
        "workload",
        f"entry point {entry_point.name} = {entry_point.value} must name a class or a WorkloadDescription, "
        f"got {found!r:.80}",
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A workload by its name."""

    description: WorkloadDescription
    has_own_defaults: bool
    """Whether the defaults are those of the constructor, and not only of the description."""


def _find(name: str) -> _Found:
    if name in BUILT_IN:
        return _Found(BUILT_IN[name], has_own_defaults=False)
    if is_reference(name):
        return _Found(description_of(import_class(name), name=name), has_own_defaults=True)
    installed = entry_points()
    for entry_point in sorted(installed, key=lambda entry_point: entry_point.name != name):
        try:
            description = description_from(entry_point)
        except InvalidConfig:
            if entry_point.name == name:
                raise
            continue  # another package's trouble
        if description.name == name:
            return _Found(description, has_own_defaults=isinstance(entry_point.load(), type))
    raise UnknownWorkload(name, sorted({*BUILT_IN, *(entry_point.name for entry_point in installed)}))


def check_options(description: WorkloadDescription, options: Mapping[str, Json]) -> None:
    """Checks the names of workload options, and that those required are there.

    Raises:
        InvalidConfig: an option the workload does not have, or one that is missing; the message names it.
    """
    for name, value in options.items():
        if name not in description.options:
            known = ", ".join(sorted(description.options)) or "none"
            raise InvalidConfig(
                f"workload_options.{name}", f"unknown option of {description.name} (known: {known}), got {value!r}"
            )
    for name, option in description.options.items():
        if option.required and options.get(name) is None:
            raise InvalidConfig(f"workload_options.{name}", f"is required by {description.name}: {option.description}")


def load(name: str, options: Mapping[str, Json]) -> Workload:
    """Builds the workload `name`; data are loaded here.

    Raises:
        UnknownWorkload: no such workload.
        InvalidConfig: an option is unknown or has a value the workload refuses, or `module:Class` cannot be imported,
            or a library is missing.
    """
    found = _find(name)
    description = found.description
    check_options(description, options)
    defaults = {} if found.has_own_defaults else {o: spec.default for o, spec in description.options.items()}
    implementation = _implementation(description)
    try:
        return cast("Workload", implementation(**{**defaults, **options}))
    except ValueError as error:
        raise InvalidConfig("workload_options", f"refused by {name}: {error}") from error


def _implementation(description: WorkloadDescription) -> type[Any]:
    """The class of a workload. Raises: InvalidConfig: it cannot be imported, e.g. for want of a library."""
    try:
        return import_class(description.implementation)
    except InvalidConfig as error:
        missing = error.__cause__
        if description.extra is None or not isinstance(missing, ModuleNotFoundError):
            raise
        raise InvalidConfig(
            "workload", f"{description.name} {needs(str(missing.name), extra=description.extra)}"
        ) from error
