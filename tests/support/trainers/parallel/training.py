"""Functions that rank processes run to train models together, and their results for comparison."""

from __future__ import annotations

import copy
import functools
import gc
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from shampoo import WeightAveraging
from tests.support.trainers.parallel.models import PartlyUsed, build
from tests.support.waiting import PATIENCE_SECONDS
from trainers.config import InvalidConfig, OptimizerConfig, ParallelismConfig, TrialConfig
from trainers.parallel.ddp import ReplicatedModel
from trainers.parallel.parallelise import ParallelModel, parallelise
from trainers.parallel.simple_fsdp import SimplyShardedModel
from trainers.precision import DTYPES, MixedPrecision
from trainers.ranks.context import RankContext, process_group_context, single_process_context, synchronise_buffers
from trainers.workload.protocol import Workload

BATCH_SIZE = 24
"""Divisible by 2, 3 and 4 ranks, and each share by 2 parts."""

MODES = {
    "ddp": ParallelismConfig("ddp"),
    "fsdp2": ParallelismConfig("fsdp2"),
    "hsdp": ParallelismConfig("hsdp", shard_size=2),
    "simple_fsdp": ParallelismConfig("simple_fsdp"),
}


class SmallWorkload:
    """Its blocks are those of its model's module lists."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return functional.cross_entropy(model(x), y)


WORKLOAD: Workload = SmallWorkload()  # type: ignore[assignment]  # it has everything that is used here


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
class RankResult:
    """The results of training on one rank."""

    losses: list[float]
    """The losses of this rank's share, by step."""
    parameters: list[dict[str, Tensor]]
    """The whole parameters, after each step (or only after the last)."""
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
) -> RankResult:
    scaler = torch.amp.GradScaler("cpu", enabled=config.precision == "float16")
    precision = MixedPrecision(config.precision, device="cpu", scaler=scaler)
    outcome = RankResult([], [])
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
    """The loss of one batch; each rank may call it any number of times."""
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
) -> RankResult:
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


def train_alone(model_name: str, config: TrialConfig, optimizer_name: str = "adamw") -> RankResult:
    """The same on one process with plain torch: whole batches, no accumulation."""
    return train_model(model_name, config, single_process_context(), optimizer_name)


def train_compiled(
    model_name: str, config: TrialConfig, context: RankContext | None = None
) -> tuple[RankResult, int, float]:
    """As `train_model`, with the number of graphs that were compiled and the seconds it took."""
    # The compiler warns about its own actions, in importing and in tracing.
    warnings.filterwarnings("ignore", message="`torch.jit.script_method` is ")
    warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
    torch._inductor.config.compile_threads = 1  # a pool of compiling processes takes longer to start than it saves here
    torch._inductor.config.cpp.vec_isa_ok = False  # trying them, and their headers, takes the compiler longer
    graphs = torch._dynamo.utils.counters["stats"]
    started, num_graphs = time.perf_counter(), graphs["unique_graphs"]
    outcome = train_model(model_name, config, context)
    return outcome, graphs["unique_graphs"] - num_graphs, time.perf_counter() - started


def train_and_evaluate_with_buffers(model_name: str, config: TrialConfig) -> tuple[RankResult, dict[str, Tensor]]:
    """Trains, and also returns the buffers, once they are those of rank 0."""
    context = process_group_context()
    parallel = parallelise(build(model_name), WORKLOAD, config, context)
    outcome = train_steps(
        parallel, optimizer_of("sgd", parallel.model), config, range(config.num_steps), context, keep_all=False
    )
    synchronise_buffers(parallel.model, context)
    outcome.validation = [evaluate(parallel, config, num_times=1 + context.rank)]
    return outcome, {name: buffer.clone() for name, buffer in parallel.model.named_buffers()}


def train_shares_alone(model_name: str, config: TrialConfig, world_size: int) -> tuple[RankResult, dict[str, Tensor]]:
    """The same in one process: each rank's share separately, the mean of gradients, rank 0's buffers."""
    model = build(model_name)
    optimizer = optimizer_of("sgd", model)
    for step in range(config.num_steps):
        optimizer.zero_grad()
        after_rank_0: dict[str, Tensor] = {}
        for rank in range(world_size):
            share = share_of(batch_of(step), RankContext(rank, world_size, "cpu"))
            (WORKLOAD.loss(model, share) / world_size).backward()
            if rank == 0:
                after_rank_0 = {name: buffer.clone() for name, buffer in model.named_buffers()}
        for name, buffer in model.named_buffers():
            buffer.copy_(after_rank_0[name])
        optimizer.step()
    model.eval()
    with torch.no_grad():
        validation = [float(WORKLOAD.loss(model, batch_of(1000)))]
    return RankResult([], [parameters_of(model)], validation=validation), dict(model.named_buffers())


def train_in_two_halves(model_name: str, config: TrialConfig) -> tuple[RankResult, RankResult]:
    """The parameters after all steps, without an interruption and with one in the middle, from `state_dict`s."""
    context = process_group_context()
    half = config.num_steps // 2

    def begin() -> tuple[ParallelModel, torch.optim.Optimizer]:
        parallel = parallelise(build(model_name), WORKLOAD, config, context)
        return parallel, optimizer_of("adamw", parallel.model)

    parallel, optimizer = begin()
    whole_run = train_steps(parallel, optimizer, config, range(config.num_steps), context)
    parallel, optimizer = begin()
    train_steps(parallel, optimizer, config, range(half), context)
    state = copy.deepcopy((parallel.model.state_dict(), optimizer.state_dict(), parallel.state_dict()))
    parallel, optimizer = begin()
    parallel.model.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    parallel.load_state_dict(state[2])
    resumed = train_steps(parallel, optimizer, config, range(half, config.num_steps), context)
    return whole_run, resumed


def average_weights(mode: str, method: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Trained and averaged weights."""
    context = single_process_context() if mode == "alone" else process_group_context()
    config = trial_config("ddp" if mode == "alone" else mode, num_steps=6)
    parallel = parallelise(build("gpt"), WORKLOAD, config, context)
    frequency = {"update_frequency": 2} if method in ("ema", "lawa") else {}
    optimizer = WeightAveraging(optimizer_of("adamw", parallel.model), method, **frequency)  # type: ignore[arg-type]
    train_steps(parallel, optimizer, config, range(config.num_steps), context, keep_all=False)
    trained = parameters_of(parallel.model)
    with optimizer.averaged_weights(), parallel.for_evaluation() as model:
        return trained, {name: parameter.detach().clone() for name, parameter in whole_parameters(model)}


def whole_parameters(model: nn.Module) -> list[tuple[str, Tensor]]:
    """The parameters as modules see them within `for_evaluation`: by attribute."""
    return [
        (name, functools.reduce(getattr, name.split("."), model))  # type: ignore[misc]  # a tensor at the end of the path
        for name, _ in model.named_parameters()
    ]


def first_gradients(model_name: str, config: TrialConfig) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The mean of gradients of the step after `compression.start_step`, compressed and exact; all with unchanged
    parameters."""
    context = process_group_context()
    assert config.compression is not None
    model = build(model_name)
    parallel = parallelise(model, WORKLOAD, config, context)
    for step in range(config.compression.start_step + 1):
        model.zero_grad()
        with parallel.accumulating(is_last=True):
            WORKLOAD.loss(parallel.forward, share_of(batch_of(step), context)).backward()
    compressed = {
        name: whole(parameter.grad) for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    alone = build(model_name)
    WORKLOAD.loss(alone, batch_of(config.compression.start_step)).backward()
    return compressed, {
        name: parameter.grad for name, parameter in alone.named_parameters() if parameter.grad is not None
    }


def elements_of_a_compressed_step(model_name: str, config: TrialConfig) -> tuple[int, tuple[int, int]]:
    """Elements sent to collectives in one backward pass with compression, and the model's own count of them."""
    context = process_group_context()
    assert config.compression is not None
    parallel = parallelise(build(model_name), WORKLOAD, config, context)
    assert isinstance(parallel, ReplicatedModel)
    counted = 0
    all_reduce = dist.all_reduce

    def counting(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal counted
        counted += tensor.numel()
        return all_reduce(tensor, *args, **kwargs)

    optimizer = optimizer_of("sgd", parallel.model)
    train_steps(parallel, optimizer, config, range(config.compression.start_step), context)
    assert parallel.num_elements_sent == (0, 0)
    dist.all_reduce = counting
    try:
        train_steps(parallel, optimizer, config, [config.compression.start_step], context)
    finally:
        dist.all_reduce = all_reduce
    return counted, parallel.num_elements_sent


def gradients_that_overflow_on_rank_0(mode: str) -> tuple[float, bool, int]:
    """The scale after a step whose gradients overflow only in one rank's share, whether the parameters moved, and the
    number of skipped steps."""
    context = process_group_context()
    config = trial_config(mode, precision="float16")
    parallel = parallelise(build("mlp"), WORKLOAD, config, context)
    optimizer = optimizer_of("sgd", parallel.model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    precision = MixedPrecision("float16", device="cpu", scaler=scaler)
    before = parameters_of(parallel.model)
    with parallel.accumulating(is_last=True):
        with precision.autocast():
            loss = WORKLOAD.loss(parallel.forward, share_of(batch_of(0), context))
        precision.backward(loss)
    # At one place of one rank's part; with replicas, at one place of each.
    gradient = next(parallel.model.parameters()).grad
    assert gradient is not None
    if not isinstance(gradient, DTensor):
        gradient[0, 0] = float("inf")
    elif context.rank == 0:
        gradient.to_local()[0, 0] = float("inf")
    precision.unscale(optimizer)
    precision.step(optimizer)
    after = parameters_of(parallel.model)
    moved = any(not torch.equal(before[name], after[name]) for name in before)
    return scaler.get_scale(), moved, precision.num_skipped_steps


def refused(model_name: str, config: TrialConfig) -> str:
    """The message with which the config is refused."""
    try:
        parallelise(build(model_name), WORKLOAD, config, process_group_context())
    except InvalidConfig as error:
        return str(error)
    return ""


def late_gradient() -> str:
    """The message when a parameter gets its first gradient in the second step."""
    context = process_group_context()
    model = build("partly_used")
    assert isinstance(model, PartlyUsed)
    parallel = parallelise(model, WORKLOAD, trial_config("ddp"), context)
    train_steps(parallel, optimizer_of("sgd", model), trial_config("ddp"), [0], context)
    try:
        with parallel.accumulating(is_last=True):
            output = parallel.forward(batch_of(1)[0])
            (output.sum() + model.unused(torch.ones(1, 8)).sum()).backward()
    except RuntimeError as error:
        return str(error)
    return ""


def modules_alive_after(mode: str, num_trials: int, compiles: bool = False) -> tuple[list[int], int, int]:
    """Resident memory after each of many trials; how many modules that share models are alive then; and how many
    process groups were added after the second trial."""
    config = trial_config(mode, num_steps=3, compile=compiles)
    gc.collect()
    gc.freeze()  # the modules of libraries, which each of the collections below would go through
    sizes, groups = [], []
    for _ in range(num_trials):
        train_compiled("mlp", config)
        gc.collect()
        sizes.append(psutil.Process().memory_info().rss)
        groups.append(len(dist.distributed_c10d._world.pg_map))
    kinds = ("FSDPModule", "DistributedDataParallel", "ParallelModel", "CompiledModel")
    alive = sum(bool({cls.__name__ for cls in type(thing).__mro__} & set(kinds)) for thing in gc.get_objects())
    return sizes, alive, groups[-1] - groups[1]


def gathered_weights_kept(mode: str) -> list[bool]:
    """For each gathered parameter of an eager SimpleFSDP model, true if it is in memory between the two passes."""
    context = process_group_context()
    parallel = parallelise(build("mlp"), WORKLOAD, trial_config(mode), context)
    assert isinstance(parallel, SimplyShardedModel)
    with parallel.accumulating(is_last=True):
        loss = WORKLOAD.loss(parallel.forward, share_of(batch_of(0), context))
    storages = [storage for storage, *_ in parallel._gathering._sources.values()]
    deadline = time.monotonic() + PATIENCE_SECONDS  # gloo's thread frees what it sent a moment later
    while not all(storage.expired() for storage in storages) and time.monotonic() < deadline:
        time.sleep(0.01)
    kept = [not storage.expired() for storage in storages]
    loss.backward()
    return kept
