"""How much longer our training loop takes than the least that a person would write by hand.

    python -m tests.benchmarks.training.training_overhead --cases digits-mlp stdlib-gpt:small --ranks 1 2

Both loops train the same model with the same optimizer, schedule, seed and data, in turns in the same ranks: a cycle of
ours up to its next measurement, then as many steps by hand, the next time the other way round. The loop by hand takes
the next batch, sets gradients to None, and calls forward, backward, optimizer and scheduler; it reads the loss once per
cycle and evaluates as ours does, with the workload's own method. With several ranks it wraps the model in
`DistributedDataParallel` and sums what it measured over ranks. Ours also watches the loss of every step for divergence,
and times, counts and checks. Both loops' losses are compared in the end, so that they are known to do the same work.

    ours_over_minimal        whole cycles, measurement included
    steps_over_minimal       the steps of the cycles alone; ours as its own measurements tell it
    cpu_ours_over_minimal    whole cycles in processor time of rank 0 instead of time, for machines with much other work
                             (on the CPU only; waiting for another rank may count or not)

Each is the median over the cycles of the quotient of neighbours, for each case as NAME.CASE.ranks_N, and by itself the
worst of all cases. `quartiles` among the figures says how far these quotients spread.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from tests.benchmarks.report import Cell, report
from trainers.config import OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.optimizers import build_optimizer, parameter_groups
from trainers.parallel.teardown import leave_process_group
from trainers.ranks.context import (
    RankContext,
    join_process_group,
    process_group_context,
    single_process_context,
)
from trainers.schedule import factor
from trainers.workload.batches import train_batches
from trainers.workloads.registry import describe, load

CASES = ("digits-mlp", "digits-convnet", "stdlib-gpt:tiny", "stdlib-gpt:small")
NUM_WARM_UP_CYCLES = 2
MAX_LOSS_DIFFERENCE = 1e-2
"""Largest difference of the two loops' validation losses in the end, relative. With one rank they are equal; with
several, gradients are summed in another order, which training enlarges."""

OPTIMIZERS: Mapping[str, OptimizerConfig] = {
    "adamw": OptimizerConfig("adamw", {"lr": 1e-3}),
    "sgd": OptimizerConfig("sgd", {"lr": 1e-2, "momentum": 0.9}),
    "shampoo": OptimizerConfig("shampoo", {"lr": 1e-3}),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all cases."""

    optimizer: str
    device: str
    rounds: int
    cycle_seconds: float
    num_threads: int


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle of one loop."""

    seconds: float
    processor_seconds: float
    step_seconds: float
    """Time of all its steps, without the measurement."""
    validation_loss: float


class OurLoop:
    """`trainers.loop.train`, from measurement to measurement."""

    def __init__(self, config: TrialConfig, context: RankContext) -> None:
        self._trial = train(config, context)
        self._seconds_before = 0.0

    def cycle(self) -> tuple[float, float]:
        """Trains up to the next measurement; gives the seconds of its steps and the validation loss."""
        measurement = next(self._trial)
        step_seconds = measurement.seconds - self._seconds_before
        self._seconds_before = measurement.seconds
        return step_seconds, measurement.metrics["validation_loss"]


class MinimalLoop:
    """The loop of a person who needs no more than this one training run."""

    def __init__(self, config: TrialConfig, context: RankContext, *, steps_per_cycle: int) -> None:
        self._context = context
        self._steps_per_cycle = steps_per_cycle
        self._workload = load(config.workload, config.workload_options)
        torch.manual_seed(config.seed)
        self._model = self._workload.build_model().to(context.device)
        groups = parameter_groups(self._workload, self._model, config.optimizer)
        self._optimizer = build_optimizer(config.optimizer, groups)
        self._scheduler = LambdaLR(
            self._optimizer, lambda step: factor(step, config=config.schedule, num_steps=config.num_steps)
        )
        self._replica: nn.Module = self._model
        if context.world_size > 1:
            device_ids = [torch.device(context.device)] if context.device != "cpu" else None
            self._replica = DistributedDataParallel(self._model, device_ids=device_ids)
        self._batches = train_batches(
            self._workload,
            batch_size=config.batch_size,
            seed=config.seed,
            rank=context.rank,
            world_size=context.world_size,
            start_step=0,
        )

    def cycle(self) -> tuple[float, float]:
        """Trains as many steps as ours and measures; gives the seconds of the steps and the validation loss."""
        started = time.perf_counter()
        self._model.train()
        for _ in range(self._steps_per_cycle):
            batch = on_device(next(self._batches), self._context.device)
            self._optimizer.zero_grad()
            loss = self._workload.loss(self._replica, batch)
            loss.backward()
            self._optimizer.step()
            self._scheduler.step()
        loss.item()
        step_seconds = time.perf_counter() - started
        self._model.eval()
        with torch.no_grad():
            shares = self._workload.evaluate(
                self._model,
                rank=self._context.rank,
                world_size=self._context.world_size,
                device=self._context.device,
            )
        sums = torch.tensor([number for share in shares.values() for number in share], device=self._context.device)
        if self._context.world_size > 1:
            dist.all_reduce(sums)
        total, weight = sums[:2].tolist()
        return step_seconds, total / weight


def on_device(batch: object, device: str) -> object:
    """A batch of the cases here: a tensor, or a tuple of tensors."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    assert isinstance(batch, tuple)
    return tuple(part.to(device, non_blocking=True) for part in batch)


def compare(case: str, settings: Settings, context: RankContext) -> dict[str, Any]:
    """Both loops' cycles on this rank, in seconds."""
    torch.set_num_threads(settings.num_threads)
    steps_per_cycle = chosen_steps(case, settings, context)
    num_cycles = NUM_WARM_UP_CYCLES + settings.rounds
    config = trial(case, settings, steps_per_cycle=steps_per_cycle, num_cycles=num_cycles)
    loops: dict[str, OurLoop | MinimalLoop] = {
        "ours": OurLoop(config, context),
        "minimal": MinimalLoop(config, context, steps_per_cycle=steps_per_cycle),
    }
    cycles: dict[str, list[Cycle]] = {name: [] for name in loops}
    for number in range(num_cycles):
        names = list(loops) if number % 2 == 0 else list(reversed(loops))
        for name in names:
            cycles[name].append(timed(loops[name].cycle, context))
    ours, minimal = cycles["ours"][-1].validation_loss, cycles["minimal"][-1].validation_loss
    if not math.isclose(ours, minimal, rel_tol=MAX_LOSS_DIFFERENCE):
        raise RuntimeError(f"{case}: the loops do not train alike: validation loss {ours:g} and {minimal:g}")
    measured = {name: found[NUM_WARM_UP_CYCLES:] for name, found in cycles.items()}
    quotients = {
        "ours_over_minimal": quotients_of(measured, lambda cycle: cycle.seconds),
        "steps_over_minimal": quotients_of(measured, lambda cycle: cycle.step_seconds),
    }
    if context.device == "cpu":
        quotients["cpu_ours_over_minimal"] = quotients_of(measured, lambda cycle: cycle.processor_seconds)
    return {
        "steps_per_cycle": steps_per_cycle,
        "loss_difference": abs(ours / minimal - 1),
        **{
            f"{name}_step_microseconds": 1e6 * statistics.median(c.step_seconds for c in found) / steps_per_cycle
            for name, found in measured.items()
        },
        **{
            f"{name}_measurement_milliseconds": 1e3 * statistics.median(c.seconds - c.step_seconds for c in found)
            for name, found in measured.items()
        },
        "ratios": {name: statistics.median(values) for name, values in quotients.items()},
        "quartiles": {name: statistics.quantiles(values, n=4)[::2] for name, values in quotients.items()},
    }


def trial(case: str, settings: Settings, *, steps_per_cycle: int, num_cycles: int) -> TrialConfig:
    workload, _, size = case.partition(":")
    return TrialConfig(
        workload=workload,
        workload_options={"size": size} if size else {},
        optimizer=OPTIMIZERS[settings.optimizer],
        num_steps=steps_per_cycle * num_cycles,
        evaluate_every=steps_per_cycle,
        batch_size=describe(workload).default_batch_size,
    )


def chosen_steps(case: str, settings: Settings, context: RankContext) -> int:
    """Steps that take `cycle_seconds` by hand, at least two; the same number on every rank."""
    probe = MinimalLoop(trial(case, settings, steps_per_cycle=2, num_cycles=2), context, steps_per_cycle=2)
    probe.cycle()
    step_seconds = min(probe.cycle()[0] / 2 for _ in range(3))
    steps = torch.tensor(max(2, round(settings.cycle_seconds / step_seconds)), device=context.device)
    if context.world_size > 1:
        dist.broadcast(steps, src=0)
    return int(steps)


def timed(cycle: Callable[[], tuple[float, float]], context: RankContext) -> Cycle:
    """One cycle, begun by all ranks together."""
    synchronise(context)
    begun, processor_begun = time.perf_counter(), time.process_time()
    step_seconds, validation_loss = cycle()
    synchronise(context)
    return Cycle(
        seconds=time.perf_counter() - begun,
        processor_seconds=time.process_time() - processor_begun,
        step_seconds=step_seconds,
        validation_loss=validation_loss,
    )


def synchronise(context: RankContext) -> None:
    if context.device != "cpu":
        torch.cuda.synchronize(context.device)
    if context.world_size > 1:
        dist.barrier()


def quotients_of(cycles: Mapping[str, list[Cycle]], figure: Callable[[Cycle], float]) -> list[float]:
    return [figure(ours) / figure(minimal) for ours, minimal in zip(cycles["ours"], cycles["minimal"], strict=True)]


def run_ranks(case: str, settings: Settings, world_size: int) -> dict[str, Any]:
    """The findings of rank 0; each rank is a process of its own, which trains nothing else."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as directory:
        meeting_point = str(Path(directory) / "meeting_point")
        processes = [
            spawn.Process(target=run_rank, args=(case, settings, rank, world_size, meeting_point, theirs))
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        theirs.close()
        try:
            figures: dict[str, Any] = ours.recv()
        except EOFError as error:
            raise RuntimeError(f"{case} on {world_size} ranks failed; what its ranks said is above") from error
        finally:
            for process in processes:
                process.join()
    return figures


def run_rank(case: str, settings: Settings, rank: int, world_size: int, meeting_point: str, output: Any) -> None:
    device = settings.device if settings.device == "cpu" else f"cuda:{rank}"
    if world_size == 1:
        output.send(compare(case, settings, single_process_context(device=device)))
        return
    join_process_group(rank=rank, world_size=world_size, init_method=f"file://{meeting_point}", device=device)
    figures = compare(case, settings, process_group_context(device=device))
    if rank == 0:
        output.send(figures)
    leave_process_group()


def rows_of(figures: Mapping[str, dict[str, Any]]) -> Iterator[list[Cell]]:
    for name, figure in figures.items():
        low, high = figure["quartiles"]["ours_over_minimal"]
        yield [
            name,
            figure["steps_per_cycle"],
            figure["minimal_step_microseconds"],
            figure["ours_step_microseconds"],
            figure["minimal_measurement_milliseconds"],
            figure["ours_measurement_milliseconds"],
            f"{figure['ratios']['ours_over_minimal']:.3f}",
            f"{low:.3f}-{high:.3f}",
            f"{figure['ratios']['steps_over_minimal']:.3f}",
            f"{figure['ratios'].get('cpu_ours_over_minimal', math.nan):.3f}",
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), help="workload or workload:size")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="world sizes")
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adamw")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=21, help="cycles of each loop that count")
    parser.add_argument("--cycle-seconds", type=float, default=0.3, help="how long the steps of a cycle take, roughly")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch, in each rank")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds must be at least 2, got {options.rounds}")
    settings = Settings(options.optimizer, options.device, options.rounds, options.cycle_seconds, options.threads)
    figures: dict[str, dict[str, Any]] = {}
    for world_size in options.ranks:
        for case in options.cases:
            name = f"{case.replace(':', '-')}.ranks_{world_size}"
            print(name, file=sys.stderr, flush=True)
            figures[name] = run_ranks(case, settings, world_size)
    claims = list(next(iter(figures.values()))["ratios"])
    ratios = {claim: max(figure["ratios"][claim] for figure in figures.values()) for claim in claims}
    ratios |= {f"{claim}.{name}": figure["ratios"][claim] for name, figure in figures.items() for claim in claims}
    columns = ["case", "steps", "by hand µs/step", "ours µs/step", "by hand ms/measurement", "ours ms/measurement"]
    report(
        "training_overhead",
        columns=[*columns, "ours/by hand", "quartiles", "steps", "CPU"],
        rows=list(rows_of(figures)),
        figures={"optimizer": options.optimizer, "rounds": options.rounds, "cases": figures},
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
