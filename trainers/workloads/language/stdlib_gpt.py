"""A small GPT that reads the source of Python's standard library byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.workloads.language.description import CONTEXT_LENGTHS
from trainers.workloads.language.stdlib_text import StdlibText, stdlib_text
from trainers.workloads.language.transformer import GPT, TransformerShape
from trainers.workloads.options import shape_of_size, with_width_and_depth

NUM_SEQUENCES_AT_ONCE = 64
"""Sequences at once in evaluation: bounds its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(TransformerShape):
    """The shape of the model, whose tokens are bytes, and of what it reads."""

    num_validation_sequences: int
    """Sequences of the held-out text that are evaluated: all of it would take longer than training."""


SHAPES = {
    "tiny": Shape(
        num_blocks=2, num_heads=4, width=64, context_length=CONTEXT_LENGTHS["tiny"], num_validation_sequences=256
    ),
    "small": Shape(
        num_blocks=4, num_heads=6, width=192, context_length=CONTEXT_LENGTHS["small"], num_validation_sequences=64
    ),
}


class StdlibGPT:
    """Predicts each next byte of Python source; cross-entropy loss, in nats per byte.

    An example is a sequence of `context_length` + 1 bytes. Its last byte is the first of the next example, so that each
    byte of the text but the very first is predicted once per epoch. Sequences may cross from one file into the next.
    """

    def __init__(self, *, size: str, width: int | None = None, depth: int | None = None) -> None:
        self.shape = gpt_shape(size, width=width, depth=depth)
        self.text: StdlibText = stdlib_text()
        """The text, in its two parts."""
        self._train = sequences(self.text.train_text, self.shape.context_length)
        validation = sequences(self.text.validation_text, self.shape.context_length)
        num_validation = min(self.shape.num_validation_sequences, len(validation))
        # Spread over the whole text, so that every file of some length has its share.
        self._validation = validation[torch.arange(num_validation) * len(validation) // num_validation]

    def build_model(self) -> nn.Module:
        """Tokens (b, t) int64, t <= `context_length`, to logits (b, t, 256)."""
        return GPT(self.shape)

    @property
    def num_train_examples(self) -> int:
        """The number of sequences."""
        return len(self._train)

    @property
    def tokens_per_example(self) -> int:
        """The bytes that a sequence predicts."""
        return self.shape.context_length

    def batch(self, indices: Tensor) -> Tensor:
        """Sequences (b, `context_length` + 1) uint8."""
        return self._train[indices]

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """Nats per byte."""
        assert isinstance(batch, Tensor)
        tokens = batch.long()  # on the device: bytes are an eighth of the way there
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """Metrics on every `world_size`-th validation sequence: `validation_loss` (nats per byte) and
        `validation_accuracy` (the share of bytes of which the model is surest)."""
        loss_sum, num_correct, num_bytes = 0.0, 0, 0
        share = self._validation[rank::world_size]
        for start in range(0, len(share), NUM_SEQUENCES_AT_ONCE):
            tokens = share[start : start + NUM_SEQUENCES_AT_ONCE].to(device).long()
            logits, targets = model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
            loss_sum += functional.cross_entropy(logits, targets, reduction="sum").item()
            num_correct += int((logits.argmax(dim=1) == targets).sum())
            num_bytes += len(targets)
        return {
            "validation_loss": (loss_sum, float(num_bytes)),
            "validation_accuracy": (float(num_correct), float(num_bytes)),
        }


def gpt_shape(size: object, *, width: object, depth: object) -> Shape:
    """The shape of that size, except for what is given. Heads keep their width, as published models of one family do.

    Raises:
        ValueError: an option is no integer >= 1, or the width is no multiple of a head's.
    """
    return with_width_and_depth(shape_of_size(size, SHAPES), width=width, depth=depth)


def sequences(text: Tensor, context_length: int) -> Tensor:
    """The text (n,) in sequences that share one byte with the next: (m, context_length + 1), a view.

    Up to `context_length` bytes at the end are left over.
    """
    return text.unfold(0, context_length + 1, context_length)
