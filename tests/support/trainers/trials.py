"""Small trials, functions that rank processes run, and comparisons of their results."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.nn.parallel import DistributedDataParallel

from tests.support.file_size_limit import files_end_at
from trainers.checkpoints import CheckpointNotWritten
from trainers.config import Diverged, InvalidConfig, Measurement, OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import process_group_context
from trainers.workload.batches import train_batches
from trainers.workloads.registry import load

OPTIMIZERS = {
    "adamw": OptimizerConfig("adamw", {"lr": 3e-3}),
    "sgd": OptimizerConfig("sgd", {"lr": 0.1, "momentum": 0.9}),
    "muon": OptimizerConfig("muon", {"lr": 3e-3}),
    # From step 5 on: if a root has fewer gradients than the length of its side, it enlarges the rounding in their null
    # space.
    "shampoo": OptimizerConfig("shampoo", {"lr": 3e-3, "precondition_frequency": 5, "start_preconditioning_step": 5}),
}

OF_THE_CLOCK = {
    "step_seconds",
    "examples_per_second",
    "tokens_per_second",
    "optimizer_share",
    "peak_memory_bytes",
    "seconds_to_target",
}
"""Metrics that differ from run to run."""


def small_trial(optimizer: str | OptimizerConfig = "adamw", **fields: Any) -> TrialConfig:
    """40 steps, measured every 10, on a small network."""
    return TrialConfig(
        **{
            "workload": "digits-mlp",
            "workload_options": {"hidden_sizes": [32, 16]},
            "optimizer": OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer,
            "num_steps": 40,
            "evaluate_every": 10,
            "batch_size": 48,
            **fields,
        }
    )


def run_trial(config: TrialConfig, directory: Path | None = None, limit: int | None = None) -> list[Measurement]:
    """The trial's measurements on this rank; with a limit, the trial is dropped after this many."""
    trial = train(config, process_group_context(checkpoint_directory=directory))
    return list(islice(trial, limit))


def run_to_the_end(config: TrialConfig, directory: Path | None = None) -> tuple[str, int, str]:
    """The end of a trial: the name of its error, the step of a divergence (else -1), and the message."""
    try:
        run_trial(config, directory)
    except Diverged as diverged:
        return "Diverged", diverged.step, str(diverged)
    except (InvalidConfig, CheckpointNotWritten) as error:
        return type(error).__name__, -1, str(error)
    return "completed", -1, ""


def run_with_full_disk_on_rank_0(config: TrialConfig, directory: Path) -> tuple[str, int, str]:
    """The same if rank 0, which writes, may write no file above 1000 bytes."""
    with files_end_at(1000) if process_group_context().rank == 0 else nullcontext():
        return run_to_the_end(config, directory)


def first_loss(config: TrialConfig) -> float:
    """This rank's loss in the first step of the trial, before it is averaged."""
    context = process_group_context()
    workload = load(config.workload, config.workload_options)
    torch.manual_seed(config.seed)
    model = workload.build_model()
    batches = train_batches(
        workload,
        batch_size=config.batch_size,
        seed=config.seed,
        rank=context.rank,
        world_size=context.world_size,
        start_step=0,
    )
    return float(workload.loss(model, next(batches)).detach())


def resident_bytes_after_each(config: TrialConfig, num_trials: int) -> tuple[list[int], int]:
    """Resident memory after each of many trials, and how many DDP modules are alive at the end."""
    sizes = []
    for _ in range(num_trials):
        run_trial(config)
        sizes.append(psutil.Process().memory_info().rss)
    gc.collect()
    return sizes, sum(type(thing) is DistributedDataParallel for thing in gc.get_objects())


def without_clock(measurements: list[Measurement]) -> list[tuple[int, float, Mapping[str, float]]]:
    """The part of the measurements that the config determines."""
    return [(m.step, m.epoch, determined(m.metrics)) for m in measurements]


def determined(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are the same in every run."""
    return {name: value for name, value in metrics.items() if name not in OF_THE_CLOCK}


def final_state(directory: Path, config: TrialConfig) -> dict[str, Any]:
    """Everything in the last checkpoint except the clock: its plain values, and the checksum of each file of
    tensors."""
    path = directory / f"step-{config.num_steps:08d}" / "manifest.json"
    manifest = json.loads(path.read_bytes())["manifest"]
    assert manifest["step"] == config.num_steps
    return {"structure": manifest["structure"], "files": manifest["files"]}


def random_numbers_after(config: TrialConfig) -> list[int]:
    """State of this rank's generator when the trial is over."""
    run_trial(config)
    return torch.get_rng_state().tolist()


def assert_same_bits(a: Any, b: Any) -> None:
    """Nested values are equal, tensors in every bit."""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, Mapping):
        assert a.keys() == b.keys()
        for key in a:
            assert_same_bits(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same_bits(x, y)
    else:
        assert a == b
