"""The protocols of a workload: a model with its data, loss and metrics, and what it may say of them beside.

Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor, nn


class Workload(Protocol):
    """A model with its data, loss and metrics, as the training loop uses it. Same on every rank.

    Beside these methods it has one that gives the batches: that of `GivesBatches`, or that of `ReadsAhead`.
    """

    def build_model(self) -> nn.Module:
        """A freshly initialised model on the CPU, drawn from torch's global generator (the loop seeds it)."""

    @property
    def num_train_examples(self) -> int:
        """Size of the training set, over all ranks."""

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """Mean training loss of one batch: a scalar with gradient.

        Where `model.training`, this is the place to augment: what it draws from torch's global generator is the same
        in equal trials, and in those that are resumed.
        """

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """This rank's share of the validation metrics as {name: (weighted sum, weight)}; the loop reduces over ranks.

        Called without gradients and with the model in evaluation mode; the same names on every rank.
        """


@runtime_checkable
class GivesBatches(Protocol):
    """A workload that can give any examples at any time: the loop says which, and deals them out to ranks."""

    def batch(self, indices: Tensor) -> object:
        """The training examples of these numbers, in [0, `num_train_examples`): (b,) int64 on the CPU.

        It follows from the indices alone. It is made of CPU tensors with the examples as first dimension, in the order
        of the indices, or of tuples, lists and dicts of them; the loop moves it to the rank's device. Some of them may
        have other rows, as the nodes of graphs; the checker can tell less of such batches.
        """


@runtime_checkable
class ReadsAhead(Protocol):
    """A workload that must know early what is due, e.g. to read files ahead: it follows the order by itself.

    This method is used even if the workload has `batch`, too.
    """

    def train_batches(
        self, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
    ) -> Iterator[object]:
        """Endless batches of this rank: its share of each global batch, beginning with the batch of step `start_step`.

        The global batch of a step (the first is 0) depends only on `batch_size`, `seed` and the step, never on the
        ranks, so resume and another world size see the same data: take the indices from `trainers.data.order`. All
        ranks' shares are equally large. A batch is as `GivesBatches` says. A generator is closed at the trial's end.
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
        metrics of each measurement. Asked for after each `evaluate`."""


@runtime_checkable
class HasRemarks(Protocol):
    """A workload that has something to say of its data, e.g. which files it does not read."""

    def remarks(self) -> Sequence[str]:
        """This rank's remarks since the workload was built, each a line for a person, the first ones first. Few: those
        who look at the trial see them all. Asked for after each `evaluate`."""
