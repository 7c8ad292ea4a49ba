"""A small GPT that reads the source of Python's standard library byte by byte."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.data_order import rank_batches
from trainers.workloads.sizes import shape_of_size
from trainers.workloads.stdlib_text import StdlibText, stdlib_text

NUM_TOKENS = 256
"""The bytes."""

GPT2_WIDTH = 768
GPT2_DEVIATION = 0.02
"""GPT-2's initial deviation of every weight, chosen for its width."""

NUM_SEQUENCES_AT_ONCE = 64
"""In evaluation: bounds its memory."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the model and of what it reads."""

    num_blocks: int
    num_heads: int
    width: int
    context_length: int
    """Bytes that the model sees at once."""
    num_validation_sequences: int
    """How many sequences of the held-out text are evaluated: all of it would take longer than training."""


SHAPES = {
    "tiny": Shape(num_blocks=2, num_heads=4, width=64, context_length=64, num_validation_sequences=256),
    "small": Shape(num_blocks=4, num_heads=6, width=192, context_length=256, num_validation_sequences=64),
}


class StdlibGPT:
    """Predicts each next byte of Python source; cross-entropy loss, in nats per byte.

    An example is a sequence of `context_length` + 1 bytes, the last of which is the next one's first, so that each
    byte of the text but the very first is predicted once per epoch. Sequences may cross from one file into the next.
    """

    def __init__(self, *, size: str) -> None:
        self.shape = shape_of_size(size, SHAPES)
        self.text: StdlibText = stdlib_text()
        """What was read."""
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

    def train_batches(
        self, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
    ) -> Iterator[Tensor]:
        """Batches of sequences (b, `context_length` + 1) uint8, b = batch_size / world_size."""
        for indices in rank_batches(
            self.num_train_examples,
            batch_size=batch_size,
            seed=seed,
            rank=rank,
            world_size=world_size,
            start_step=start_step,
        ):
            yield self._train[indices]

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """Nats per byte."""
        assert isinstance(batch, Tensor)
        tokens = batch.long()  # on the device: bytes are an eighth of the way there
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """On every `world_size`-th validation sequence: `validation_loss` (nats per byte) and `validation_accuracy`
        (the share of bytes of which the model is surest)."""
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


def sequences(text: Tensor, context_length: int) -> Tensor:
    """The text (n,) in sequences that share one byte with the next: (m, context_length + 1), a view.

    Up to `context_length` bytes at the end are left over.
    """
    return text.unfold(0, context_length + 1, context_length)


class GPT(nn.Module):
    """A pre-norm transformer with learned positions, initialised as GPT-2: tokens (b, t) int64 to logits (b, t, 256).

    GPT-2's initial deviation is taken in proportion to 1/sqrt(width). Taken as it is, this model's layers would begin
    next to zero, and AdamW would spend most of a short trial on the way out of there (`tiny`, 400 steps: validation
    loss 2.35 instead of 2.06 at the best of four learning rates): a comparison of optimizers would be one of escapes.

    Unlike GPT-2's, the output layer is not tied to the embedding. With 256 tokens that would save next to nothing, and
    the tied matrix would get the sum of two gradients of different nature (sparse rows from the input, dense ones from
    the output), of which a preconditioner could learn the geometry of neither.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(NUM_TOKENS, shape.width)
        self.position_embedding = nn.Embedding(shape.context_length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.num_blocks))
        self.norm = nn.LayerNorm(shape.width)
        self.output = nn.Linear(shape.width, NUM_TOKENS, bias=False)
        self._initialise(shape)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.token_embedding(tokens) + self.position_embedding(positions)
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.output(self.norm(hidden))
        return logits

    def _initialise(self, shape: Shape) -> None:
        deviation = GPT2_DEVIATION * math.sqrt(GPT2_WIDTH / shape.width)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                # Each block adds to the residual stream twice: this keeps the sum's variance independent of the depth.
                scale = 1 / math.sqrt(2 * shape.num_blocks) if name.endswith("_projection") else 1.0
                nn.init.normal_(module.weight, std=deviation * scale)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)


class Block(nn.Module):
    """Causal self-attention, then two layers with GELU, each added to the residual stream: (b, t, width) to the same.

    The layers whose name ends in `_projection` write into the residual stream.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.num_heads = shape.num_heads
        self.attention_norm = nn.LayerNorm(shape.width)
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.attention_projection = nn.Linear(shape.width, shape.width)
        self.mlp_norm = nn.LayerNorm(shape.width)
        self.mlp_hidden = nn.Linear(shape.width, 4 * shape.width)
        self.mlp_projection = nn.Linear(4 * shape.width, shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self._attention(self.attention_norm(hidden))
        inner = functional.gelu(self.mlp_hidden(self.mlp_norm(hidden)), approximate="tanh")
        residual: Tensor = self.mlp_projection(inner)
        return hidden + residual

    def _attention(self, hidden: Tensor) -> Tensor:
        num_sequences, length, width = hidden.shape
        # (3, b, heads, t, width / heads)
        heads = self.query_key_value(hidden).view(num_sequences, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        projected: Tensor = self.attention_projection(mixed.transpose(1, 2).reshape(num_sequences, length, width))
        return projected
