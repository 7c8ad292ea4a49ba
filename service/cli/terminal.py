"""Jobs as the command line shows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.progress_bar import ProgressBar
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from service.api.schemas.jobs import JobRead, WaitingRead
from service.clock import utc_text
from service.domain import JobRequest, JobState, Phase, TrialState
from service.evidence.best_values import BestTrial
from service.evidence.in_words.wording import (
    cost_words,
    counted,
    device_hours,
    device_time,
    duration,
    joined,
    number,
    optimizer_title,
    time_left,
)
from service.evidence.in_words.words import described
from service.inert import inert, one_line

WIDE_COLUMNS = 110
"""Columns of a terminal that has room for the times and reasons of jobs beside the rest, by judgement."""
COLUMN_GAP = 2
"""Columns between two of a table, by judgement."""
FEWEST_OF_NAME = 10
"""Columns of a name, or of a reason for waiting: fewer say nothing."""

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


def new_console() -> Console:
    """The console of standard output."""
    # Rich takes 80 columns where there is no terminal, and would cut what a program is about to read.
    console = Console()
    return console if console.is_terminal else Console(width=1000)


def show(console: Console, renderable: RenderableType) -> None:
    """Prints a table; where a program reads it, without the spaces that fill its last column."""
    if console.is_terminal:
        console.print(renderable)
        return
    with console.capture() as captured:
        console.print(renderable)
    console.out("\n".join(line.rstrip() for line in captured.get().splitlines()), highlight=False)


class InertTable(Table):
    """A table whose cells are text as it is: a string on one line, and of a `Text` as many as it has."""

    def add_row(self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False) -> None:
        super().add_row(*(_inert_cell(cell) for cell in cells), style=style, end_section=end_section)


def facts(rows: Sequence[tuple[str, str]]) -> Table:
    """A table of names and their values, of which some may have several lines."""
    table = InertTable.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows:
        table.add_row(name, _lines(value))
    return table


def listing(*headings: str, numbers: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    """A table with these columns, and no rows yet.

    Args:
        numbers: the headings of columns whose cells end below each other.
        whole: the headings of columns whose cells are never broken.
    """
    table = InertTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        justify: JustifyMethod = "right" if heading in numbers else "left"
        table.add_column(heading, overflow="fold", justify=justify, no_wrap=heading in whole)
    return table


def _lines(text: str, *, style: str = "") -> Text:
    """A cell of as many lines as the text has. Rich leaves some control characters out, which are to be seen."""
    return Text(inert(text), style=style)


def _inert_cell(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, Text):
        return Text(inert(cell.plain), style=cell.style)
    return Text(one_line(cell)) if isinstance(cell, str) else cell


def steps_words(job: JobRead, steps_per_second: float | None = None) -> str:
    """The steps measured so far of all there may be, and how many come in a second."""
    progress = job.progress
    words = f"{progress.num_steps:,}/{progress.max_steps:,} steps"
    if steps_per_second is not None and not job.state.is_final:
        words += f" ({number(steps_per_second, 3)} a second)"
    return words


def progress_line(job: JobRead, *, steps_per_second: float | None = None) -> str:
    """A job in one line: state, trials, steps, best so far, time left."""
    parts = [state_words(job), f"{job.progress.num_finished}/{counted(job.num_trials, 'trial')} ({trial_counts(job)})"]
    if confirmation := job.progress.phases.get(Phase.CONFIRMATION):
        parts.append(f"confirmation {confirmation.num_finished}/{confirmation.num_trials}")
    if job.progress.num_steps:
        parts.append(steps_words(job, steps_per_second))
    metric = job.objectives[0].metric
    if job.progress.best is not None:
        parts.append(f"best {metric} {described(job.progress.best)}")
    if job.progress.baseline_best is not None:
        parts.append(f"baseline {described(job.progress.baseline_best)}")
    if job.progress.seconds_left is not None:
        parts.append(f"{time_left(job.progress.seconds_left)} left")
    if (limit := job.specification.budget.device_hours) is not None:
        parts.append(device_hours(job.progress.device_hours, limit))
    if cost := cost_words(job.progress.cost, job.currency, job.specification.budget.cost):
        parts.append(cost)
    if job.waiting is not None:
        parts.append(waiting_words(job.waiting))
    if ended := job.failure or job.cut_off:
        parts.append(ended)
    return " · ".join(parts)


def progress_panel(
    job: JobRead, *, steps_per_second: float | None = None, trouble: str | None = None
) -> RenderableType:
    """A job as a block that is redrawn in place.

    Args:
        trouble: why what is shown is not of this moment.
    """
    progress = job.progress
    table = InertTable.grid(padding=(0, 2))
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
    if progress.num_finished:  # an empty bar is nothing where there are no colours
        table.add_row("trials", bar)
    count = f"{progress.num_finished} of {job.num_trials}: {trial_counts(job)}"
    table.add_row("" if progress.num_finished else "trials", count)
    if progress.max_steps:
        table.add_row("steps", steps_words(job, steps_per_second))
    if len(progress.phases) > 1:
        table.add_row("phases", ", ".join(f"{p} {n.num_finished}/{n.num_trials}" for p, n in progress.phases.items()))
    table.add_row(f"best {job.objectives[0].metric}", described(progress.best) if progress.best else "none yet")
    if job.specification.baselines:
        whose = "baseline's" if len(job.specification.baselines) == 1 else "baselines'"
        table.add_row(f"{whose} best", described(progress.baseline_best) if progress.baseline_best else "none yet")
    if (limit := job.specification.budget.device_hours) is not None:
        table.add_row("budget", device_hours(progress.device_hours, limit))
    elif progress.device_hours:
        table.add_row("spent", device_time(progress.device_hours))
    if cost := cost_words(progress.cost, job.currency, job.specification.budget.cost):
        table.add_row("cost", cost)
    if not job.state.is_final:
        left = "unknown yet" if progress.seconds_left is None else time_left(progress.seconds_left)
        table.add_row("time left", left)
    elif progress.seconds_elapsed is not None:
        table.add_row("took", duration(progress.seconds_elapsed))
    if job.failure:
        table.add_row("failure", _lines(job.failure, style="red"))
    if job.cut_off:
        table.add_row("cut off", _lines(job.cut_off))
    if trouble is not None:
        table.add_row("trouble", Text(trouble, style="yellow"))
    return table


def jobs_table(jobs: Sequence[JobRead], *, width: int) -> Table:
    """A row for each job; where `width` columns do not hold all, some are left out, but for the id and the state.

    Names and reasons for waiting share what the other columns leave; no other column is ever cut.
    """
    wide = width >= WIDE_COLUMNS
    headings = ["id", "name", "state", "trials", "best", "baseline"]
    if wide:
        headings += ["created (UTC)", *(["waiting"] if any(job.waiting for job in jobs) else [])]
    rows = [
        (
            job.id,
            one_line(job.name),
            Text(state_words(job), style=_STYLES.get(job.state, "")),
            f"{job.progress.num_finished}/{job.num_trials}",
            _marked(job.progress.best),
            f"{_marked(job.progress.baseline_best)}{_whose(job)}",
            f"{job.created_at:%Y-%m-%d %H:%M:%S}",
            job.waiting.reason if job.waiting else "",
        )[: len(headings)]
        for job in jobs
    ]
    needed = {heading: columns_of(heading, *cells) for heading, *cells in zip(headings, *rows, strict=True)}
    shown = fitting(
        {
            **needed,
            "name": min(needed["name"], FEWEST_OF_NAME),
            "waiting": min(needed.get("waiting", 0), FEWEST_OF_NAME),
        },
        width=width,
        spared=("waiting", "created (UTC)", "baseline", "best", "trials", "name"),
    )
    needed = {heading: columns for heading, columns in needed.items() if heading in shown}
    left = width - sum(columns for heading, columns in needed.items() if heading not in ("name", "waiting"))
    name = max(FEWEST_OF_NAME, left - min(needed.get("waiting", 0), left // 2))
    rooms = {"name": name, "waiting": max(len("waiting"), left - min(name, needed.get("name", 0)))}
    table = InertTable(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, header_style="bold")
    for heading in needed:
        justify: JustifyMethod = "right" if heading in ("trials", "best", "baseline") else "left"
        table.add_column(heading, no_wrap=True, overflow="ellipsis", justify=justify, max_width=rooms.get(heading))
    bests = [best for job in jobs for best in (job.progress.best, job.progress.baseline_best) if best is not None]
    if seeds := sorted({best.num_new_seeds for best in bests if best.num_new_seeds}):
        table.caption = f"* mean of {joined(seeds, 'or')} new seeds; the others: one seed"
        table.caption_justify = "left"
    for row in rows:
        table.add_row(*(cell for heading, cell in zip(headings, row, strict=True) if heading in needed))
    return table


def columns_of(*cells: Text | str) -> int:
    """The columns of a terminal that the widest of these cells takes, with the gap to the next one."""
    return max(cell_len(str(cell)) for cell in cells) + COLUMN_GAP


def fitting(needed: Mapping[str, int], *, width: int, spared: Sequence[str]) -> list[str]:
    """The headings of the columns of a table that `width` columns of a terminal hold.

    Args:
        needed: columns of the terminal by heading.
        spared: those that are left out until the others fit, the first first.
    """
    kept = dict(needed)
    for heading in spared:
        if sum(kept.values()) <= width:
            break
        kept.pop(heading, None)
    return list(kept)


def trial_counts(job: JobRead) -> str:
    """The trials by state, without the states that none is in; those that wait to go on are paused."""
    by_state, num_paused = job.progress.trials, job.progress.num_paused
    ended = (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED)
    counts = [
        (by_state.get(TrialState.RUNNING, 0), "running"),
        (num_paused, "paused"),
        *((by_state.get(state, 0), state.value) for state in ended),
        (by_state.get(TrialState.QUEUED, 0) - num_paused, "queued"),
    ]
    return ", ".join(f"{count} {state}" for count, state in counts if count) or "none started"


def state_words(job: JobRead) -> str:
    """The job's state, and where a running one is about to go."""
    about_to = {JobRequest.PAUSE: ", pausing", JobRequest.RESTART: ", restarting"}
    return f"{job.state}{about_to[job.requested] if job.requested else ''}"


def waiting_words(waiting: WaitingRead) -> str:
    """The reason why a job waits, and since when."""
    return f"{waiting.reason} (waiting since {utc_text(waiting.since)})"


def _whose(job: JobRead) -> str:
    """The optimizer of the best baseline, where a job has several."""
    name = job.progress.baseline_optimizer
    return f" {optimizer_title(name)}" if name is not None and len(job.specification.baselines) > 1 else ""


def _marked(best: BestTrial | None) -> str:
    """A best value, with a star if it is a mean over new seeds."""
    return "" if best is None else f"{number(best.value)}{'*' if best.num_new_seeds else ''}"
