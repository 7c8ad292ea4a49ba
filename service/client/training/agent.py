"""Trains trials with a command that somebody else wrote: a process for each, whose output tells what it measured."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

import httpx
from pydantic import ValidationError
from pydantic_core import from_json

from service.client.client import Client
from service.client.errors import ApiError, ServiceUnreachable
from service.client.training.client import ExternalTrial, suggest
from service.client.training.command import RunningCommand
from service.errors import InvalidInput
from service.specification.external.messages import ExternalDecision, ExternalMeasurement

ENDING_SECONDS = 60.0
"""A command that was told to end may take so long to save a checkpoint."""
KEEPS_PER_LEASE = 3
"""Signs of life in the time of a lease, by judgement: two in a row may be lost before it ends."""
ASK_SECONDS = 30.0
"""Time between two questions whether a trial goes on whose command prints nothing; less where the lease is short."""


class Terminated(BaseException):
    """This process was told to end, as SLURM does before a job's time limit, or its terminal is gone."""

    def __init__(self, number: int) -> None:
        """Prepares it; `number` is the signal's."""
        super().__init__(number)
        self.number = number


class UnusableLine(Exception):
    """A line looks like a measurement, and is none."""


@dataclass(frozen=True, slots=True)
class Told:
    """A line for the person who runs the agent."""

    text: str
    is_fault: bool = False
    """True if it says what is wrong with the line before it, which the command printed."""


def train_with_command(
    client: Client,
    job_id: str,
    command: Sequence[str],
    *,
    name: str | None = None,
    max_trials: int | None = None,
    ending_seconds: float = ENDING_SECONDS,
) -> Iterator[Told]:
    """Trains trials until there are none any more; gives the other lines of the command's output, and how each ended.

    Args:
        name: who asks, for people; None: machine and process, or the task of a SLURM array.
        max_trials: None: as many as there are.
        ending_seconds: time that a command has to end after SIGTERM, before it is killed.

    Raises:
        ApiError, ServiceUnreachable: as `suggest`.
        InvalidInput: there is no such command; no trial was asked for.
        Terminated: on SIGTERM and SIGHUP; the trial is released.
    """
    if shutil.which(command[0]) is None:
        raise InvalidInput(command[0], "there is no such command, or it may not be run")
    num_trained = 0
    with _terminable() as signals:
        while max_trials is None or num_trained < max_trials:
            trial = suggest(client, job_id, name=name)
            if trial is None:
                return
            num_trained += 1
            with trial:
                yield from _train(trial, command, ending_seconds, signals)
            # Where the service has stored the end, and not decided on it yet, it has said only to go on.
            how = "kept" if trial.decision is ExternalDecision.CONTINUE else trial.decision
            yield Told(f"trial {trial.number}: {how}{f': {trial.why}' if trial.why else ''}")


def _train(trial: ExternalTrial, command: Sequence[str], ending_seconds: float, signals: _Signals) -> Iterator[Told]:
    with tempfile.TemporaryDirectory(prefix="shampoo-trial-") as directory:
        config = Path(directory) / "config.json"
        config.write_text(json.dumps(trial.config))
        environment = {
            **os.environ,
            "SHAMPOO_TRIAL_CONFIG": str(config),
            "SHAMPOO_TRIAL": str(trial.number),
            "SHAMPOO_TRIAL_BEGINS_AT_STEP": str(trial.begins_at_step),
        }
        told = _Output(trial)
        with _kept(trial, told):
            running: RunningCommand | None = None
            try:
                with signals.held():  # or it would be started, and nobody there to end it
                    running = RunningCommand(command, environment)
                for line in running.lines(told.is_awaited):
                    yield from told.take(line)
                if told.is_awaited():
                    running.wait(ending_seconds)
            finally:
                if running is not None:
                    running.end(ending_seconds)
    if not trial.has_ended:
        trial.fail(*told.failure(running.exit_status))


class _Output:
    """The output of a trial's command."""

    def __init__(self, trial: ExternalTrial) -> None:
        self._trial = trial
        self.is_trained = False
        """True once its last step is reported: what is left is for the service to decide."""
        self._last_text = ""
        self._fault = ""
        """Of the latest line that could not be used."""
        self._divergence = ""
        """The values that were not finite in the latest measurement."""

    def is_awaited(self) -> bool:
        """True unless the trial was stopped or paused; a command that has trained it to its last step may finish."""
        return self.is_trained or not self._trial.has_ended

    def take(self, line: str) -> Iterator[Told]:
        """Reports the line if it is a measurement; else gives it, with what is wrong with it."""
        fault = ""
        try:
            measured = measurement_of(line)
            if measured is not None:
                self._report(measured)
                return
        except UnusableLine as error:
            fault = str(error)
        self._last_text = line.strip() or self._last_text
        yield Told(line)
        if fault and fault != self._fault:  # once, not at each step
            self._fault = fault
            yield Told(f"trial {self._trial.number}: this measurement is left out: {fault}", is_fault=True)

    def _report(self, measured: ExternalMeasurement) -> None:
        """Raises: UnusableLine: the service refused it for what it says."""
        if self._trial.has_ended:
            return  # a command that has trained it may measure again
        self.is_trained = measured.step >= self._trial.num_steps
        metrics = {name: math.nan if value is None else value for name, value in measured.metrics.items()}
        try:
            self._trial.report(measured.step, metrics, epoch=measured.epoch, seconds=measured.seconds)
        except ApiError as error:
            self.is_trained = False
            if error.status != httpx.codes.UNPROCESSABLE_ENTITY:
                raise
            raise UnusableLine(str(error)) from error
        not_finite = ", ".join(name for name, value in measured.metrics.items() if value is None)
        self._divergence = f"{not_finite} not finite at step {measured.step}" if not_finite else ""

    def failure(self, exit_status: int | None) -> tuple[str, str]:
        """Reason and detail of the failure of a trial whose command has ended before it."""
        how = f"exit status {exit_status}" if exit_status else "it ended before the trial's last step"
        why = f"a measurement was left out: {self._fault}" if self._fault else ""
        last = f"its last line: {self._last_text}" if self._last_text else ""
        detail = "; ".join(part for part in (self._divergence, how, why, last) if part)
        return "diverged" if self._divergence else "error", detail


def measurement_of(line: str) -> ExternalMeasurement | None:
    """The measurement that a line of output tells, if it is a JSON object with `step` and `metrics`; what else is in it
    is left aside, and a metric of NaN or Infinity, which JSON has not and Python writes, is one that is not finite.
    None: it is text for people.

    Raises:
        UnusableLine: it has them, and cannot be used.
    """
    if not line.lstrip().startswith("{"):
        return None
    try:
        told = from_json(line)
    except ValueError:
        return None
    if not isinstance(told, dict) or not {"step", "metrics"} <= told.keys():
        return None
    known = {name: told[name] for name in ExternalMeasurement.model_fields if name in told}
    if isinstance(known["metrics"], dict):
        known["metrics"] = {name: _finite_or_none(value) for name, value in known["metrics"].items()}
    try:
        return ExternalMeasurement.model_validate(known, strict=False)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors(include_url=False))
        raise UnusableLine("; ".join(faults)) from error


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def _kept(trial: ExternalTrial, told: _Output) -> Iterator[None]:
    """Says meanwhile that the trial is still being trained, however seldom it is measured, and asks whether it goes on;
    what it is told, `trial` knows."""
    over = threading.Event()
    keep_seconds = trial.suggested.lease_seconds / KEEPS_PER_LEASE

    def keep() -> None:
        kept_at = time.monotonic()
        while not trial.has_ended and not over.wait(min(keep_seconds, ASK_SECONDS)):
            if told.is_trained:
                continue  # the answer to its last report says what became of it
            with suppress(ApiError, ServiceUnreachable):  # a report tells of that
                if time.monotonic() - kept_at < keep_seconds:
                    trial.should_stop()
                else:
                    kept_at = time.monotonic()
                    trial.keep()

    thread = threading.Thread(target=keep, name="keep the trial", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


class _Signals:
    """The signals that tell this process to end, as exceptions in its main thread."""

    def __init__(self) -> None:
        self._is_held = False
        self._told: int | None = None
        """The last signal that came while they were held."""
        self.only_once: list[signal.Signals] = []
        """Ignored after one of them: a shell and its terminal both hang up, and another one must not cut the command's
        end short."""

    def handle(self, number: int, _frame: FrameType | None) -> None:
        if number in self.only_once:
            for each in self.only_once:
                signal.signal(each, signal.SIG_IGN)
        if not self._is_held:
            self._raise(number)
        self._told = number

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises signals that arrive meanwhile at the end."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._told is not None:
            self._raise(self._told)

    @staticmethod
    def _raise(number: int) -> NoReturn:
        """Raises: Terminated, KeyboardInterrupt."""
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)


@contextmanager
def _terminable() -> Iterator[_Signals]:
    """Turns SIGTERM into `Terminated` meanwhile, and SIGHUP unless it is ignored, where this is the main thread. SIGINT
    is a KeyboardInterrupt as ever, if it was."""
    signals = _Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    signals.only_once = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has it
        signals.only_once.append(signal.SIGHUP)
    numbers = [*signals.only_once]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        numbers.append(signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, signals.handle)
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
