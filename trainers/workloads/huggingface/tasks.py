"""The common part of workloads on models of `transformers`: batches, loss and metrics over examples in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.workload.parameter_groups import groups_by_rule
from trainers.workloads.huggingface.adapters import Adapters
from trainers.workloads.huggingface.architecture import Architecture, blocks
from trainers.workloads.huggingface.description import PARAMETER_GROUPS
from trainers.workloads.options import boolean, integer, share

Batch: TypeAlias = tuple[Tensor, ...]
"""Parts of some examples, each with the examples as its first dimension."""

DEFAULT_VALIDATION_EXAMPLES = 512
"""Enough to tell configs apart, and evaluated in a fraction of the time between two measurements."""
NUM_EXAMPLES_AT_ONCE = 64
"""Examples at once in evaluation, where each is predicted once."""


class Examples(Protocol):
    """A data set, indexed by example."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Tensor, /) -> Batch:
        """The examples of these numbers, (b,) int64."""


class ArchitectureWorkload:
    """A model that an `Architecture` builds, its adapters and blocks, and how its parameters are trained."""

    def __init__(self, architecture: Architecture, *, adapters: Adapters | None, precondition_embeddings: bool) -> None:
        self.architecture = architecture
        self._adapters = adapters
        self._precondition_embeddings = boolean("precondition_embeddings", precondition_embeddings)

    def build_model(self) -> nn.Module:
        """The library's own model, with the library's own names, so that its state can be loaded there.

        With adapters, those of a model into which `peft.inject_adapter_in_model` has put them.
        """
        model = self.architecture.build()
        if self._adapters is not None:
            self._adapters.add_to(model, trains_head=self.architecture.task != "causal-lm")
        return model

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return blocks(model)

    def parameter_groups(self, model: nn.Module) -> Sequence[Mapping[str, Any]]:
        """Groups as the description has them."""
        options = {"precondition_embeddings": self._precondition_embeddings}
        return groups_by_rule(model, PARAMETER_GROUPS, options=options)


class WorkloadInMemory(ArchitectureWorkload, ABC):
    """Trains and evaluates on two data sets; a subclass says what the model predicts of a batch.

    Args:
        architecture: the model's architecture.
        train: the training set.
        validation: what is held out; of it, `max_validation_examples` (None: 512) are evaluated, spread over all.
        label_smoothing: smoothing of the training loss, in [0, 1).
        num_examples_at_once: examples at once in evaluation: bounds its memory.
        adapters: what is trained in place of the model's weights; None: these.
        precondition_embeddings: see the description's groups.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        train: Examples,
        validation: Examples,
        label_smoothing: float,
        max_validation_examples: int | None,
        num_examples_at_once: int = NUM_EXAMPLES_AT_ONCE,
        adapters: Adapters | None = None,
        precondition_embeddings: bool = False,
    ) -> None:
        super().__init__(architecture, adapters=adapters, precondition_embeddings=precondition_embeddings)
        self.label_smoothing = share("label_smoothing", label_smoothing)
        limit = max_validation_examples
        limit = DEFAULT_VALIDATION_EXAMPLES if limit is None else integer("max_validation_examples", limit)
        if not len(train) or not len(validation):
            raise ValueError(
                f"the data must give examples to train on and others that are held out, got {len(train)} and "
                f"{len(validation)}"
            )
        self._train = train
        self._num_at_once = num_examples_at_once
        self._validation = validation
        num_validation = min(limit, len(validation))
        self._evaluated = torch.arange(num_validation) * len(validation) // num_validation

    @abstractmethod
    def logits_and_targets(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """The model's predictions (n, classes) and the right classes (n,) int64."""

    @property
    def num_train_examples(self) -> int:
        return len(self._train)

    def batch(self, indices: Tensor) -> Batch:
        """The examples as the data set gives them."""
        return self._train[indices]

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """Mean cross-entropy, in nats."""
        logits, targets = self.logits_and_targets(model, cast("Batch", batch))
        return functional.cross_entropy(logits, targets, label_smoothing=self.label_smoothing)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """`validation_loss` (without label smoothing) and `validation_accuracy` on every `world_size`-th example."""
        loss_sum, num_correct, num_targets = 0.0, 0, 0
        evaluated = self._evaluated[rank::world_size]
        for start in range(0, len(evaluated), self._num_at_once):
            indices = evaluated[start : start + self._num_at_once]
            batch = tuple(part.to(device) for part in self._validation[indices])
            logits, targets = self.logits_and_targets(model, batch)
            loss_sum += functional.cross_entropy(logits.float(), targets, reduction="sum").item()
            num_correct += int((logits.argmax(dim=1) == targets).sum())
            num_targets += len(targets)
        return {
            "validation_loss": (loss_sum, float(num_targets)),
            "validation_accuracy": (float(num_correct), float(num_targets)),
        }


class ExamplesInMemory:
    """A data set of tensors, each with the examples as its first dimension."""

    def __init__(self, *parts: Tensor) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts[0])

    def __getitem__(self, indices: Tensor, /) -> Batch:
        return tuple(part[indices] for part in self._parts)
