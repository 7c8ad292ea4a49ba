"""A sound workload, and others that each break one rule of the checker, by the rule's name."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.data.order import rank_batches

NUM_EXAMPLES = 50
NUM_FEATURES = 5
Batch = tuple[Tensor, Tensor]


class WithoutBatches:
    """Linear regression on 50 examples; everything of a workload except its batches."""

    title = "Linear regression"
    metrics: ClassVar[Any] = {"validation_loss": "minimize"}
    default_objective = "validation_loss"
    default_num_steps = 10
    default_evaluate_every = 5
    default_batch_size = 12

    def __init__(self, *, scale: float = 1.0) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(NUM_EXAMPLES, NUM_FEATURES, generator=generator)
        self.targets = scale * self.inputs.sum(dim=1) + 1

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(NUM_FEATURES, 4), nn.Tanh(), nn.Linear(4, 1))

    @property
    def num_train_examples(self) -> int:
        return NUM_EXAMPLES

    def loss(self, model: nn.Module, batch: Any) -> Any:
        inputs, targets = batch
        return functional.mse_loss(model(inputs).squeeze(1), targets)

    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        inputs, targets = self.inputs[rank::world_size], self.targets[rank::world_size]
        error = functional.mse_loss(model(inputs).squeeze(1), targets, reduction="sum").item()
        return {"validation_loss": (error, float(len(targets)))}


class Sound(WithoutBatches):
    """Keeps every rule."""

    def batch(self, indices: Tensor) -> Any:
        return self.inputs[indices], self.targets[indices]


class SoundStream(WithoutBatches):
    """Keeps every rule, and follows the order by itself."""

    def train_batches(
        self, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
    ) -> Iterator[Any]:
        for indices in rank_batches(
            NUM_EXAMPLES, batch_size=batch_size, seed=seed, rank=rank, world_size=world_size, start_step=start_step
        ):
            yield self.inputs[indices], self.targets[indices]


class Extended(Sound):
    """A sound workload with everything optional beyond the protocol."""

    metrics: ClassVar[Any] = {"validation_loss": "minimize", "unreadable": "minimize"}
    tokens_per_example = NUM_FEATURES

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return list(model.children())

    def parameter_groups(self, model: nn.Module) -> Sequence[Mapping[str, Any]]:
        return [
            {"params": [p for p in model.parameters() if p.ndim == 2]},
            {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
        ]

    def counts(self) -> Mapping[str, int]:
        return {"unreadable": 0}


class Undescribed(Sound):
    metrics: ClassVar[Any] = {"validation_loss": "down"}
    default_objective = "accuracy"
    default_num_steps = 0


class TakesLongToBuild(Sound):
    def __init__(self) -> None:
        time.sleep(2.5)
        super().__init__()


class RefusesItsDefaults(Sound):
    def __init__(self, *, scale: float = -1.0) -> None:
        if scale < 0:
            raise ValueError(f"scale must not be negative, got {scale}")
        super().__init__(scale=scale)


class EvaluatesWithoutDevice(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int) -> Any:  # type: ignore[override]
        return super().evaluate(model, rank=rank, world_size=world_size, device="cpu")


class SharesItsModel(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.model = super().build_model()

    def build_model(self) -> nn.Module:
        return self.model


class DrawsItsModelByChance(Sound):
    def build_model(self) -> nn.Module:
        torch.manual_seed(int.from_bytes(os.urandom(4), "big"))
        return super().build_model()


class HasNothingToTrain(Sound):
    def build_model(self) -> nn.Module:
        return super().build_model().requires_grad_(requires_grad=False)


class IgnoresTheIndices(Sound):
    def batch(self, indices: Tensor) -> Any:
        return super().batch(torch.arange(len(indices)))


class AltersExamplesByChance(Sound):
    def batch(self, indices: Tensor) -> Any:
        inputs, targets = super().batch(indices)
        return inputs + 1e-3 * torch.randn(inputs.shape), targets


class AsksForMoreThanIndices(Sound):
    def batch(self, indices: Tensor, seed: int) -> Any:  # type: ignore[override]
        return super().batch(indices)


class RefusesTheRank(SoundStream):
    def train_batches(self, *, batch_size: int, seed: int, start_step: int) -> Iterator[Any]:  # type: ignore[override]
        return super().train_batches(batch_size=batch_size, seed=seed, rank=0, world_size=1, start_step=start_step)


class EndsAfterOneBatch(SoundStream):
    def train_batches(self, **arguments: Any) -> Iterator[Any]:
        yield next(super().train_batches(**arguments))


class EndsWithTheEpoch(SoundStream):
    def train_batches(self, *, batch_size: int, start_step: int, **arguments: Any) -> Iterator[Any]:
        batches = super().train_batches(batch_size=batch_size, start_step=start_step, **arguments)
        return islice(batches, max(0, NUM_EXAMPLES // batch_size - start_step))


class IgnoresTheSeed(SoundStream):
    def train_batches(self, **arguments: Any) -> Iterator[Any]:
        return super().train_batches(**{**arguments, "seed": 0})


class ShufflesWithAGlobalGenerator(SoundStream):
    def train_batches(self, **arguments: Any) -> Iterator[Any]:
        return super().train_batches(**{**arguments, "seed": random.randrange(1000)})


class IgnoresTheRank(SoundStream):
    def train_batches(self, **arguments: Any) -> Iterator[Any]:
        return super().train_batches(**{**arguments, "rank": 0})


class SeedsEachRankDifferently(SoundStream):
    def train_batches(self, **arguments: Any) -> Iterator[Any]:
        return super().train_batches(**{**arguments, "seed": arguments["seed"] + 100 * arguments["rank"]})


class IgnoresTheStartStepOnOtherRanks(SoundStream):
    def train_batches(self, **arguments: Any) -> Iterator[Any]:
        return super().train_batches(**{**arguments, "start_step": 0 if arguments["rank"] else arguments["start_step"]})


class DrawsWithReplacement(SoundStream):
    def train_batches(
        self, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
    ) -> Iterator[Any]:
        step = start_step
        while True:
            generator = torch.Generator().manual_seed(1000 * seed + step)
            indices = torch.randint(NUM_EXAMPLES, (batch_size,), generator=generator).chunk(world_size)[rank]
            yield self.inputs[indices], self.targets[indices]
            step += 1


class AddsNoise(SoundStream):
    """Sound: alters examples anew each time, by their place in the stream."""

    def train_batches(
        self, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
    ) -> Iterator[Any]:
        step = start_step
        for inputs, targets in super().train_batches(
            batch_size=batch_size, seed=seed, rank=rank, world_size=world_size, start_step=start_step
        ):
            generator = torch.Generator().manual_seed(1000 * seed + step)
            noise = torch.randn(batch_size, NUM_FEATURES, generator=generator).chunk(world_size)[rank]
            yield inputs + 0.01 * noise, targets
            step += 1


class OrdersByHash(Sound):
    def __init__(self) -> None:
        super().__init__()
        # An order that differs between processes, like that of a set of texts.
        order = sorted(range(NUM_EXAMPLES), key=lambda index: hash(f"example {index}"))
        self.inputs, self.targets = self.inputs[order], self.targets[order]


class GivesALossPerExample(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return functional.mse_loss(model(batch[0]).squeeze(1), batch[1], reduction="none")


class GivesANumberAsLoss(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch).item()


class OverflowsAtOnce(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) * float("inf")


class HasUnusedParameters(Sound):
    def build_model(self) -> nn.Module:
        model = super().build_model()
        model.get_submodule("0").spare = nn.Linear(2, 2)
        return model


class SumsItsLoss(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) * len(batch[1])


class LearnsNothing(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) * 0 + 1


class GivesAnUndeclaredMetric(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        share = super().evaluate(model, rank=rank, world_size=world_size, device=device)
        return {**share, "accuracy": (0.0, share["validation_loss"][1])}


class LeavesAMetricToRankZero(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        return {} if rank else super().evaluate(model, rank=rank, world_size=world_size, device=device)


class GivesPlainMeans(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        ((name, (total, weight)),) = super().evaluate(model, rank=rank, world_size=world_size, device=device).items()
        return {name: total / weight}


class NeedsGradientsToEvaluate(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        self.loss(model, (self.inputs, self.targets)).backward()
        return super().evaluate(model, rank=rank, world_size=world_size, device=device)


class EvaluatesAllOnEveryRank(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        return super().evaluate(model, rank=0, world_size=1, device=device)


class EvaluatesByChance(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        ((name, (total, weight)),) = super().evaluate(model, rank=rank, world_size=world_size, device=device).items()
        return {name: (total * (1 + 0.1 * torch.rand(1).item()), weight)}


class CountsEvaluationsInTheModel(Sound):
    def build_model(self) -> nn.Module:
        model = super().build_model()
        model.register_buffer("num_evaluations", torch.zeros(()))
        return model

    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        num_evaluations = model.num_evaluations
        assert isinstance(num_evaluations, Tensor)
        num_evaluations += 1
        return super().evaluate(model, rank=rank, world_size=world_size, device=device)


class KeepsStateInTheClass(Sound):
    num_losses = 0

    def loss(self, model: nn.Module, batch: Any) -> Any:
        KeepsStateInTheClass.num_losses += 1
        return super().loss(model, batch) + 1e-6 * KeepsStateInTheClass.num_losses


class KeepsStateOutOfTheCheckpoint(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.num_losses = 0

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.num_losses += 1
        return super().loss(model, batch) + 1e-6 * self.num_losses


class NestsItsBlocks(Extended):
    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return [model, *model.children()]


class ForgetsBiases(Extended):
    def parameter_groups(self, model: nn.Module) -> Sequence[Mapping[str, Any]]:
        return [{"params": [p for p in model.parameters() if p.ndim == 2]}]


class HasNoTokens(Extended):
    tokens_per_example = 0


class NamesCountsLate(Extended):
    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}

    def batch(self, indices: Tensor) -> Any:
        self._counts["unreadable"] = 0
        return super().batch(indices)

    def counts(self) -> Mapping[str, int]:
        return self._counts


class CountsWhatItDoesNotDeclare(Extended):
    def counts(self) -> Mapping[str, int]:
        return {"unreadable": 0, "torn": 0}


class Raises(Sound):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        raise KeyError("label\x00of\x1b[31m image\n17")


class LeavesAndHangs(SoundStream):
    """Prints garbage, calls sys.exit, kills its process and hangs, each at a different place."""

    def build_model(self) -> nn.Module:
        os.write(1, b"\x00\xff\xfe{garbage}\n" * 3)
        os.write(2, b"\xff\x00\n")
        return super().build_model()

    def train_batches(self, **arguments: Any) -> Iterator[Any]:
        sys.exit(3)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        raise AssertionError("never called: there are no batches")

    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        if world_size == 3:
            os._exit(7)
        return super().evaluate(model, rank=rank, world_size=world_size, device=device)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        time.sleep(1e6)
        return []


class HangsWhenBuilt(Sound):
    def __init__(self) -> None:
        time.sleep(1e6)
