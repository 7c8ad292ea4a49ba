"""Trains trials with a command that somebody else wrote: a process for each, whose output tells what it measured."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from service.client.client import Client
from service.client.errors import ApiError, ServiceUnreachable
from service.client.external import ExternalTrial, suggest
from service.errors import InvalidInput
from service.specification.external.messages import ExternalDecision, ExternalMeasurement

ENDING_SECONDS = 60.0
"""A command that was told to end may take so long to save a checkpoint."""
KEEPS_PER_LEASE = 3


class Terminated(BaseException):
    """This process was told to end, as SLURM does before a job's time limit."""


def train_with_command(
    client: Client, job_id: str, command: Sequence[str], *, name: str | None = None, max_trials: int | None = None
) -> Iterator[str]:
    """Trains trials until there are none any more; gives the other lines of the command's output, and how each ended.

    Args:
        name: who asks, for people; None: machine and process, or the task of a SLURM array.
        max_trials: None: as many as there are.

    Raises:
        ApiError, ServiceUnreachable: as `suggest`.
        InvalidInput: there is no such command; no trial was asked for.
        Terminated: on SIGTERM; the trial is released.
    """
    if shutil.which(command[0]) is None:
        raise InvalidInput(command[0], "there is no such command, or it may not be run")
    num_trained = 0
    with _terminable():
        while max_trials is None or num_trained < max_trials:
            trial = suggest(client, job_id, name=name)
            if trial is None:
                return
            num_trained += 1
            with trial:
                yield from _train(trial, command)
            yield f"trial {trial.number}: {trial.decision}{f': {trial.why}' if trial.why else ''}"


def _train(trial: ExternalTrial, command: Sequence[str]) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="shampoo-trial-") as directory:
        config = Path(directory) / "config.json"
        config.write_text(json.dumps(trial.config))
        environment = {
            **os.environ,
            "SHAMPOO_TRIAL_CONFIG": str(config),
            "SHAMPOO_TRIAL": str(trial.number),
            "SHAMPOO_TRIAL_BEGINS_AT_STEP": str(trial.begins_at_step),
        }
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, errors="replace")
        assert process.stdout is not None
        last = ""
        try:
            with _kept(trial):
                for line in process.stdout:
                    measured = _measurement(line)
                    if measured is None:
                        last = line.strip() or last
                        yield line.rstrip("\n")
                        continue
                    metrics = {
                        name: float("nan") if value is None else value for name, value in measured.metrics.items()
                    }
                    goes_on = trial.report(measured.step, metrics, epoch=measured.epoch, seconds=measured.seconds)
                    if not goes_on and measured.step < trial.num_steps:
                        break
                else:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(ENDING_SECONDS)
        finally:
            _end(process)
    if trial.decision is ExternalDecision.CONTINUE:
        how = f"exit status {process.returncode}" if process.returncode else "it ended before the trial's last step"
        trial.fail("error", f"{how}{f'; its last line: {last}' if last else ''}")


def _measurement(line: str) -> ExternalMeasurement | None:
    """The measurement that a line tells; None: it is text for people."""
    if not line.startswith("{"):
        return None
    try:
        return ExternalMeasurement.model_validate_json(line, strict=False)
    except ValidationError:
        return None


@contextmanager
def _kept(trial: ExternalTrial) -> Iterator[None]:
    """Says meanwhile that the trial is still being trained, however seldom it is measured."""
    over = threading.Event()

    def keep() -> None:
        while not over.wait(trial.suggested.lease_seconds / KEEPS_PER_LEASE):
            with suppress(ApiError, ServiceUnreachable):  # a report tells of that
                if not trial.keep():
                    return

    thread = threading.Thread(target=keep, name="keep the trial", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a command that has not ended: it is asked to, and then made to."""
    with process:
        process.terminate()
        try:
            process.communicate(timeout=ENDING_SECONDS)  # what it still prints must not keep it
        except subprocess.TimeoutExpired:
            process.kill()


@contextmanager
def _terminable() -> Iterator[None]:
    """Turns SIGTERM into `Terminated` meanwhile, where this is the main thread."""

    def raise_it(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, raise_it)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
