"""The workload under check, built leniently: a part that breaks one rule does not keep the others from looking."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainers.config import InvalidConfig, Json
from trainers.workload.batches import check_has_examples, train_batches
from trainers.workload.description import WorkloadDescription
from trainers.workload.protocol import Workload
from trainers.workload.user_workload import import_class, is_reference, options_of
from trainers.workload_check.outcome import NotChecked
from trainers.workloads.registry import describe, refused_options

T = TypeVar("T")

SEED = 1
"""Seed of models and batches; any number would do."""
OTHER_SEED = 2
"""Any number but that."""
WORLD_SIZES = (1, 2, 3)
"""One rank, an even and an odd number of them."""


class Subject:
    """A workload with the options to check it with. Parts are built when first asked for, once."""

    def __init__(self, name: str, options: Mapping[str, Json], *, batch_size: int) -> None:
        """`batch_size` is over all ranks; divisible by 6, so that 1, 2 and 3 ranks can share it."""
        self.name = name
        self.options = options
        self.batch_size = batch_size

    @cached_property
    def description(self) -> WorkloadDescription:
        """The workload's description, options checked.

        Raises:
            InvalidConfig: it says something impossible, or the options do not fit.
        """
        description = describe(self.name)
        for refused in refused_options(description, self.options):
            raise refused
        return description

    @cached_property
    def do_options_fit(self) -> bool:
        """False if an option is unknown or a required one is missing; True also where no description tells."""
        try:
            return not any(refused_options(describe(self.name), self.options))
        except InvalidConfig:
            return True

    @property
    def checked_description(self) -> WorkloadDescription:
        """The description, for rules that are about something else."""
        try:
            return self.description
        except InvalidConfig as error:
            raise NotChecked("the description is not complete and consistent") from error

    def build(self) -> Workload:
        """The workload anew; whatever its constructor raises.

        Raises:
            NotChecked: an option is unknown or missing, which the rule on the description tells.
        """
        if not self.do_options_fit:
            raise NotChecked("the options do not fit")
        if not is_reference(self.name):
            description = describe(self.name)
            defaults = {option: spec.default for option, spec in description.options.items()}
            return cast("Workload", import_class(description.implementation)(**{**defaults, **self.options}))
        return cast("Workload", import_class(self.name)(**self.options))

    @cached_property
    def workload(self) -> Workload:
        return self.available(self.build, "the workload cannot be built")

    @cached_property
    def constructor_options(self) -> Mapping[str, Any]:
        """The options that the constructor takes, by name."""
        return options_of(import_class(self.description.implementation))

    def build_model(self, seed: int = SEED) -> nn.Module:
        """A model of this seed; whatever `build_model` raises."""
        torch.manual_seed(seed)
        return self.workload.build_model()

    def model(self) -> nn.Module:
        """A new model, for rules that are about something else."""
        model = self.available(self.build_model, "build_model fails")
        if not isinstance(model, nn.Module):
            raise NotChecked("build_model gives no torch.nn.Module")
        if any(map(is_lazy, model.parameters())):
            raise NotChecked("parts of the model have no shape yet")
        return model

    def batches(
        self,
        *,
        seed: int = SEED,
        rank: int = 0,
        world_size: int = 1,
        start_step: int = 0,
        batch_size: int | None = None,
        workload: Workload | None = None,
    ) -> Iterator[object]:
        """Batches of one rank. Raises: NotChecked: there are no examples."""
        self.check_has_examples()
        return train_batches(
            workload or self.workload,
            batch_size=batch_size or self.batch_size,
            seed=seed,
            rank=rank,
            world_size=world_size,
            start_step=start_step,
        )

    def check_has_examples(self) -> None:
        """Raises: NotChecked: there are no training examples, which the rule on the construction tells."""
        self.available(partial(check_has_examples, self.workload), "there are no training examples")

    @cached_property
    def batch(self) -> object:
        """The first batch, for rules that are about something else. It must not be changed."""
        return self.available(lambda: next(iter(self.batches())), "there are no batches")

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """A usable training loss, for rules that are about something else."""
        loss = self.available(lambda: self.workload.loss(model, batch), "loss fails")
        if not isinstance(loss, Tensor) or loss.shape != () or not loss.requires_grad or not bool(loss.isfinite()):
            raise NotChecked("the loss is no finite scalar with gradient")
        return loss

    def evaluate(
        self, model: nn.Module, *, rank: int = 0, world_size: int = 1, with_gradients: bool = False
    ) -> Mapping[str, tuple[float, float]]:
        """One rank's share of the metrics, as the loop asks for it without gradients; whatever `evaluate` raises."""
        model.eval()
        with torch.set_grad_enabled(with_gradients):
            return self.workload.evaluate(model, rank=rank, world_size=world_size, device="cpu")

    def metrics(self, model: nn.Module, *, world_size: int = 1) -> list[Mapping[str, tuple[float, float]]]:
        """The shares of all ranks, for rules that are about something else than their form."""
        shares = [
            self.available(partial(self.evaluate, model, rank=rank, world_size=world_size), "evaluate fails")
            for rank in range(world_size)
        ]
        if not all(_is_well_formed(share) for share in shares):
            raise NotChecked("evaluate does not give {name: (weighted sum, weight)}")
        if not all(math.isfinite(part) for share in shares for value in share.values() for part in value):
            raise NotChecked("a metric is not finite")
        if not any(weight for share in shares for _, weight in share.values()):
            raise NotChecked("nothing is evaluated")
        return shares

    def available(self, make: Callable[[], T], failure: str) -> T:
        """The value of `make`; a failure of the workload is `NotChecked` here, because another rule is about it."""
        try:
            return make()
        except NotChecked:
            raise
        except (Exception, SystemExit) as error:  # the boundary to a user's own code
            raise NotChecked(failure) from error


def first_batches(batches: Iterator[object], count: int) -> list[object]:
    """The first `count` batches, or fewer if they end."""
    return list(islice(batches, count))


def _is_well_formed(share: object) -> bool:
    return isinstance(share, Mapping) and all(is_sum_and_weight(value) for value in share.values())


def is_sum_and_weight(value: object) -> bool:
    """True if a value is a pair of numbers, as a metric is given."""
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(isinstance(part, int | float) and not isinstance(part, bool) for part in value)
    )
