"""Jobs and estimates as the command line shows them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from service.api.schemas.jobs import JobRead, WaitingRead
from service.client import ApiError, Client, ServiceUnreachable
from service.domain import JobRequest, JobState, Phase, TrialState
from service.evidence.best_values import BestTrial
from service.evidence.words import described, device_hours, duration, number, share
from service.inert import inert, one_line
from service.specification.estimate import Estimate, MemoryEstimate
from trainers.retry import retry

POLL_SECONDS = 0.5
SERVICE_OUTAGE_SECONDS = 60.0
"""Seconds that the service may be away while a job is watched."""
WIDE_COLUMNS = 110

_STYLES = {
    JobState.SUCCEEDED: "bold green",
    JobState.FAILED: "bold red",
    JobState.CANCELLED: "yellow",
    JobState.RUNNING: "cyan",
    JobState.PAUSED: "yellow",
}


def say(console: Console, text: str) -> None:
    """Prints text of others as it is: it is no markup, its lines are not wrapped, and the terminal obeys none of it."""
    console.print(Text(inert(text)), soft_wrap=True)


class _InertTable(Table):
    """A table whose cells are text as it is, each on one line."""

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        super().add_row(*(_inert_cell(cell) for cell in cells), style=style, end_section=end_section)


def _inert_cell(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, Text):
        return Text(one_line(cell.plain), style=cell.style)
    return Text(one_line(cell)) if isinstance(cell, str) else cell


def watch(client: Client, job_id: str, console: Console) -> JobRead:
    """Shows a job until it has ended: redrawn in a terminal, a line for every change elsewhere.

    Raises:
        ApiError: no such job.
        ServiceUnreachable: the service was away for longer than a restart takes.
    """
    job = client.job(job_id)
    if not console.is_terminal:
        shown = None
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
            if facts != shown:
                say(console, one_line(progress_line(job)))
                shown = facts
            if job.state.is_final:
                return job
            job = _next(client, job)
    with Live(progress_panel(job), console=console, refresh_per_second=8) as live:
        while not job.state.is_final:
            job = _next(client, job)
            live.update(progress_panel(job))
    return job


def _next(client: Client, job: JobRead) -> JobRead:
    """The job a moment later; waits for a service that is being restarted."""
    time.sleep(POLL_SECONDS)
    return retry(
        lambda: client.job(job.id),
        is_temporary=lambda error: isinstance(error, ServiceUnreachable) or _is_of_the_service(error),
        give_up_seconds=SERVICE_OUTAGE_SECONDS,
        first_pause_seconds=POLL_SECONDS,
        longest_pause_seconds=POLL_SECONDS,
    )


def _is_of_the_service(error: Exception) -> bool:
    """True if the service itself failed, and not the request."""
    return isinstance(error, ApiError) and error.status >= 500


def progress_line(job: JobRead) -> str:
    """A job in one line: state, trials, best so far, time left."""
    parts = [state_words(job), f"{job.progress.num_finished}/{job.num_trials} trials ({trial_counts(job)})"]
    if confirmation := job.progress.phases.get(Phase.CONFIRMATION):
        parts.append(f"confirmation {confirmation.num_finished}/{confirmation.num_trials}")
    metric = job.objectives[0].metric
    if job.progress.best is not None:
        parts.append(f"best {metric} {described(job.progress.best)}")
    if job.progress.baseline_best is not None:
        parts.append(f"baseline {described(job.progress.baseline_best)}")
    if job.progress.seconds_left is not None:
        parts.append(f"about {duration(job.progress.seconds_left)} left")
    if (limit := job.specification.budget.device_hours) is not None:
        parts.append(device_hours(job.progress.device_hours, limit))
    if job.waiting is not None:
        parts.append(waiting_words(job.waiting))
    if job.failure:
        parts.append(job.failure)
    return " · ".join(parts)


def progress_panel(job: JobRead) -> RenderableType:
    """A job as a block that is redrawn in place."""
    progress = job.progress
    table = _InertTable.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("job", f"{job.name}  {job.id}")
    table.add_row("state", Text(state_words(job), style=_STYLES.get(job.state, "")))
    if job.waiting is not None:
        table.add_row("waiting", Text(waiting_words(job.waiting)))
    if job.priority:
        table.add_row("priority", str(job.priority))
    bar = ProgressBar(
        total=job.num_trials, completed=progress.num_finished, width=30, complete_style="cyan", finished_style="green"
    )
    table.add_row("trials", bar)
    table.add_row("", f"{progress.num_finished} of {job.num_trials}: {trial_counts(job)}")
    if len(progress.phases) > 1:
        table.add_row("phases", ", ".join(f"{p} {n.num_finished}/{n.num_trials}" for p, n in progress.phases.items()))
    table.add_row(f"best {job.objectives[0].metric}", described(progress.best) if progress.best else "none yet")
    if job.specification.baseline is not None:
        table.add_row("baseline's best", described(progress.baseline_best) if progress.baseline_best else "none yet")
    if (limit := job.specification.budget.device_hours) is not None:
        table.add_row("budget", device_hours(progress.device_hours, limit))
    if not job.state.is_final:
        left = "unknown yet" if progress.seconds_left is None else f"about {duration(progress.seconds_left)}"
        table.add_row("time left", left)
    elif progress.seconds_elapsed is not None:
        table.add_row("took", duration(progress.seconds_elapsed))
    if job.failure:
        table.add_row("failure", Text(job.failure, style="red"))
    return table


def jobs_table(jobs: Sequence[JobRead], *, width: int) -> Table:
    """A row for each job; where `width` columns do not hold the time of creation, it is left out."""
    wide = width >= WIDE_COLUMNS
    waits = any(job.waiting for job in jobs)
    table = _InertTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    headings = ["id", "name", "state", "trials", "best", "baseline"]
    for heading in [*headings, *(["created (UTC)"] if wide else []), *(["waiting"] if wide and waits else [])]:
        room = max(10, width - (90 if wide else 70)) if heading == "name" else None  # the other columns need the rest
        table.add_column(heading, no_wrap=True, overflow="ellipsis", max_width=room)
    bests = [best for job in jobs for best in (job.progress.best, job.progress.baseline_best) if best is not None]
    if seeds := sorted({best.num_new_seeds for best in bests if best.num_new_seeds}):
        table.caption = f"* mean of {' or '.join(map(str, seeds))} new seeds; the others: one seed"
        table.caption_justify = "left"
    for job in jobs:
        table.add_row(
            job.id,
            job.name,
            Text(state_words(job), style=_STYLES.get(job.state, "")),
            f"{job.progress.num_finished}/{job.num_trials}",
            *(_marked(best) for best in (job.progress.best, job.progress.baseline_best)),
            *([f"{job.created_at:%Y-%m-%d %H:%M:%S}"] if wide else []),
            *([job.waiting.reason if job.waiting else ""] if wide and waits else []),
        )
    return table


def estimate_lines(estimate: Estimate) -> list[str]:
    """The cost of a job at most, in plain words."""
    phases = ", ".join(f"{phase} {num}" for phase, num in estimate.num_trials.items())
    trials = f"{sum(estimate.num_trials.values())} trials ({phases})"
    lines = [f"{trials} of up to {estimate.num_steps} steps, {estimate.max_steps} steps in all if none are pruned."]
    if num := estimate.num_trials.get(Phase.CONFIRMATION):
        lines.append(
            f"{num} of them, {estimate.confirmation_share:.0%}, train the best configs again with new seeds, to their "
            'ends: `"confirmation": null` leaves that out, and the answer provisional.'
        )
    measured = estimate.measured
    if measured is None:
        lines.append("No earlier job like this one has completed a trial here, so its time is unknown.")
    else:
        of = f"median of {measured.num_trials} trials"
        lines.append(f"In job {measured.job_id} a step took {measured.step_seconds:.3g} s ({of}).")
        if measured.peak_memory_bytes is not None:
            lines.append(f"Its ranks needed up to {measured.peak_memory_bytes / 2**30:.2f} GiB.")
    if estimate.memory is not None:
        lines.extend(_memory_lines(estimate.memory))
    if estimate.max_device_hours is not None:
        lines.append(f"At most {estimate.max_device_hours:.3g} device-hours.")
    for phase, winners in estimate.winners.items():
        if not winners:
            lines.append(f"No earlier job with this workload, objective and optimizer has a winner for the {phase}.")
            continue
        told = (
            f"trial {winner.trial} of {winner.job_id}"
            + (f" ({', '.join(winner.clipped)} clipped)" if winner.clipped else "")
            for winner in winners
        )
        lines.append(f"The {phase} begins with winners of earlier jobs: {'; '.join(told)}.")
    return lines


def _memory_lines(memory: MemoryEstimate) -> list[str]:
    if memory.problem is not None:
        return [f"The memory of trials cannot be predicted: {memory.problem}."]
    lines = [
        f"Weights, gradients and optimizer of a {phase} trial need {_gib(space.default_bytes)} on each rank with the "
        f"defaults, up to {_gib(space.largest_bytes)} in {space.num_points} points of the space."
        + (
            f" {share(space.share_infeasible)} of them do not fit and would not be launched."
            if space.share_infeasible
            else ""
        )
        for phase, space in memory.spaces.items()
    ]
    if memory.limit_bytes is None:
        return [*lines, "Memory limit unknown: nothing is kept from being launched (resources.memory_per_worker)."]
    return [*lines, f"The limit is {_gib(memory.limit_bytes)} for each rank."]


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.3g} GiB"


def trial_counts(job: JobRead) -> str:
    """The trials by state, without the states that none is in."""
    counts = [
        f"{job.progress.trials[state]} {state}"
        for state in (
            TrialState.RUNNING,
            TrialState.COMPLETED,
            TrialState.PRUNED,
            TrialState.FAILED,
            TrialState.CANCELLED,
            TrialState.QUEUED,
        )
        if job.progress.trials.get(state)
    ]
    return ", ".join(counts) or "none started"


def state_words(job: JobRead) -> str:
    """The job's state, and where a running one is about to go."""
    about_to = {JobRequest.PAUSE: ", pausing", JobRequest.RESTART: ", restarting"}
    return f"{job.state}{about_to[job.requested] if job.requested else ''}"


def waiting_words(waiting: WaitingRead) -> str:
    """The reason why a job waits, and since when."""
    return f"{waiting.reason} (waiting since {waiting.since:%Y-%m-%d %H:%M:%S} UTC)"


def _marked(best: BestTrial | None) -> str:
    """A best value, with a star if it is a mean over new seeds."""
    return "" if best is None else f"{number(best.value)}{'*' if best.num_new_seeds else ''}"
