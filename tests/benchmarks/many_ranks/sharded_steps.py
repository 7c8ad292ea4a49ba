"""A small GPT that ranks train sharded, shared and each of them whole: what they hold, how long their steps take, what
they send. Runs on the ranks."""

from __future__ import annotations

import inspect
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from shampoo import Shampoo
from tests.benchmarks.many_ranks.ranks_simulation import PLAIN, Group
from tests.benchmarks.many_ranks.traffic_simulation import of_all_reduce
from trainers.workloads.language.transformer import GPT, TransformerShape

SPREAD = ("lossless", "local", "shared")
MODES = (*SPREAD, "replicated")
"""FSDP2 with owners, and each rank its rows; plain parameters with owners, and without."""
_EXCHANGE = ("all_to_all_single",)
_GATHERS = ("all_gather_single", "all_gather_into_tensor")
_SCATTERS = ("reduce_scatter_single", "reduce_scatter_tensor")
_SUMS = ("all_reduce",)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all ranks."""

    preconditioner: str
    period: int
    """Steps from refresh to refresh; a cycle is as many steps."""
    cycles: int
    width: int
    num_blocks: int
    block: int
    """Longest side of a block of the optimizer."""

    @property
    def shape(self) -> TransformerShape:
        return TransformerShape(num_blocks=self.num_blocks, num_heads=4, width=self.width, context_length=32)

    @property
    def config(self) -> dict[str, Any]:
        """Hyperparameters of the matrices."""
        has_factors = self.preconditioner != "spectral"
        return {
            "preconditioner": self.preconditioner,
            "max_preconditioner_dim": self.block,
            **({"precondition_frequency": self.period} if has_factors else {}),
        }


def build(settings: Settings) -> GPT:
    torch.manual_seed(0)
    return GPT(settings.shape)


def split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices of the blocks, and everything else."""
    matrices = [p for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2]
    return matrices, [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]


def sharing(mode: str, num_ranks: int) -> dict[str, Any]:
    """Hyperparameters of all groups that say how ranks share the work."""
    if mode == "local":
        return {"distributed": "local"}
    # All of them, however small the model.
    return {"distributed": "lossless", "num_ranks_per_group": num_ranks} if mode == "shared" else {}


def groups_of_shapes(settings: Settings) -> list[Group]:
    """The groups of the optimizers with owners, for a simulation."""
    with torch.device("meta"):
        matrices, others = split(GPT(settings.shape))
    return [
        Group([tuple(p.shape) for p in matrices], settings.config),
        Group([tuple(p.shape) for p in others], PLAIN),
    ]


class Contestant:
    """A model and its optimizer."""

    def __init__(self, mode: str, settings: Settings) -> None:
        self._model = build(settings)
        if mode in ("lossless", "local"):
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            for block in self._model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(self._model, mesh=mesh)
        matrices, others = split(self._model)
        distributed = sharing(mode, dist.get_world_size())
        self.optimizer = Shampoo(
            [
                {"params": matrices, **settings.config, **distributed},
                {"params": others, **PLAIN, **distributed},
            ]
        )
        generator = torch.Generator().manual_seed(1)
        self._tokens = torch.randint(256, (2, 33), generator=generator)

    def gradients(self) -> None:
        """Forward and backward pass of one batch, the same on every rank."""
        self.optimizer.zero_grad()
        logits = self._model(self._tokens[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), self._tokens[:, 1:].flatten()).backward()

    def step_seconds(self) -> float:
        """From all ranks' beginning to the end of the last one."""
        self.gradients()
        dist.barrier()
        begun = time.perf_counter()
        self.optimizer.step()
        dist.barrier()
        return time.perf_counter() - begun

    def state_bytes(self) -> int:
        tensors = (x for state in self.optimizer.state.values() for x in state.values() if isinstance(x, Tensor))
        return sum(x.numel() * x.element_size() for x in tensors)


def measure(settings: Settings) -> dict[str, Any]:
    """The findings of this rank."""
    contestants = {mode: Contestant(mode, settings) for mode in MODES}
    for contestant in contestants.values():
        for _ in range(settings.period):
            contestant.step_seconds()
    cycles: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(settings.cycles):
        turn = number % len(MODES)
        for mode in (*MODES[turn:], *MODES[:turn]):
            seconds = [contestants[mode].step_seconds() for _ in range(settings.period)]
            cycles[mode].append(statistics.mean(seconds))
    moved: dict[str, dict[str, int]] = {}
    with moved_bytes() as of_fsdp:
        contestants["lossless"].gradients()
    moved["fsdp"] = dict(of_fsdp)
    for mode in SPREAD:
        with moved_bytes() as of_step:
            contestants[mode].optimizer.step()
        moved[mode] = dict(of_step)
    return {
        "state_bytes": {mode: contestant.state_bytes() for mode, contestant in contestants.items()},
        "step_ms": {mode: 1e3 * statistics.median(means) for mode, means in cycles.items()},
        "cycle_step_ms": {mode: [1e3 * mean for mean in means] for mode, means in cycles.items()},
        "moved_bytes": moved,
    }


@contextmanager
def moved_bytes() -> Iterator[Counter[str]]:
    """Counts what collectives of flat buffers send to other ranks ("sent") and receive from them, in this process.

    What a rank sends to itself is left out, and other collectives than an all-to-all count as a ring does them.
    """
    moved = Counter[str]()
    wrapped = {name: getattr(dist, name) for name in (*_EXCHANGE, *_GATHERS, *_SCATTERS, *_SUMS) if hasattr(dist, name)}

    def counting(name: str) -> Any:
        function = wrapped[name]
        signature = inspect.signature(function)

        def call(*arguments: Any, **named: Any) -> Any:
            given = signature.bind(*arguments, **named).arguments
            output, source = (*given.values(), None)[:2]
            if name in _SUMS:
                both = of_all_reduce(_num_bytes(output), dist.get_world_size(given.get("group")))
                moved["received"] += both
                moved["sent"] += both
            elif name in _EXCHANGE:
                # Sizes in bytes, for the buffers are of bytes.
                into, out = given["output_split_sizes"], given["input_split_sizes"]
                here = dist.get_rank(given["group"])
                moved["received"] += sum(into) - into[here]
                moved["sent"] += sum(out) - out[here]
            else:
                more, less = sorted((_num_bytes(output), _num_bytes(source)), reverse=True)
                moved["received"] += more - less
                moved["sent"] += more - less
            moved["collectives"] += 1
            return function(*arguments, **named)

        return call

    for name in wrapped:
        setattr(dist, name, counting(name))
    try:
        yield moved
    finally:
        for name, function in wrapped.items():
            setattr(dist, name, function)


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def median_quotient(of_ranks: Sequence[dict[str, Any]], numerator: str, denominator: str) -> float:
    """Median over cycles of the quotient of two modes' mean steps, as rank 0 timed them between barriers."""
    cycles = of_ranks[0]["cycle_step_ms"]
    quotient: float = statistics.median(a / b for a, b in zip(cycles[numerator], cycles[denominator], strict=True))
    return quotient
