"""Trials that are not launched because their ranks would need more memory than available."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from service.use_cases.estimating.machine_memory import memory_holds
from service.use_cases.estimating.memory_predictor import NotPredictable
from trainers.config import TrialConfig

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class MemoryLimit:
    """The limit on a trial's predicted memory. Pure: its answers depend only on the limit and the recorded trials.

    Predictions leave out activations and more, so a trial can run out of memory although it should fit. From then on
    predictions count as too low by a factor, `correction`: the limit divided by that trial's prediction. Trials that
    need more than such a trial are not tried. If that trial fits after all, because others had been in its way, it does
    not count.
    """

    limit_bytes: int
    """The limit on the memory of each rank."""
    machine_bytes: int | None = None
    """Memory of the machine on which all ranks of a trial train, if the limit is far above it: then a trial that ran
    out of memory says nothing. None: the limit is the available memory."""
    _out_of_memory: dict[int, int] = field(default_factory=dict)
    """Predictions of the trials that ran out of memory."""

    @property
    def correction(self) -> float:
        """The factor on predictions before they are compared with the limit, at least 1."""
        return self.limit_bytes / min(self._out_of_memory.values(), default=self.limit_bytes)

    def ran_out(self, number: int, predicted_bytes: int) -> None:
        """Records that a trial ran out of memory although it was predicted to fit."""
        if predicted_bytes <= self.limit_bytes and self.machine_bytes is None:
            self._out_of_memory[number] = max(1, predicted_bytes)

    def fitted(self, number: int) -> None:
        """Records that a trial has been measured, so it fits after all."""
        self._out_of_memory.pop(number, None)

    def why_infeasible(self, predicted_bytes: int) -> str | None:
        """The reason why a trial is not worth launching, for a person; None: it may fit."""
        if predicted_bytes > self.limit_bytes and self.machine_bytes is not None:
            return (
                f"weights, gradients and optimizer need {_gib(predicted_bytes)} on each rank, and the machine has "
                f"{_gib(self.machine_bytes)} in all; `resources.beyond_memory: true` launches such trials"
            )
        if predicted_bytes > self.limit_bytes:
            return (
                f"weights, gradients and optimizer need {_gib(predicted_bytes)} on each rank, and there are "
                f"{_gib(self.limit_bytes)}"
            )
        smaller = [number for number, needed in self._out_of_memory.items() if predicted_bytes > needed]
        if smaller:
            number = min(smaller, key=lambda number: self._out_of_memory[number])
            return (
                f"trial {number} ran out of memory with {_gib(self._out_of_memory[number])} predicted for each rank, "
                f"and this one needs {_gib(predicted_bytes)}: with predictions corrected by {self.correction:.3g}, "
                f"more than the {_gib(self.limit_bytes)} there are"
            )
        return None


class Feasibility:
    """Checks the trials of a job before they are launched. Until predictions exist, all are feasible."""

    def __init__(
        self,
        predict: Callable[[TrialConfig], int] | None = None,
        limit_bytes: Callable[[], int | None] = lambda: None,
        *,
        machine_bytes: int | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepares the checks.

        Args:
            predict: the least memory that a rank of a trial needs; raises `NotPredictable`. None: that is unknown.
            limit_bytes: the memory for each rank, asked for after the first prediction; None: that is unknown.
            machine_bytes: see `MemoryLimit`.
            close: ends the process that predicts.
        """
        self._predict = predict
        self._limit_bytes = limit_bytes
        self._machine_bytes = machine_bytes
        self._limit: MemoryLimit | None = None
        self._close = close
        self._predicted: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def ran_out(self, number: int, config: TrialConfig) -> None:
        """Records that a trial ran out of memory, now or in an earlier run."""
        predicted = self._predicted_bytes(number, config)
        if predicted is not None and self._limit is not None:
            self._limit.ran_out(number, predicted)

    def fitted(self, number: int) -> None:
        """Records that a trial ended or paused after a measurement."""
        self._predicted.pop(number, None)
        if self._limit is not None:
            self._limit.fitted(number)

    def why_infeasible(self, number: int, config: TrialConfig) -> str | None:
        """The reason why a trial is not worth launching, for a person; None: it may fit, or that is unknown."""
        predicted = self._predicted_bytes(number, config)
        return None if predicted is None or self._limit is None else self._limit.why_infeasible(predicted)

    def most_together(self, configs: Iterable[TrialConfig], *, num_ranks: int) -> int | None:
        """The number of trials as large as the largest of these that fit into the machine's memory together; None: it
        sets no limit, or that is unknown.

        Args:
            num_ranks: ranks of each trial.
        """
        if self._predict is None or self._machine_bytes is None:
            return None
        try:
            largest = max(self._predict(config) for config in configs)
        except NotPredictable as error:
            logger.warning("the memory of trials cannot be predicted: %s", error)
            return None
        return memory_holds(largest, num_ranks=num_ranks, machine_bytes=self._machine_bytes)

    def _predicted_bytes(self, number: int, config: TrialConfig) -> int | None:
        if self._predict is None:
            return None
        if number not in self._predicted:
            try:
                self._predicted[number] = self._predict(config)
            except NotPredictable as error:
                logger.warning("the trial's memory cannot be predicted: %s", error, extra={"trial": number})
                return None
        if self._limit is None:
            limit_bytes = self._limit_bytes()
            if limit_bytes is None:
                self._predict = None
                self._close()
                return None
            self._limit = MemoryLimit(limit_bytes, self._machine_bytes)
        return self._predicted[number]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.3g} GiB"
