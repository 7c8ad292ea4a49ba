"""A GPT, and what all language models here share: the shape and the initial weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

GPT2_WIDTH = 768
"""Width of GPT-2's smallest model (124 million parameters)."""
GPT2_DEVIATION = 0.02
"""GPT-2's initial deviation of every weight, chosen for its width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """The shape of a language model."""

    num_blocks: int
    num_heads: int
    width: int
    context_length: int
    """Tokens that the model sees at once."""
    num_tokens: int = 256
    """Size of the vocabulary; 256: the bytes."""
    num_key_value_heads: int | None = None
    """With the Llama, heads of keys and values, each shared by equally many heads of queries; None: `num_heads`."""
    is_tied: bool = False
    """True if the output layer is the embedding, as GPT-2's is."""


class GPT(nn.Module):
    """A pre-norm transformer with learned positions, initialised as GPT-2: tokens (b, t) int64 to logits (b, t, v).

    GPT-2's initial deviation is taken in proportion to 1/sqrt(width). Taken as it is, this model's layers would begin
    next to zero, and AdamW would spend most of a short trial on the way out of there (`stdlib-gpt`, tiny, 400 steps:
    validation loss 2.35 instead of 2.06 at the best of four learning rates): a comparison of optimizers would be one of
    escapes.

    Unlike GPT-2's, the output layer is tied to the embedding only where the shape says so. With few tokens that would
    save next to nothing, and the tied matrix gets the sum of two gradients of different nature: sparse rows from the
    input, dense ones from the output. A preconditioner could learn the geometry of neither.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(shape.num_tokens, shape.width)
        self.position_embedding = nn.Embedding(shape.context_length, shape.width)
        self.blocks = nn.ModuleList(GPTBlock(shape) for _ in range(shape.num_blocks))
        self.norm = nn.LayerNorm(shape.width)
        self.output = None if shape.is_tied else nn.Linear(shape.width, shape.num_tokens, bias=False)
        initialise(self, shape)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.token_embedding(tokens) + self.position_embedding(positions)
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        if self.output is None:
            return functional.linear(hidden, self.token_embedding.weight)
        logits: Tensor = self.output(hidden)
        return logits


class GPTBlock(nn.Module):
    """Causal self-attention, then two layers with GELU, each added to the residual stream: (b, t, width) to the same.

    The layers whose name ends in `_projection` write into the residual stream.
    """

    def __init__(self, shape: TransformerShape) -> None:
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


def initialise(model: nn.Module, shape: TransformerShape) -> None:
    """Draws every weight as GPT-2 does, with a deviation that goes with 1/sqrt(width); biases are zero."""
    deviation = GPT2_DEVIATION * math.sqrt(GPT2_WIDTH / shape.width)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            # Each block adds to the residual stream twice: this keeps the sum's variance independent of the depth.
            scale = 1 / math.sqrt(2 * shape.num_blocks) if name.endswith("_projection") else 1.0
            nn.init.normal_(module.weight, std=deviation * scale)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
