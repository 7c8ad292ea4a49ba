"""Kills the parts of a running service at random, and checks after each kill that SQL has lost nothing."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from service.domain import FailureReason, TrialState
from service.store.models import Event, Trial
from service.store.repositories import EventRepository
from service.use_cases.leases import MAX_CRASHES
from tests.support.postgresql import PostgresqlServer
from tests.support.service.service_process import ServiceProcesses, is_run

ENDS_THE_RUN = frozenset({"run", "worker", "raylet", "head"})
"""Kills that end the whole run; `MAX_CRASHES` of them in a row without progress make the job fail, by design."""
KINDS = ENDS_THE_RUN | {"rank", "trainable", "postgresql"}


@dataclass
class Killer:
    """Kills one part of the service at a time."""

    service: ServiceProcesses
    server: PostgresqlServer
    rng: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    crashes: int = 0
    """Kills since the last progress that ended a run."""

    @property
    def may_end_runs(self) -> bool:
        return self.crashes < MAX_CRASHES - 1

    def alive(self) -> dict[str, Callable[[], None]]:
        """The processes that can be killed now, each with the function that does it."""
        found: dict[str, list[psutil.Process]] = {"run": [], "rank": [], "trainable": [], "raylet": [], "head": []}
        for process in self.service.processes():
            with suppress(psutil.NoSuchProcess):
                kind = _kind(process)
                if kind is not None:
                    found[kind].append(process)

        def killing(processes: Sequence[psutil.Process]) -> Callable[[], None]:
            return self.rng.choice(processes).kill

        living = {kind: killing(processes) for kind, processes in found.items() if processes}
        return living | {"worker": self._kill_worker, "postgresql": self._kill_postgresql}

    def kill(self) -> str:
        """Kills a live process, preferably of a kind that was killed seldom; returns the kind."""
        living = self.alive()
        kinds = [kind for kind in sorted(living) if self.may_end_runs or kind not in ENDS_THE_RUN]
        # Kills that end the run cost most time; they are tried half as often. With the square, a few kills cover every
        # kind.
        weights = [(1 if kind in ENDS_THE_RUN else 2) / (1 + self.kills[kind]) ** 2 for kind in kinds]
        [kind] = self.rng.choices(kinds, weights=weights)
        with suppress(psutil.NoSuchProcess):
            living[kind]()
            self.kills[kind] += 1
            self.crashes += kind in ENDS_THE_RUN
        return kind

    def _kill_worker(self) -> None:
        worker = self.service.workers[-1]
        worker.kill()
        worker.wait()
        self.service.start_worker()

    def _kill_postgresql(self) -> None:
        self.server.kill(self.rng.choice([signal.SIGKILL, signal.SIGQUIT]))
        time.sleep(self.rng.uniform(0.0, 1.5))
        self.server.start()


def _kind(process: psutil.Process) -> str | None:
    if process.status() == psutil.STATUS_ZOMBIE:
        return None
    name = process.name()
    if name.startswith("ray::Rank"):
        return "rank"
    if name.startswith(("ray::WarmTrain", "ray::ResourceTrain")):  # names are cut; the second is another one of Tune
        return "trainable"
    if name == "raylet":
        return "raylet"
    if name == "gcs_server":
        return "head"
    if is_run(process):
        return "run"
    return None


@dataclass
class Ledger:
    """Facts that SQL must never contradict: each check adds some."""

    service: ServiceProcesses
    job_id: str
    num_trials: int
    steps: Sequence[int]
    finished: dict[int, Any] = field(default_factory=dict)
    runs: Counter[int] = field(default_factory=Counter)
    checkpointed: dict[int, int] = field(default_factory=dict)
    """Step of the newest checkpoint that was seen, for each unfinished trial."""
    last_event: int = 0
    floors: dict[int, int] = field(default_factory=dict)
    """Trials that were started again and have not reported since: the least step that they may begin with."""
    final: set[int] = field(default_factory=set)
    progress: int = 0
    """New measurements and endings so far."""
    resumed: int = 0
    """The number of times that a trial continued from a checkpoint."""

    def check(self) -> None:
        """Checks the job's rows, events and checkpoints. Raises: AssertionError."""
        # Before the rows: between the two reads a trial may begin again, but not end and lose its checkpoints.
        checkpoints = self._newest_checkpoints()
        with self.service.database.reading() as session:
            events = EventRepository(session).after(self.last_event, project=None, job_id=self.job_id, limit=100_000)
        for event in events:
            self._follow(event)
        for number, step in checkpoints.items():
            self.checkpointed[number] = max(step, self.checkpointed.get(number, 0))
        trials = self.service.trials(self.job_id)
        assert [trial.number for trial in trials] == list(range(len(trials)))
        assert len(trials) <= self.num_trials
        for trial in trials:
            self._compare(trial)
        self.progress = sum(len(trial.measurements) + trial.state.is_final for trial in trials)

    def _follow(self, event: Event) -> None:
        self.last_event = event.id
        if event.kind not in ("trial.state", "trial.measured"):
            return
        number = event.data["number"]
        assert number not in self.final, f"trial {number} has ended, and then: {event.kind} {event.data}"
        if event.kind == "trial.measured":
            floor = self.floors.pop(number, 0)
            assert event.data["step"] >= floor, f"trial {number} begins at {event.data['step']}, not at {floor}"
            self.resumed += floor > 0
        elif event.data["state"] == "running":
            self.floors[number] = self.checkpointed.get(number, 0)
        elif TrialState(event.data["state"]).is_final:
            self.final.add(number)

    def _compare(self, trial: Trial) -> None:
        steps = [measurement.step for measurement in trial.measurements]
        assert steps == list(self.steps[: len(steps)]), f"trial {trial.number} has steps {steps}"
        assert trial.runs >= self.runs[trial.number]
        self.runs[trial.number] = trial.runs
        if not trial.state.is_final:
            assert trial.number not in self.finished
            return
        if trial.state is TrialState.COMPLETED:
            assert steps[-1] == trial.step == self.steps[-1]
            assert trial.value == trial.measurements[-1].metrics["validation_loss"]
        else:
            assert (trial.state, trial.reason) == (TrialState.FAILED, FailureReason.LOST), trial.detail
        record = _record(trial)
        assert self.finished.setdefault(trial.number, record) == record

    def _newest_checkpoints(self) -> dict[int, int]:
        directory = self.service.data_dir / "checkpoints" / self.job_id
        found: dict[int, int] = {}
        for number in range(self.num_trials):
            with suppress(FileNotFoundError):  # it ended, and was removed meanwhile
                steps = (int(path.name.removeprefix("step-")) for path in (directory / str(number)).glob("step-*"))
                found[number] = max(steps, default=0)
        return found


def _record(trial: Trial) -> dict[str, Any]:
    columns = {column.key: getattr(trial, column.key) for column in Trial.__table__.columns}
    return columns | {"measurements": [(m.step, m.seconds, m.metrics, m.recorded_at) for m in trial.measurements]}
