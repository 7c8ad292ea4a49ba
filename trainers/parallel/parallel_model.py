"""`ParallelModel`: a model that the ranks of a trial train together, whatever the way they share it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from trainers.ranks.context import RankContext


class ParallelModel(ABC):
    """A model shared by ranks. `trainers.parallel.parallelise.parallelise` makes one; all ranks call each method alike.

    One optimizer step is

        for part in parts:
            with parallel.accumulating(is_last=part is parts[-1]):
                (workload.loss(parallel.forward, part) / len(parts)).backward()
        parallel.clip_gradients(max_norm)
        optimizer.step()

    Nothing outlives the object: a trial that drops it, its model and its optimizer leaves no module, hook or process
    group behind, once Python has collected the cycles.
    """

    def __init__(self, model: nn.Module, context: RankContext) -> None:
        self.model = model
        """The module whose parameters are trained; names are those of the plain model."""
        self.context = context

    @property
    @abstractmethod
    def forward(self) -> nn.Module:
        """The module that the loss gets in training, within `accumulating`. Read it anew in each step."""

    @abstractmethod
    def accumulating(self, *, is_last: bool) -> AbstractContextManager[object]:
        """Around forward and backward of one part of a step's batch: gradients of the parts add up, and are averaged
        over ranks in the last one."""

    @abstractmethod
    def clip_gradients(self, max_norm: float) -> Tensor:
        """Scales the gradients down to the global norm `max_norm`, if theirs is larger; gives the norm they had, a
        scalar on the device. Does not wait for the device."""

    @abstractmethod
    def for_evaluation(self) -> AbstractContextManager[nn.Module]:
        """The model with whole parameters: it can be called any number of times, by each rank as often as it likes,
        without communication. Compiled code is not used. Entering and leaving it is a collective; the parameters must
        not be changed inside."""

    def state_dict(self) -> dict[str, Any]:
        """The rest that a resumed trial needs beside model and optimizer, as plain values and tensors; what differs
        between ranks has keys of its own on each."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over a `state_dict()`, before the first step; at another world size, what of it still has a meaning.

        Raises:
            ValueError: it is the state of another kind of model.
        """
        if state:
            raise ValueError(f"{type(self).__name__} has no state of its own, got {', '.join(state)}")
