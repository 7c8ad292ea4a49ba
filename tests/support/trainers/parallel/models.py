"""Small models that ranks train together."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class ResidualBlock(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, 3 * width)
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.projection(self.dropout(functional.gelu(self.hidden(self.norm(x)))))
        return x + inner


class TiedGPT(nn.Module):
    """A language model without attention whose embedding is also its output layer: tokens (b, t) to logits (b, 17)."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(17, 8)
        self.blocks = nn.ModuleList(ResidualBlock(8, dropout) for _ in range(2))
        self.norm = nn.LayerNorm(8)
        self.output = nn.Linear(8, 17, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding((x.abs() * 7).long() % 17)
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.output(self.norm(hidden.mean(dim=1)))
        return logits


class Scaled(nn.Module):
    """Logits that a scalar parameter scales."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 17)
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x) * self.temperature
        return logits


class LowRank(nn.Module):
    """Its layers get at most 5 different inputs, so their gradients have rank 5."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(12, 24)
        self.hidden = nn.Linear(24, 24)
        self.output = nn.Linear(24, 17)

    def forward(self, x: Tensor) -> Tensor:
        levels = torch.linspace(-1, 1, 5)[(x[:, :1].abs() * 10).long() % 5].expand(-1, 12) * torch.arange(1, 13)
        logits: Tensor = self.output(torch.tanh(self.hidden(torch.tanh(self.embedding(levels)))))
        return logits


class Shared(nn.Module):
    """A block that is called twice, and two that share a matrix."""

    def __init__(self) -> None:
        super().__init__()
        twice = ResidualBlock(12, 0.0)
        first, second = ResidualBlock(12, 0.0), ResidualBlock(12, 0.0)
        second.hidden.weight = first.hidden.weight
        self.blocks = nn.ModuleList([twice, first, twice, second])
        self.output = nn.Linear(12, 17)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.output(x)
        return logits


class PartlyUsed(nn.Module):
    """The loss does not reach all of it, and a layer is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.unused = nn.Linear(8, 3)
        self.last = nn.Linear(8, 17)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.frozen(functional.relu(self.first(x)))
        self.unused(hidden)
        logits: Tensor = self.last(hidden)
        return logits


def build(name: str) -> nn.Module:
    """A freshly drawn model that takes (b, 12) and gives logits (b, 17)."""
    torch.manual_seed(0)
    match name:
        case "mlp":
            return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 17))
        case "gpt":
            return TiedGPT()
        case "gpt_with_dropout":
            return TiedGPT(dropout=0.2)
        case "batch_norm":
            return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 17))
        case "uneven":  # on four ranks, some hold nothing of the first layers
            return nn.Sequential(nn.Linear(12, 1), nn.Linear(1, 3), nn.Tanh(), nn.Linear(3, 5), nn.Linear(5, 17))
        case "shared":
            return Shared()
        case "scalar":
            return Scaled()
        case "low_rank":
            return LowRank()
        case "lstm":
            return nn.Sequential(nn.LSTM(12, 17))
        case "sparse":
            return nn.Sequential(nn.Embedding(12, 17, sparse=True))
        case "strided":
            strided = nn.Linear(12, 17)
            strided.weight = nn.Parameter(torch.zeros(12, 17).mT)
            return nn.Sequential(strided)
        case "empty":
            return nn.Sequential(nn.Linear(12, 17), nn.ParameterList([nn.Parameter(torch.zeros(0, 3))]))
        case "expanded" | "expanded_once" | "expanded_unsaved":
            expanded = nn.Linear(12, 17)
            mask = torch.ones(1).expand(1 if name == "expanded_once" else 3, 1)
            expanded.register_buffer("mask", mask, persistent=name != "expanded_unsaved")
            return nn.Sequential(expanded)
        case "lazy":
            return nn.LazyLinear(17)
        case "partly_used":
            return PartlyUsed()
    raise ValueError(name)
