"""The optimizer on several GPUs or nodes: one command for each node, one report to send.

    torchrun --nproc-per-node 2 -m tests.gpu.kit
    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m tests.gpu.kit

Every rank trains the same small model alone, on its own device, and with the others: under DDP with every rank taking
the whole step, under DDP with blocks shared, and under FSDP2. Then ranks save a checkpoint together, into a directory
that all nodes must see (TMPDIR), and each goes on from it alone. Last come steps on shapes that are worth sharing, with
the time and the share of the state of each rank. Rank 0 writes it all to `--report`, a JSON file, and prints it as
Markdown. Exit status 1: something deviates.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn

from shampoo import Shampoo
from tests.benchmarks.steps.contestants import GradientSource, parameters, queued_and_finished
from tests.gpu import ranks
from tests.gpu.machine import environment
from tests.gpu.results import Cell, markdown
from tests.support.shampoo import sharded
from tests.support.shampoo.members import member
from trainers.parallel.teardown import leave_process_group

MEMBERS = ("shampoo_adam", "soap", "kl", "spectral", "adam")
WAYS = {"DDP, whole steps": "ddp", "DDP, lossless": "ddp", "FSDP2": "fsdp2"}
NUM_STEPS = 12
LIMIT = 1e-4
"""Of weights, relative to the largest of a tensor: the ranks' means of gradients are rounded otherwise."""
SHAPES: dict[str, list[tuple[int, ...]]] = {"large": [(1024, 1024)] * 24, "tiny": [(64, 64)] * 6}
NUM_TIMED = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--report", type=Path, default=Path("shampoo-ranks.json"), help="default: %(default)s")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="small shapes: whether this script works at all")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with torchrun: torchrun --nproc-per-node 2 -m tests.gpu.kit")
    device = _join(options.device)
    try:
        found = measure(device, is_tiny=options.tiny)
    finally:
        leave_process_group()
    comparisons = found["comparisons"]
    wrong = [one for one in comparisons if not one["deviation"] <= LIMIT]
    if int(os.environ["RANK"]) == 0:
        options.report.write_text(json.dumps(found, indent=1) + "\n")
        print(as_markdown(found))
        print(f"\n{len(wrong)} of {len(comparisons)} deviate by more than {LIMIT:g}. Please send {options.report}")
    return 1 if wrong else 0


def measure(device: str, *, is_tiny: bool) -> dict[str, Any]:
    """The report, on every rank of a process group; collective."""
    names = ("soap",) if is_tiny else MEMBERS
    comparisons = [_comparison(name, way, device) for name in names for way in WAYS]
    comparisons += [_checkpoint(name, device) for name in names]
    times = [_times(name, device, SHAPES["tiny" if is_tiny else "large"]) for name in names]
    nodes = _of_all_ranks({"host": platform.node(), **environment()})
    return {"world_size": len(nodes), "nodes": nodes, "comparisons": comparisons, "times": times}


def _join(kind: str) -> str:
    """Joins the ranks that torchrun has started; this rank's device."""
    device = f"cuda:{os.environ['LOCAL_RANK']}" if kind == "cuda" else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    return device


def _of_all_ranks(value: Any) -> list[Any]:
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, value)
    return gathered


def _config(name: str) -> dict[str, Any]:
    # With the default damping roots of the first gradients enlarge rounding.
    return member(name, weight_decay=0.1, epsilon=1e-2)


def _comparison(name: str, way: str, device: str) -> dict[str, Any]:
    """The largest deviation on any rank from one process."""
    config = _config(name)
    shared = {"distributed": "lossless", "num_ranks_per_group": dist.get_world_size()} if "lossless" in way else {}
    expected = ranks.train(device, "alone", config, NUM_STEPS)
    found = ranks.train(device, WAYS[way], {**config, **shared}, NUM_STEPS)
    return _worst(name, way, sharded.difference(found, expected))


def _worst(name: str, what: str, deviation: float) -> dict[str, Any]:
    return {"member": name, "what": what, "deviation": max(_of_all_ranks(deviation))}


def _checkpoint(name: str, device: str) -> dict[str, Any]:
    """Ranks that share the state save it together, and each goes on from it alone."""
    config, world_size = _config(name), dist.get_world_size()
    first, last = range(NUM_STEPS // 2), range(NUM_STEPS // 2, NUM_STEPS)
    params, optimizer = _new(device, {**config, "distributed": "lossless", "num_ranks_per_group": world_size})
    _train(params, optimizer, first)
    alone, single = _new(device, config)
    with torch.no_grad():
        for mine, theirs in zip(alone, params, strict=True):
            mine.copy_(theirs)
    with tempfile.TemporaryDirectory() as directory:
        place = _of_all_ranks(directory)[0]
        dcp.save({"optimizer": optimizer.distributed_state_dict()}, checkpoint_id=place)
        state = {"optimizer": single.distributed_state_dict()}
        with warnings.catch_warnings():
            # torch warns of what is wanted here: that each loads in a single process.
            warnings.filterwarnings("ignore", message="torch.distributed is")
            dcp.load(state, checkpoint_id=place, no_dist=True)
        single.load_distributed_state_dict(state["optimizer"])
        dist.barrier()
    _train(params, optimizer, last)
    _train(alone, single, last)
    return _worst(name, "checkpoint of all, each goes on alone", sharded.difference(_whole(alone), _whole(params)))


def _new(device: str, config: dict[str, Any]) -> tuple[list[nn.Parameter], Shampoo]:
    params = [nn.Parameter(x.to(device)) for x in sharded.initial_weights()]
    return params, Shampoo(params, **config)


def _train(params: Sequence[nn.Parameter], optimizer: Shampoo, steps: range) -> None:
    for step in steps:
        for index, param in enumerate(params):
            param.grad = sharded.gradient(index, step, sharded.SHAPES[index]).to(param.device)
        optimizer.step()


def _whole(params: Sequence[nn.Parameter]) -> list[Tensor]:
    return [param.detach().cpu() for param in params]


def _times(name: str, device: str, shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    """Medians of steps taken whole by every rank and shared, in turns, and what each rank has of the state."""
    source = GradientSource(shapes, device)
    by_way = {"whole": {}, "shared": {"distributed": "lossless", "num_ranks_per_group": dist.get_world_size()}}
    params = {way: parameters(shapes, device) for way in by_way}
    optimizers = {way: Shampoo(params[way], **{**member(name), **more}) for way, more in by_way.items()}
    found: dict[str, list[float]] = {way: [] for way in by_way}
    gradients = [torch.empty(shape, device=device) for shape in shapes]
    for step in range(NUM_TIMED + 3):
        source.write(gradients, step)
        for way, optimizer in optimizers.items():
            for param, gradient in zip(params[way], gradients, strict=True):
                param.grad = gradient
            dist.barrier()
            _, milliseconds = queued_and_finished(optimizer.step, params[way][0].device)
            if step >= 3:
                found[way].append(milliseconds)
    medians = {way: statistics.median(each) for way, each in found.items()}
    return {
        "member": name,
        "num_parameters": sum(math.prod(shape) for shape in shapes),
        **{f"{way}_ms": max(_of_all_ranks(each)) for way, each in medians.items()},
        "share_of_state": _of_all_ranks(optimizers["shared"].share_of_state),
    }


def as_markdown(found: dict[str, Any]) -> str:
    """The report as tables."""
    of_first = found["nodes"][0]
    hosts = sorted({node["host"] for node in found["nodes"]})
    head = f"{found['world_size']} ranks on {len(hosts)} hosts, {of_first['device']}, torch {of_first['torch']}"
    compared: list[list[Cell]] = [[one["member"], one["what"], one["deviation"]] for one in found["comparisons"]]
    timed: list[list[Cell]] = [
        [one["member"], one["whole_ms"], one["shared_ms"], max(one["share_of_state"])] for one in found["times"]
    ]
    return "\n\n".join(
        [
            head,
            markdown(("member", "ranks against one process", "largest deviation"), compared),
            markdown(("member", "whole step, ms", "shared step, ms", "most state of a rank, of one process's"), timed),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
