"""Whole training steps on the device: precisions, the compiler, captured graphs, resuming, memory that runs out, a lost
rank. Without a device the same code runs on the CPU, where nothing is captured and TF32 changes nothing."""

from __future__ import annotations

import io
import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._autograd import DeviceType
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from shampoo import Shampoo
from shampoo.memory import free_bytes
from tests.benchmarks.steps.contestants import NEVER, Contestant, GradientSource, parameters, set_period
from tests.gpu.results import Comparison, Launches, LostRank, Refusal
from tests.gpu.runner import Task
from tests.support.shampoo import sharded
from tests.support.shampoo.deviations import FLOAT32, deviation
from tests.support.shampoo.members import member
from tests.support.shampoo.models import Model, batch, build, groups
from tests.support.shampoo.settings import SHAPES, settings
from tests.support.trainers.ranks import rank_context
from trainers.parallel.teardown import leave_process_group
from trainers.ranks.context import join_process_group

TF32 = "against the reference, with TF32 products"
LOW_PRECISION = "parameters below float32 as on the CPU"
WHOLE_STEP = "a whole training step"
RESUMED = "resumed bit for bit"
MEMORY = "memory that runs out"
LOST = "a rank that is killed"
LAUNCHES = "kernels of a step"
NUM_STEPS = 4
MEMBERS = ("shampoo_adam", "soap", "kl", "spectral", "adam")
# Products with 10 bits of mantissa are off by 5e-4; steps divide by roots of what they leave of small eigenvalues.
TF32_LIMIT = 0.1
# Some roundings of weights, which a step may take the other way.
DTYPE_LIMITS = {torch.bfloat16: 4e-2, torch.float16: 5e-3}
# Fused kernels round otherwise, and steps enlarge that.
COMPILED_LIMIT = 1e-4
LOST_SECONDS = 120.0


def tasks(device: str, *, is_tiny: bool) -> list[Task]:
    """The figures of whole training steps, those that end a process or may spoil it alone."""
    names = MEMBERS[:1] if is_tiny else MEMBERS
    tf32 = ("shampoo", "soap", "kl", "spectral")[: 1 if is_tiny else None]
    found = [Task(TF32, name, with_tf32, (name, device)) for name in tf32]
    found += [
        Task(LOW_PRECISION, f"{name}, {str(dtype).removeprefix('torch.')}", low_precision, (name, device, dtype))
        for dtype in DTYPE_LIMITS
        for name in names
    ]
    backend = "inductor" if device == "cuda" else "aot_eager"
    found += [Task(WHOLE_STEP, f"{name}, compiled", compiled, (name, device, backend)) for name in names[:3]]
    found += [Task(WHOLE_STEP, f"{name}, captured", captured, (name, device)) for name in names[:3]]
    found += [Task(RESUMED, name, resumed, (name, device)) for name in ("shampoo_int4", *(() if is_tiny else names))]
    found += [Task(LAUNCHES, name, launches, (name, device)) for name in names]
    found += [Task(MEMORY, "a state that does not fit", out_of_memory, (device,), is_alone=True)]
    found += [Task(LOST, "two on gloo", lost_rank, (device,), limit_seconds=LOST_SECONDS + 60, is_alone=True)]
    return found


def with_tf32(name: str, device: str) -> Comparison:
    """A member of the family with float32 products in TF32; float64 reference."""
    choices, _ = FLOAT32[name]
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        found = deviation(settings(**choices), list(SHAPES.values()), torch.float32, NUM_STEPS, device=device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return Comparison(found, TF32_LIMIT)


def low_precision(name: str, device: str, dtype: torch.dtype) -> Comparison:
    """Parameters in this dtype, with a state in float32."""
    config = member(name, weight_decay=0.1)
    expected = sharded.train(None, config, NUM_STEPS, dtype=dtype)
    found = sharded.train(None, config, NUM_STEPS, dtype=dtype, device=device)
    return Comparison(sharded.difference([x.cpu() for x in found], expected), DTYPE_LIMITS[dtype])


def compiled(name: str, device: str, backend: str) -> Comparison:
    """Forward, backward and optimizer step in one compiled function, against the same function as it is."""

    def with_compiler(step: Callable[..., None]) -> Callable[..., None]:
        return torch.compile(step, backend=backend)

    return Comparison(_difference(_trained(name, device), _trained(name, device, with_compiler)), COMPILED_LIMIT)


def _trained(
    name: str, device: str, changed: Callable[[Callable[..., None]], Callable[..., None]] = lambda step: step
) -> list[Tensor]:
    """Weights after some steps of one function."""
    model = build().to(device)
    optimizer = _optimizer(model, name)

    def step(tokens: Tensor, targets: Tensor) -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(tokens), targets).backward()
        optimizer.step()

    take = changed(step)
    for number in range(NUM_STEPS):
        take(*(x.to(device) for x in batch(number)))
    return _weights(model)


def captured(name: str, device: str) -> Comparison:
    """Forward and backward captured in a CUDA graph and replayed, the optimizer's step outside, against no graph.

    A step decides on the host what is refreshed and counts there, so it is no part of a graph.
    """
    model = build().to(device)
    optimizer = _optimizer(model, name)
    tokens, targets = (x.to(device) for x in batch(0))

    def backward() -> None:
        nn.functional.mse_loss(model(tokens), targets).backward()

    replay = _captured(backward, optimizer) if device == "cuda" else backward
    for number in range(NUM_STEPS):
        for static, new in zip((tokens, targets), batch(number), strict=True):
            static.copy_(new)
        optimizer.zero_grad(set_to_none=False)
        replay()
        optimizer.step()
    return Comparison(_difference(_trained(name, device), _weights(model)), COMPILED_LIMIT)


def _captured(backward: Callable[[], None], optimizer: Shampoo) -> Callable[[], None]:
    # Libraries begin on another stream before a capture, as torch's manual has it.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            backward()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        backward()
    return graph.replay


def resumed(name: str, device: str) -> Comparison:
    """Some steps in one go, and with a checkpoint in the middle that another optimizer loads."""
    expected, start = build().to(device), build().to(device)
    whole, first = _optimizer(expected, name), _optimizer(start, name)
    _take_steps(expected, whole, range(2 * NUM_STEPS))
    _take_steps(start, first, range(NUM_STEPS))
    file = io.BytesIO()
    torch.save({"model": start.state_dict(), "optimizer": first.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    model = build().to(device)
    optimizer = _optimizer(model, name)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    _take_steps(model, optimizer, range(NUM_STEPS, 2 * NUM_STEPS))
    return Comparison(_difference(_weights(expected), _weights(model)), 0.0)


def _take_steps(model: nn.Module, optimizer: Shampoo, steps: range) -> None:
    device = next(model.parameters()).device
    for number in steps:
        tokens, targets = (x.to(device) for x in batch(number))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(tokens), targets).backward()
        optimizer.step()


def launches(name: str, device: str) -> Launches:
    """Kernels that an ordinary step and one that refreshes everything launch, and the memory of their results, as the
    profiler counts them."""
    shapes = list(SHAPES.values())
    params = parameters(shapes, device)
    optimizer = Shampoo(params, **member(name))
    contestant = Contestant(name, params, (optimizer,), lambda refresh: set_period(optimizer, 1 if refresh else NEVER))
    source = GradientSource(shapes, device)
    for step in range(3):
        contestant.prepare(source, step, refresh=True)
        contestant.step()
    counts, num_bytes = [], []
    for refresh in (False, True):
        contestant.prepare(source, 3, refresh=refresh)
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
        with profile(activities=activities, profile_memory=True) as seen:
            contestant.step()
        events = seen.events() or []
        wanted = DeviceType.CUDA if device == "cuda" else DeviceType.CPU
        counts.append(sum(event.device_type == wanted for event in events))
        # Of an operation its own is what is left of it at its end, and what it frees of others counts against it.
        taken = (
            event.self_device_memory_usage if device == "cuda" else event.self_cpu_memory_usage for event in events
        )
        num_bytes.append(sum(own for own in taken if own > 0))
    return Launches(device, *counts, *num_bytes)


def out_of_memory(device: str) -> Refusal:
    """A state that cannot fit is refused by name, and the same process trains on."""
    free = free_bytes(torch.device(device))
    if free is None:
        raise RuntimeError(f"nobody knows how much memory is free on {device}")
    # Of a parameter of six tenths of it the state needs twelve.
    rows = int(0.6 * free) // (4 * 1024)
    large = nn.Parameter(torch.empty(rows, 1024, device=device))
    message = None
    try:
        Shampoo([large], preconditioner="none")
    except MemoryError as error:
        message = str(error)
    del large
    weights = _trained("shampoo_adam", device)
    return Refusal(message, all(bool(x.isfinite().all()) for x in weights))


def lost_rank(device: str) -> LostRank:
    """One of two ranks that share the work is killed in the middle: the other's step raises."""
    context = rank_context()
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = context.Pipe()
        meeting_point = Path(directory) / "meeting_point"
        ranks = [
            context.Process(target=_until_one_is_lost, args=(theirs, rank, meeting_point, device)) for rank in range(2)
        ]
        for rank in ranks:
            rank.start()
        theirs.close()
        told = ours.recv() if ours.poll(LOST_SECONDS) else None
        for rank in ranks:
            rank.kill()
            rank.join()
    return LostRank(told)


def _until_one_is_lost(connection: Connection, rank: int, meeting_point: Path, device: str) -> None:
    torch.set_num_threads(1)
    join_process_group(
        rank=rank, world_size=2, init_method=f"file://{meeting_point}", device="cpu", timeout_seconds=LOST_SECONDS
    )
    model = build().to(device)
    replica = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = Shampoo(groups(model), **member("shampoo_adam"), distributed="lossless", num_ranks_per_group=2)
    try:
        for number in range(NUM_STEPS):
            tokens, targets = (x.chunk(2)[rank].to(device) for x in batch(number))
            optimizer.zero_grad()
            nn.functional.mse_loss(replica(tokens), targets).backward()
            if rank == 1 and number == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
    except RuntimeError as error:
        connection.send(f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
    else:
        connection.send(None)
        leave_process_group()


def _optimizer(model: Model, name: str) -> Shampoo:
    # With the default damping roots of the first gradients enlarge what fused kernels round otherwise, a hundredfold.
    config: dict[str, Any] = member(name, weight_decay=0.1, epsilon=1e-2)
    return Shampoo(groups(model), **config)


def _weights(model: nn.Module) -> list[Tensor]:
    return [param.detach().cpu() for param in model.parameters()]


def _difference(found: list[Tensor], expected: list[Tensor]) -> float:
    return sharded.difference(found, expected)
