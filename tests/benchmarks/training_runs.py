"""Whole training runs in worker processes, and what is read off their curves."""

from __future__ import annotations

import math
import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch

from shampoo.failures import RefreshFailed
from trainers.config import Diverged, Measurement, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.description import WorkloadDescription
from trainers.distributed import single_process_context
from trainers.loop import train
from trainers.workload import describe

OBJECTIVE = "validation_loss"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What tuning chooses of a trial's config."""

    optimizer: OptimizerConfig
    schedule: ScheduleConfig


@dataclass(frozen=True, slots=True)
class Curve:
    """The measurements of one run, in order; empty if it diverged before the first."""

    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    """Of training alone since its start: neither evaluation nor the building of model and optimizer counts."""
    losses: tuple[float, ...]
    """On the validation data."""
    diverged: bool = False
    """Whether the run ended early, its loss or its preconditioner not finite."""

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
            workload_options={"size": "tiny"},
            optimizer=recipe.optimizer,
            schedule=recipe.schedule,
            num_steps=num_steps,
            evaluate_every=max(1, num_steps // num_evaluations),
            batch_size=self.description.default_batch_size,
            seed=seed,
        )


class Trainers:
    """Worker processes of one thread each that train one config after the other."""

    def __init__(self, num_processes: int) -> None:
        # Inherited by the workers. Set before they import torch, or its threads exist already.
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
        self._pool = ProcessPoolExecutor(
            num_processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=torch.set_num_threads,
            initargs=(1,),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start(self, config: TrialConfig) -> Future[Curve]:
        """Trains the config as soon as a process is free."""
        return self._pool.submit(curve, config)


def curve(config: TrialConfig) -> Curve:
    """Trains the config in this process."""
    measured: list[Measurement] = []
    diverged = False
    try:
        measured.extend(train(config, single_process_context()))
    except (Diverged, RefreshFailed):
        diverged = True
    return Curve(
        steps=tuple(measurement.step for measurement in measured),
        seconds=tuple(measurement.seconds for measurement in measured),
        losses=tuple(measurement.metrics[OBJECTIVE] for measurement in measured),
        diverged=diverged,
    )
