"""The trials of a job that is watched, with their curves so far."""

from __future__ import annotations

import math
import time
from itertools import islice

from rich.table import Table

from service.api.schemas.jobs import JobRead
from service.api.schemas.trials import TrialRead
from service.cli.reading.trials_table import trials_table
from service.client import Client
from service.domain import TrialState

MAX_TRIALS = 8
"""Trials that are shown, at most, by judgement: they leave a terminal of 24 lines room for the job."""
LOOK_SECONDS = 2.0
"""Time between two looks at them, by judgement: each is several requests."""
MAX_POINTS = 200
"""Points of a curve that is seen for the first time."""


class LiveTrials:
    """Looks at the trials that train, now and then, and remembers what they measured."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._curves: dict[int, list[float]] = {}
        self._steps: dict[int, int] = {}
        self._shown: list[TrialRead] = []
        self._looked_at = -math.inf

    def table(self, job: JobRead, *, width: int) -> Table | None:
        """The trials that train, or those that did last; None: none has begun.

        Raises:
            ApiError, ServiceUnreachable
        """
        if time.monotonic() - self._looked_at >= LOOK_SECONDS or job.state.is_final:
            self._look(job)
            self._looked_at = time.monotonic()
        if not self._shown:
            return None
        return trials_table(self._shown, metric=job.objectives[0].metric, width=width, curves=self._curves)

    def _look(self, job: JobRead) -> None:
        running = list(islice(self._client.trials(job.id, states=[TrialState.RUNNING]), MAX_TRIALS))
        numbers = {trial.number for trial in running}
        gone = [
            self._client.trial(job.id, trial.number) if trial.state is TrialState.RUNNING else trial
            for trial in self._shown
            if trial.number not in numbers
        ]
        free = MAX_TRIALS - len(running)
        self._shown = sorted([*gone[-free:], *running] if free else running, key=lambda trial: trial.number)
        for trial in self._shown:
            self._take_in(job, trial)
        for number in self._curves.keys() - {trial.number for trial in self._shown}:
            del self._curves[number]

    def _take_in(self, job: JobRead, trial: TrialRead) -> None:
        """Adds what a trial measured since the last look."""
        metric, seen = job.objectives[0].metric, self._steps.get(trial.number, -1)
        if trial.step in (0, seen):
            return
        if trial.step < seen:  # it was started again from a checkpoint
            self._curves.pop(trial.number, None)
            seen = -1
        asked = {"metric": [metric], "max_points": MAX_POINTS} if seen < 0 else {"metric": [metric]}
        for measured in self._client.measurements(job.id, trial.number, after_step=seen, **asked):
            value = measured.metrics.get(metric)
            self._curves.setdefault(trial.number, []).append(math.nan if value is None else value)
            self._steps[trial.number] = measured.step
