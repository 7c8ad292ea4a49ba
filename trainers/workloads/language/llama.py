"""A Llama-like transformer (arXiv 2302.13971): no biases and no table of positions, and attention with few keys."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.workloads.language.transformer import TransformerShape, initialise

NORM_EPSILON = 1e-5
"""Epsilon of norms in Llama 2."""
ROTATION_PERIOD = 10_000.0
"""Positions that the slowest pair of a head would need, over 2 pi, to turn once (arXiv 2104.09864, section 3.2.2)."""
MLP_WIDTH_MULTIPLE = 64
"""The width inside the MLP is rounded up to it, for the sake of matrix units."""


class Llama(nn.Module):
    """A pre-norm transformer with RMSNorm (arXiv 1910.07467), rotary positions (arXiv 2104.09864), SwiGLU (arXiv
    2002.05202) and grouped-query attention (arXiv 2305.13245): tokens (b, t) int64 to logits (b, t, v).

    Initialised as the GPT of `trainers.workloads.language.transformer`, so that the two differ in architecture alone.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(shape.num_tokens, shape.width)
        self.blocks = nn.ModuleList(LlamaBlock(shape) for _ in range(shape.num_blocks))
        self.norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.output = None if shape.is_tied else nn.Linear(shape.width, shape.num_tokens, bias=False)
        angles = rotation_angles(shape.context_length, shape.width // shape.num_heads)
        # They follow from the shape, so a checkpoint need not hold them.
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)
        initialise(self, shape)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        cosines, sines = self.cosines[:length], self.sines[:length]
        hidden = self.token_embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden, cosines, sines)
        hidden = self.norm(hidden)
        if self.output is None:
            return functional.linear(hidden, self.token_embedding.weight)
        logits: Tensor = self.output(hidden)
        return logits


class LlamaBlock(nn.Module):
    """Causal grouped-query attention, then a gated MLP, each added to the residual stream: (b, t, width) to the same.

    The layers whose name ends in `_projection` write into the residual stream.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.head_width = shape.width // shape.num_heads
        key_value_width = (shape.num_key_value_heads or shape.num_heads) * self.head_width
        mlp_width = swiglu_width(shape.width)
        self.attention_norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, key_value_width, bias=False)
        self.value = nn.Linear(shape.width, key_value_width, bias=False)
        self.attention_projection = nn.Linear(shape.width, shape.width, bias=False)
        self.mlp_norm = nn.RMSNorm(shape.width, eps=NORM_EPSILON)
        self.mlp_gate = nn.Linear(shape.width, mlp_width, bias=False)
        self.mlp_hidden = nn.Linear(shape.width, mlp_width, bias=False)
        self.mlp_projection = nn.Linear(mlp_width, shape.width, bias=False)

    def forward(self, hidden: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """`cosines` and `sines`: (t, head width / 2) float32."""
        hidden = hidden + self._attention(self.attention_norm(hidden), cosines, sines)
        normed = self.mlp_norm(hidden)
        residual: Tensor = self.mlp_projection(functional.silu(self.mlp_gate(normed)) * self.mlp_hidden(normed))
        return hidden + residual

    def _attention(self, hidden: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        num_sequences, length, width = hidden.shape

        def heads(projected: Tensor) -> Tensor:  # (b, t, heads * head width) to (b, heads, t, head width)
            return projected.view(num_sequences, length, -1, self.head_width).transpose(1, 2)

        query = rotate(heads(self.query(hidden)), cosines, sines)
        key = rotate(heads(self.key(hidden)), cosines, sines)
        value = heads(self.value(hidden))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        projected: Tensor = self.attention_projection(mixed.transpose(1, 2).reshape(num_sequences, length, width))
        return projected


def swiglu_width(width: int) -> int:
    """The width inside a gated MLP that has about as many weights as one of four times `width` without a gate."""
    return -(-8 * width // (3 * MLP_WIDTH_MULTIPLE)) * MLP_WIDTH_MULTIPLE


def rotation_angles(context_length: int, head_width: int) -> Tensor:
    """The angles of each pair of a head at each position: (context_length, head_width / 2) float32, radians."""
    frequencies = ROTATION_PERIOD ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
    # In float64: a product of two float32 would be off by 1e-4 radians at position 1000.
    return torch.outer(torch.arange(context_length, dtype=torch.float64), frequencies).float()


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turns the pairs (i, i + head width / 2) of each head by its position's angles, so that a product of a query and a
    key depends on their distance only: (b, heads, t, head width) to the same, in the same dtype."""
    left, right = heads.chunk(2, dim=-1)
    # Lower precision would blur the angles of far positions: cosines are float32, and the products with them too.
    turned = torch.cat((left * cosines - right * sines, left * sines + right * cosines), dim=-1)
    return turned.to(heads.dtype)
