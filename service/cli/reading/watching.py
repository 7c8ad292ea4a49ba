"""A job that is watched until it ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

from rich.console import Console, Group, RenderableType
from rich.live import Live

from service.api.schemas.jobs import JobRead
from service.cli import asking
from service.cli.reading.live_trials import LiveTrials
from service.cli.terminal import progress_line, progress_panel, say
from service.client import ApiError, Client, ServiceUnreachable
from service.domain import JobState
from service.evidence.in_words.wording import duration
from service.inert import one_line
from trainers.retry import retry

POLL_SECONDS = 0.5
"""Time between two looks at the job, by judgement: people take it for live."""
SERVICE_OUTAGE_SECONDS = 60.0
"""Seconds that the service may be away while a job is watched."""
LONGEST_PAUSE_SECONDS = 2.0
"""Longest time between two tries while no service answers."""
PACE_SECONDS = 30.0
"""The time over which steps per second are counted, at least: several measurements of most jobs."""
STEPS_LINE_SECONDS = 10.0
"""The time between lines for steps alone, at least, where progress is printed in lines."""


class _Pace:
    """The steps that a job's trials take in a second, by what was seen of it lately."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, seconds: float, job: JobRead) -> float | None:
        """Takes in a look at the job at a time of a monotonic clock; steps per second, None: there is no telling yet.

        Steps count when they are measured: the pace is that over the last `PACE_SECONDS`, not since the last look.
        """
        seen = self._seen
        if job.state is not JobState.RUNNING or (seen and job.progress.num_steps < seen[-1][1]):
            seen.clear()
        else:
            seen.append((seconds, job.progress.num_steps))
        while len(seen) > 2 and seen[1][0] <= seconds - PACE_SECONDS:
            seen.popleft()
        if not seen or seen[-1][1] == seen[0][1]:
            return None
        return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


def watch(client: Client, job_id: str, console: Console, *, outage_seconds: float = SERVICE_OUTAGE_SECONDS) -> JobRead:
    """Shows a job until it has ended: redrawn in a terminal, a line for every change elsewhere. Goes on when a service
    that does not answer does so again, and says both.

    Raises:
        ApiError: no such job.
        ServiceUnreachable: the service was away for `outage_seconds`.
    """
    if not console.is_terminal:
        return follow(
            client,
            job_id,
            lambda job, pace: say(console, one_line(progress_line(job, steps_per_second=pace))),
            outage_seconds=outage_seconds,
        )
    job, pace, trials = _look(client, job_id, _say_trouble, outage_seconds=outage_seconds), _Pace(), LiveTrials(client)
    with Live(_block(trials, job, None, width=console.width), console=console, refresh_per_second=8) as live:
        while not job.state.is_final:
            job = _next(client, job, partial(_show_trouble, live, job), outage_seconds=outage_seconds)
            live.update(_block(trials, job, pace.add(time.monotonic(), job), width=console.width))
    return job


def follow(
    client: Client,
    job_id: str,
    show: Callable[[JobRead, float | None], object],
    *,
    outage_seconds: float = SERVICE_OUTAGE_SECONDS,
) -> JobRead:
    """Follows a job until it has ended. Says on standard error when the service is away, and when it is back.

    Args:
        show: is given the job at each change, and its steps per second, if they are known.

    Raises:
        ApiError, ServiceUnreachable: as `watch`.
    """
    job, pace = _look(client, job_id, _say_trouble, outage_seconds=outage_seconds), _Pace()
    shown, shown_at = None, 0.0
    while True:
        facts = (
            job.state,
            job.requested,
            job.waiting,
            job.num_trials,
            job.progress.num_finished,
            job.progress.best,
            job.progress.baseline_best,
        )
        now = time.monotonic()
        steps_per_second = pace.add(now, job)
        if (*facts, job.progress.num_steps) != shown and (
            shown is None or facts != shown[:-1] or now - shown_at >= STEPS_LINE_SECONDS
        ):
            show(job, steps_per_second)
            shown, shown_at = (*facts, job.progress.num_steps), now
        if job.state.is_final:
            return job
        job = _next(client, job, _say_trouble, outage_seconds=outage_seconds)


def _block(trials: LiveTrials, job: JobRead, steps_per_second: float | None, *, width: int) -> RenderableType:
    """The job above its trials. If they cannot be asked for at this moment, the job alone: the next look says why."""
    panel = progress_panel(job, steps_per_second=steps_per_second)
    try:
        table = trials.table(job, width=width)
    except (ApiError, ServiceUnreachable):
        return panel
    return panel if table is None else Group(panel, "", table)


def _show_trouble(live: Live, job: JobRead, words: str) -> None:
    live.update(progress_panel(job, trouble=words))


def _say_trouble(words: str) -> None:
    asking.say(words, err=True)


def _next(client: Client, job: JobRead, tell: Callable[[str], object], *, outage_seconds: float) -> JobRead:
    """The job a moment later."""
    time.sleep(POLL_SECONDS)
    return _look(client, job.id, tell, outage_seconds=outage_seconds)


def _look(client: Client, job_id: str, tell: Callable[[str], object], *, outage_seconds: float) -> JobRead:
    """The job as it is now; waits for a service that is away, as while it is started again, and tells of that."""
    told: list[str] = []

    def trouble(error: Exception, _pause: float) -> None:
        if not told:
            told.append(f"the service does not answer, trying again for {duration(outage_seconds)}: {error}")
            tell(told[0])

    found = retry(
        lambda: client.job(job_id),
        is_temporary=lambda error: isinstance(error, ServiceUnreachable) or _is_of_the_service(error),
        give_up_seconds=outage_seconds,
        first_pause_seconds=POLL_SECONDS,
        longest_pause_seconds=LONGEST_PAUSE_SECONDS,
        tell=trouble,
        sleep=time.sleep,
    )
    if told:
        tell("the service answers again")
    return found


def _is_of_the_service(error: Exception) -> bool:
    """True if the service itself failed, and not the request."""
    return isinstance(error, ApiError) and error.status >= 500
