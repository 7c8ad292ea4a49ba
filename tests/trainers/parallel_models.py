"""Models that ranks train together, and functions that rank processes run to train them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from trainers.config import OptimizerConfig, ParallelismConfig, TrialConfig
from trainers.distributed import RankContext, process_group_context, single_process_context
from trainers.parallelism import ParallelModel, parallelise
from trainers.precision import DTYPES, MixedPrecision
from trainers.workload import Workload

BATCH_SIZE = 24
"""Divisible by 2, 3 and 4 ranks, and what they have by 2 parts."""

MODES = {
    "ddp": ParallelismConfig("ddp"),
    "fsdp2": ParallelismConfig("fsdp2"),
    "hsdp": ParallelismConfig("hsdp", shard_size=2),
    "simple_fsdp": ParallelismConfig("simple_fsdp"),
}


class Block(nn.Module):
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
        self.blocks = nn.ModuleList(Block(8, dropout) for _ in range(2))
        self.norm = nn.LayerNorm(8)
        self.output = nn.Linear(8, 17, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding((x.abs() * 7).long() % 17)
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.output(self.norm(hidden.mean(dim=1)))
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
        case "partly_used":
            return PartlyUsed()
    raise ValueError(name)


class SmallWorkload:
    """Its blocks are those of its model's module lists."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return functional.cross_entropy(model(x), y)


WORKLOAD: Workload = SmallWorkload()  # type: ignore[assignment]  # all that is asked of it here


def batch_of(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(BATCH_SIZE, 12, generator=generator), torch.randint(0, 17, (BATCH_SIZE,), generator=generator)


def trial_config(mode: str = "ddp", **fields: Any) -> TrialConfig:
    return TrialConfig(
        **{
            "workload": "none",
            "optimizer": OptimizerConfig("adamw"),
            "num_steps": 20,
            "batch_size": BATCH_SIZE,
            "evaluate_every": 20,
            "parallelism": MODES[mode],
            **fields,
        }
    )


def whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: whole(parameter) for name, parameter in model.named_parameters()}


@dataclass
class Outcome:
    """What training gave on one rank."""

    losses: list[float]
    """Of this rank's share, by step."""
    parameters: list[dict[str, Tensor]]
    """The whole parameters, after each step (or the last alone)."""
    norms: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    """The loss on one batch, before training and after it."""
    names: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    num_skipped_steps: int = 0


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-2)
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def share_of(batch: tuple[Tensor, Tensor], context: RankContext) -> tuple[Tensor, Tensor]:
    return batch[0][context.rank :: context.world_size], batch[1][context.rank :: context.world_size]


def train_steps(
    parallel: ParallelModel,
    optimizer: torch.optim.Optimizer,
    config: TrialConfig,
    steps: Sequence[int],
    context: RankContext,
    *,
    keep_all: bool = True,
) -> Outcome:
    scaler = torch.amp.GradScaler("cpu", enabled=config.precision == "float16")
    precision = MixedPrecision(config.precision, device="cpu", casts=True, scaler=scaler)
    outcome = Outcome([], [])
    accumulation_steps = config.accumulation_steps
    for step in steps:
        optimizer.zero_grad()
        x, y = share_of(batch_of(step), context)
        parts = list(zip(x.chunk(accumulation_steps), y.chunk(accumulation_steps), strict=True))
        total = 0.0
        for index, part in enumerate(parts):
            with parallel.accumulating(is_last=index + 1 == len(parts)):
                with precision.autocast():
                    loss = WORKLOAD.loss(parallel.forward, part) / len(parts)
                precision.backward(loss)
                total += loss.item()
        precision.unscale(optimizer)
        if config.gradient_clip_norm is not None:
            outcome.norms.append(float(parallel.clip_gradients(config.gradient_clip_norm)))
        precision.step(optimizer)
        outcome.losses.append(total)
        if keep_all or step == steps[-1]:
            outcome.parameters.append(parameters_of(parallel.model))
    outcome.num_skipped_steps = precision.num_skipped_steps
    return outcome


def evaluate(parallel: ParallelModel, config: TrialConfig, *, num_times: int) -> float:
    """The loss of one batch; each rank may ask as often as it likes."""
    loss = float("nan")
    autocast = torch.autocast("cpu", DTYPES[config.precision], enabled=config.precision != "float32")
    with torch.no_grad(), parallel.for_evaluation() as model, autocast:
        model.eval()
        for _ in range(num_times):
            loss = float(WORKLOAD.loss(model, batch_of(1000)))
    model.train()
    return loss


def train_model(
    model_name: str, config: TrialConfig, context: RankContext | None = None, optimizer_name: str = "adamw"
) -> Outcome:
    """Trains `config.num_steps` steps in this process's group, or in the given context."""
    context = process_group_context() if context is None else context
    model = build(model_name)
    parallel = parallelise(model, WORKLOAD, config, context)
    optimizer = optimizer_of(optimizer_name, parallel.model)
    before = evaluate(parallel, config, num_times=1 + context.rank)
    torch.manual_seed(context.rank)
    outcome = train_steps(parallel, optimizer, config, range(config.num_steps), context)
    outcome.validation = [before, evaluate(parallel, config, num_times=1 + context.rank)]
    outcome.names = list(parallel.model.state_dict())
    outcome.state = parallel.state_dict()
    return outcome


def train_alone(model_name: str, config: TrialConfig, optimizer_name: str = "adamw") -> Outcome:
    """The same on one process with plain torch: whole batches, no accumulation."""
    return train_model(model_name, config, single_process_context(), optimizer_name)
