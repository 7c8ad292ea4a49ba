"""Waiting for the end of a job, for both clients."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from service.api.schemas.jobs import JobRead, JobSubmitted
from service.client.errors import WaitedTooLong
from service.domain import JobState
from service.evidence.in_words.wording import counted
from service.inert import one_line


class JobWait:
    """Decides after each look at a job whether to look again, and tells of what has changed."""

    def __init__(self, *, timeout_seconds: float | None, progress: bool | Callable[[JobRead], object]) -> None:
        self._timeout_seconds = timeout_seconds
        self._deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        self._tell = (print_progress if progress else None) if isinstance(progress, bool) else progress
        self._told: tuple[JobState, int] | None = None

    def goes_on(self, job: JobRead) -> bool:
        """True if the job has not ended.

        Raises:
            WaitedTooLong
        """
        now = (job.state, job.progress.num_finished)
        if self._tell is not None and now != self._told:
            self._tell(job)
            self._told = now
        if job.state.is_final:
            return False
        if self._deadline is not None and self._timeout_seconds is not None and time.monotonic() > self._deadline:
            raise WaitedTooLong(job, self._timeout_seconds)
        return True


def print_progress(job: JobRead) -> None:
    """Prints state, trials and steps of a job as one line on standard error."""
    progress = job.progress
    trials, steps = counted(job.num_trials, "trial"), counted(progress.num_steps, "step")
    words = f"{job.state}: {progress.num_finished}/{trials}, {steps}"
    if progress.best is not None:
        words += f", best {job.objectives[0].metric} {progress.best.value:.4g}"
    print(one_line(f"{job.name}: {words}"), file=sys.stderr, flush=True)  # noqa: T201 - it was asked for


def print_submitted(job: JobSubmitted, url: str) -> None:
    """Prints the page of a job that the service has taken, and what it found to be wrong with it, on standard error."""
    for line in (f"job {job.id}: {url}/jobs/{job.id}", *(f"warning: {line}" for line in job.warnings)):
        print(one_line(line), file=sys.stderr, flush=True)  # noqa: T201 - whoever waits for it is told at once
