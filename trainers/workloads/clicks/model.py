"""DLRM (arXiv 1906.00091): numbers through an MLP, categories through tables, their products through another MLP."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.workloads.clicks.parser import NUM_CATEGORIES, NUM_COUNTS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickShape:
    """The shape of the model."""

    num_buckets: int
    """Rows of each category's table."""
    embedding_width: int
    bottom_sizes: tuple[int, ...]
    """Units of the hidden layers that the counts go through; one of `embedding_width` follows."""
    top_sizes: tuple[int, ...]
    """Units of the hidden layers that the products go through; one of a single unit follows."""


class DLRM(nn.Module):
    """Counts (b, 13) float32, as logarithms, and rows of the tables (b, 26) int64 to the logit of a click (b, 1).

    All 27 vectors of an example (the counts' and each category's) are multiplied with each other; the top MLP gets the
    351 products and the counts' vector. The tables lie in one, one below the other, which is the same model with one
    look-up instead of 26. Initialised as the authors' code is: layers normal with deviation sqrt(2 / (inputs +
    outputs)), biases sqrt(1 / outputs), tables uniform in +-sqrt(1 / rows).
    """

    pairs: Tensor

    def __init__(self, shape: ClickShape) -> None:
        super().__init__()
        num_vectors = NUM_CATEGORIES + 1
        num_products = num_vectors * (num_vectors - 1) // 2
        self.bottom = mlp((NUM_COUNTS, *shape.bottom_sizes, shape.embedding_width), ends_with_relu=True)
        self.tables = nn.Embedding(NUM_CATEGORIES * shape.num_buckets, shape.embedding_width)
        self.top = mlp((num_products + shape.embedding_width, *shape.top_sizes, 1), ends_with_relu=False)
        # The products below the diagonal, as positions in a matrix that lies flat.
        one, other = torch.tril_indices(num_vectors, num_vectors, offset=-1)
        self.register_buffer("pairs", one * num_vectors + other, persistent=False)
        bound = math.sqrt(1 / shape.num_buckets)
        nn.init.uniform_(self.tables.weight, -bound, bound)

    def forward(self, counts: Tensor, rows: Tensor) -> Tensor:
        of_counts = self.bottom(counts)
        vectors = torch.cat((of_counts.unsqueeze(1), self.tables(rows).to(of_counts.dtype)), dim=1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        logits: Tensor = self.top(torch.cat((of_counts, products), dim=1))
        return logits


def mlp(sizes: Sequence[int], *, ends_with_relu: bool) -> nn.Sequential:
    """Linear layers from each size to the next, with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layer = nn.Linear(inputs, outputs)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / (inputs + outputs)))
        nn.init.normal_(layer.bias, std=math.sqrt(1 / outputs))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*(layers if ends_with_relu else layers[:-1]))


def click_loss(logits: Tensor, labels: Tensor, *, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy in nats of logits (b, 1) and labels (b,) float32."""
    # Here and not in the model, whose output must not be a view: a sharded module hangs its backward hooks on it.
    return functional.binary_cross_entropy_with_logits(logits.squeeze(1).float(), labels, reduction=reduction)
