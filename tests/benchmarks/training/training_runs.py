"""Whole training runs in worker processes, of one rank or several, and what is read off their curves."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import torch

from shampoo.step.failures import RefreshFailed
from tests.support.trainers.ranks import WarmRanks
from trainers.config import Diverged, Measurement, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import RankContext, process_group_context, single_process_context
from trainers.workload.description import WorkloadDescription
from trainers.workloads.registry import describe

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Run = TypeVar("Run", bound="DataclassInstance")
"""A point of a grid."""

OBJECTIVE = "validation_loss"
RUN_TIMEOUT_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Recipe:
    """The part of a trial's config that tuning chooses."""

    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Others of the config, e.g. the precision."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The measurements of one run, in order; empty if it diverged before the first."""

    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    """Time of training alone since its start: neither evaluation nor the building of model and optimizer counts."""
    losses: tuple[float, ...]
    """Losses on the validation data."""
    diverged: bool = False
    """True if the run ended early, its loss or its preconditioner not finite."""

    @property
    def best(self) -> float:
        """The least loss; infinite if the run diverged."""
        return math.inf if self.diverged else min(self.losses)

    @property
    def final(self) -> float:
        return math.inf if self.diverged else self.losses[-1]

    def steps_to(self, target: float) -> float:
        """Steps up to the first measurement with a loss of at most `target`; infinite if there is none."""
        return next((step for step, loss in zip(self.steps, self.losses, strict=True) if loss <= target), math.inf)

    def seconds_to(self, target: float) -> float:
        """Training seconds up to that measurement; infinite if there is none."""
        return next(
            (seconds for seconds, loss in zip(self.seconds, self.losses, strict=True) if loss <= target), math.inf
        )


@dataclass(frozen=True, slots=True)
class Task:
    """A workload at one size, and how long it is trained at most."""

    workload: str
    num_steps: int
    num_evaluations: int
    size: str = "tiny"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further options of the workload, e.g. where its data lies."""

    @property
    def description(self) -> WorkloadDescription:
        return describe(self.workload)

    def config(
        self, recipe: Recipe, *, seed: int, budget: float = 1.0, num_evaluations: int | None = None
    ) -> TrialConfig:
        """A run of a share `budget` of the steps, with a whole schedule and the same number of measurements in it."""
        num_steps = max(1, round(budget * self.num_steps))
        num_evaluations = num_evaluations or self.num_evaluations
        return TrialConfig(
            workload=self.workload,
            workload_options={**({"size": self.size} if "size" in self.description.options else {}), **self.options},
            optimizer=recipe.optimizer,
            schedule=recipe.schedule,
            num_steps=num_steps,
            evaluate_every=max(1, num_steps // num_evaluations),
            batch_size=self.description.default_batch_size,
            seed=seed,
            **recipe.fields,
        )


class RunLog:
    """Curves that have been trained, by their configs, in a file with a line of JSON for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._known: dict[str, Curve] = {}
        if path.exists():
            for line in map(json.loads, path.read_text().splitlines()):
                of_log = Curve(**line["curve"])
                self._known[_key(line["config"])] = replace(
                    of_log, steps=tuple(of_log.steps), seconds=tuple(of_log.seconds), losses=tuple(of_log.losses)
                )

    def curve_of(self, config: TrialConfig) -> Curve | None:
        """The curve of an equal config, if there is one."""
        return self._known.get(_key(asdict(config)))

    def add(self, config: TrialConfig, trained: Curve) -> None:
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps({"config": asdict(config), "curve": asdict(trained)}) + "\n")


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


class Trainers:
    """Worker processes of one thread each that train one config after the other; none that the log has."""

    def __init__(self, num_processes: int, *, log: RunLog | None = None) -> None:
        # Inherited by the workers. Set before they import torch, or its threads exist already.
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
        self._pool = ProcessPoolExecutor(
            num_processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=torch.set_num_threads,
            initargs=(1,),
        )
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(self, config: TrialConfig) -> Future[Curve]:
        """Trains the config as soon as a process is free."""
        if self._log is None:
            return self._pool.submit(curve, config)
        if (known := self._log.curve_of(config)) is not None:
            future = Future[Curve]()
            future.set_result(known)
            return future
        future = self._pool.submit(curve, config)
        future.add_done_callback(partial(_log_if_trained, self._log, config))
        return future


def _log_if_trained(log: RunLog, config: TrialConfig, future: Future[Curve]) -> None:
    if not future.cancelled() and future.exception() is None:
        log.add(config, future.result())


class RankGroups:
    """Groups of ranks, processes of one thread each joined by gloo, that train one config after the other."""

    def __init__(self, num_groups: int, world_size: int) -> None:
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
        self._meeting_points = tempfile.TemporaryDirectory()
        self._free: SimpleQueue[WarmRanks] = SimpleQueue()
        self._groups = [
            WarmRanks(world_size, Path(self._meeting_points.name) / str(number), timeout_seconds=RUN_TIMEOUT_SECONDS)
            for number in range(num_groups)
        ]
        for group in self._groups:
            self._free.put(group)
        self._threads = ThreadPoolExecutor(num_groups)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)
        for group in self._groups:
            group.stop()
        self._meeting_points.cleanup()

    def start(self, config: TrialConfig) -> Future[Curve]:
        """Trains the config as soon as a group is free."""
        return self._threads.submit(self._train, config)

    def _train(self, config: TrialConfig) -> Curve:
        group = self._free.get()
        try:
            found: Curve = group.run(curve_of_ranks, config)[0]
        finally:
            self._free.put(group)
        return found


def curve_of_ranks(config: TrialConfig) -> Curve:
    """Trains the config on this process's group; its curve."""
    return curve(config, process_group_context())


def curve(config: TrialConfig, context: RankContext | None = None) -> Curve:
    """Trains the config in this process; alone, or as a rank."""
    measured: list[Measurement] = []
    diverged = False
    try:
        measured.extend(train(config, context or single_process_context()))
    except (Diverged, RefreshFailed):
        diverged = True
    return Curve(
        steps=tuple(measurement.step for measurement in measured),
        seconds=tuple(measurement.seconds for measurement in measured),
        losses=tuple(measurement.metrics[OBJECTIVE] for measurement in measured),
        diverged=diverged,
    )


def grid_options(documentation: str | None) -> ArgumentParser:
    """The options that every benchmark has which trains a grid."""
    parser = ArgumentParser(description=(documentation or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--log", type=Path, help="a line of JSON for each run, as soon as it is there")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    return parser


def final_losses(
    runs: Sequence[Run], config_of: Callable[[Run], TrialConfig], log: Path | None, *, num_processes: int
) -> dict[Run, float]:
    """The final loss of every run of a grid, infinite where it diverged; those that the log has are not trained
    again."""
    losses: dict[Run, float] = {}
    if runs and log is not None and log.exists():
        for line in map(json.loads, log.read_text().splitlines()):
            losses[type(runs[0])(**line["run"])] = math.inf if line["loss"] is None else line["loss"]
    with Trainers(num_processes) as trainers:
        started = {trainers.start(config_of(run)): run for run in runs if run not in losses}
        for future in as_completed(started):
            run, loss = started[future], future.result().final
            losses[run] = loss
            text = json.dumps({"run": asdict(run), "loss": loss if math.isfinite(loss) else None})
            print(text, file=sys.stderr)
            if log is not None:
                with log.open("a") as file:
                    file.write(text + "\n")
    return {run: losses[run] for run in runs}


def told_losses(losses: Mapping[Run, float]) -> list[dict[str, object]]:
    """Runs with their losses, as JSON."""
    return [{**asdict(run), "loss": loss if math.isfinite(loss) else None} for run, loss in losses.items()]
