"""Losses that use more of a model than its call, and the training of one on this rank."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.trainers.parallel.training import batch_of, optimizer_of, parameters_of, share_of, trial_config
from trainers.parallel.parallelise import parallelise
from trainers.ranks.context import RankContext, process_group_context
from trainers.workload.protocol import Workload


class WithTeacher(nn.Module):
    """A network whose average, a frozen copy, is trained by the loss, with a number named as one of DDP's own."""

    def __init__(self) -> None:
        super().__init__()
        self.dim = 12
        self.student = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 17))
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.centre: Tensor
        self.register_buffer("centre", torch.zeros(17))

    def forward(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.student(x))

    def first_layer(self, x: Tensor) -> Tensor:
        return cast("Tensor", self.student[0](x))

    @torch.no_grad()
    def update_teacher(self) -> None:
        for average, parameter in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            average.lerp_(parameter, 0.1)


class Routed(nn.Module):
    """One layer of two for each batch, so that a step leaves one of them out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 17), nn.Linear(12, 17)

    def forward(self, x: Tensor, *, only_first: bool) -> Tensor:
        return cast("Tensor", self.first(x) if only_first else self.first(x) + self.second(x))


def of_call(model: Any, x: Tensor, y: Tensor) -> Tensor:
    """The model is called, and its attributes and methods are used beside."""
    loss = functional.cross_entropy(model(x), y)
    model.update_teacher()
    difference: Tensor = functional.mse_loss(model.student(x), model.teacher(x)) / model.dim
    return loss + difference


def of_parts(model: Any, x: Tensor, y: Tensor) -> Tensor:
    """Only parts of the model are called, and a buffer is replaced."""
    logits = model.student[1:](model.first_layer(x))
    model.centre = torch.ones(17)
    loss: Tensor = functional.cross_entropy(logits - model.centre, y) / model.dim
    return loss


def of_copies(model: Any, x: Tensor, y: Tensor) -> Tensor:
    """Beside the model, a slice of it and a copy are called."""
    with torch.no_grad():
        sliced, copied = model[:1](x), copy.deepcopy(model)(x)
    loss: Tensor = functional.cross_entropy(model(x), y) + sliced.mean() + copied.mean()
    return loss


def losses_of_adversaries(model: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The losses of a generator, the first layer, and of its critic, the second, as of a GAN."""
    real, fake = functional.one_hot(y, 17).float(), model[0](x)
    critic = functional.softplus(-model[1](real)).mean() + functional.softplus(model[1](fake.detach())).mean()
    return functional.softplus(-model[1](fake)).mean(), critic


def of_adversaries(model: Any, x: Tensor, y: Tensor) -> Tensor:
    """Two networks of one model, each of which learns from its own loss, as the manual has it."""
    _, critic = losses_of_adversaries(model, x, y)
    model[1].requires_grad_(False)
    generator = functional.softplus(-model[1](model[0](x))).mean()
    model[1].requires_grad_(True)
    return critic + generator


@dataclass(frozen=True, slots=True)
class Trained:
    """A model after its training on one rank."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    class_names: list[str]
    """Those of the model's class between steps."""


def train_with(
    make: Callable[[], nn.Module],
    loss_of: Callable[[Any, Tensor, Tensor], Tensor],
    mode: str = "ddp",
    context: RankContext | None = None,
    *,
    compiles: bool = False,
) -> Trained:
    """The model after three steps of SGD on this rank's share."""
    context = context or process_group_context()
    torch.manual_seed(0)
    config = trial_config(mode, compile=compiles)
    parallel = parallelise(make(), cast("Workload", None), config, context)
    optimizer = optimizer_of("sgd", parallel.model)
    names = []
    for step in range(3):
        optimizer.zero_grad()
        with parallel.accumulating(is_last=True):
            loss_of(parallel.forward, *share_of(batch_of(step), context)).backward()
        optimizer.step()
        names.append(repr(type(parallel.model)))
    buffers = {name: buffer.clone() for name, buffer in parallel.model.named_buffers()}
    return Trained(parameters_of(parallel.model), buffers, names)


def skipped_later(only_first: Sequence[bool]) -> str:
    """The error of a step that leaves a layer out, after one that did not; by rank, whether it does."""
    context = process_group_context()
    parallel = parallelise(Routed(), cast("Workload", None), trial_config("ddp"), context)
    x, _ = share_of(batch_of(0), context)
    for leaves_out in (False, only_first[context.rank]):
        parallel.model.zero_grad()
        try:
            with parallel.accumulating(is_last=True):
                parallel.forward(x, only_first=leaves_out).sum().backward()
        except RuntimeError as error:
            return str(error)
    return ""


def adds_up_parameters(mode: str) -> str:
    """The error of a loss that adds up the parameters of a layer, instead of calling it."""
    context = process_group_context()
    parallel = parallelise(Routed(), cast("Workload", None), trial_config(mode), context)
    x, _ = share_of(batch_of(0), context)
    try:
        with parallel.accumulating(is_last=True):
            (
                parallel.forward(x, only_first=False).sum() + 0 * sum(p.sum() for p in parallel.model.parameters())
            ).backward()
    except RuntimeError as error:
        return str(error)
    return ""
