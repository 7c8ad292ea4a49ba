"""The steps at which to measure, and the time of the steps in between, taken without making the device wait."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from trainers.config import TrialConfig


def next_measurement(step: int, config: TrialConfig, *, num_train_examples: int) -> int:
    """The first step after `step` that is measured whatever the clock says."""
    if config.evaluate_every is not None:
        following = step - step % config.evaluate_every + config.evaluate_every
    elif (examples := _examples_between(config, num_train_examples)) is not None:
        # The tolerance keeps a product such as 3 * 0.1 epochs from being one step late.
        num_done = math.floor(step * config.batch_size / examples + 1e-9)
        following = step
        while following <= step:
            num_done += 1
            following = math.ceil(num_done * examples / config.batch_size - 1e-9)
    else:
        following = config.num_steps
    return min(following, config.num_steps)


def _examples_between(config: TrialConfig, num_train_examples: int) -> float | None:
    """Training examples between measurements; None: they are not what counts."""
    if config.evaluate_every_epochs is not None:
        return config.evaluate_every_epochs * num_train_examples
    return config.evaluate_every_examples


NUM_BEFORE_PAUSE = 3
"""Measurements of a trial up to a pause, that of the pause among them, which it has at least: whoever decides what goes
on sees from three points of a curve how fast it still improves, and nothing of that from one or two."""


def extra_measurements(pause_step: int | None, following: Callable[[int], int]) -> tuple[int, ...]:
    """The steps, rising, at which a trial is measured because it is going to be left at `pause_step`.

    That step, and evenly before it others where fewer than `NUM_BEFORE_PAUSE` measurements would lie up to there.

    Args:
        following: gives the first step after another that is measured anyhow.
    """
    if pause_step is None:
        return ()
    step, num_before = following(0), 0
    while step < pause_step and num_before < NUM_BEFORE_PAUSE - 1:
        step, num_before = following(step), num_before + 1
    if num_before == NUM_BEFORE_PAUSE - 1:
        return (pause_step,)
    return tuple(sorted({round(pause_step * part / NUM_BEFORE_PAUSE) for part in range(1, NUM_BEFORE_PAUSE + 1)}))


@dataclass(frozen=True, slots=True)
class StepInterval:
    """The steps since the last measurement of the config's own: means are taken over all of them.

    Equal on all ranks.
    """

    first_step: int
    """The step of that measurement; 0: there was none."""
    loss_sum: float = 0.0
    seconds: float = 0.0
    """Means over ranks, as the next."""
    optimizer_seconds: float = 0.0

    def longer(self, *, seconds: float, optimizer_seconds: float) -> StepInterval:
        """The same with more time."""
        optimizer_seconds += self.optimizer_seconds
        return StepInterval(self.first_step, self.loss_sum, self.seconds + seconds, optimizer_seconds)

    def state(self) -> list[float]:
        """Plain values, from which `of_state` makes the same."""
        return [self.first_step, self.loss_sum, self.seconds, self.optimizer_seconds]

    @classmethod
    def of_state(cls, state: Any) -> StepInterval:
        """Restores what `state` gave."""
        first_step, *sums = state
        return cls(int(first_step), *map(float, sums))


class Stopwatch:
    """The time of the steps since it was started; on CUDA the device's work is timed by events and read at the end."""

    def __init__(self, device: str, *, before: float = 0.0) -> None:
        """Starts it; `before`: seconds of the same interval that are over."""
        self._device = device
        self._on_cuda = device.startswith("cuda")
        self._before = before
        self._started = time.perf_counter()
        self._optimizer_seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @property
    def elapsed(self) -> float:
        """Seconds of the interval by the host's clock, which may be ahead of the device."""
        return self._before + time.perf_counter() - self._started

    @contextmanager
    def optimizer(self) -> Iterator[None]:
        """Counts what happens inside as the optimizer's time."""
        if self._on_cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            yield
            end.record()
            self._events.append((begin, end))
            return
        begun = time.perf_counter()
        yield
        self._optimizer_seconds += time.perf_counter() - begun

    def stop(self) -> tuple[float, float]:
        """Seconds since the start and those of the optimizer, once the device has done all its work."""
        if self._on_cuda:
            torch.cuda.synchronize(self._device)
            self._optimizer_seconds = sum(begin.elapsed_time(end) for begin, end in self._events) / 1000
        return time.perf_counter() - self._started, self._optimizer_seconds
