"""Trials as the command line shows them: a table, and the curve of each as a line of blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from service.api.schemas.trials import TrialRead
from service.cli.terminal import COLUMN_GAP, InertTable, columns_of, fitting
from service.domain import TrialState
from service.evidence.in_words.wording import duration, number

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_COLUMNS = 24
"""Blocks of a curve, one to a column, by judgement: enough to see where it bends."""
NARROW_COLUMNS = 100
"""Columns of a terminal below which curves leave parameters no room that says anything; by judgement."""
PARAMETERS_COLUMNS = 20
"""Fewer say nothing."""

_STYLES = {
    TrialState.RUNNING: "cyan",
    TrialState.FAILED: "red",
    TrialState.PRUNED: "dim",
    TrialState.CANCELLED: "yellow",
}


def trials_table(
    trials: Sequence[TrialRead], *, metric: str, width: int, curves: Mapping[int, Sequence[float]] | None = None
) -> Table:
    """A row for each trial; where `width` columns do not hold the parameters, they are cut, or columns are left out.

    Args:
        metric: that of `value`.
        curves: the values of trials by number so far; None: no column for them.
    """
    columns: dict[str, list[str | Text]] = {
        "trial": [str(trial.number) for trial in trials],
        "phase": [trial.phase.value for trial in trials],
        "state": [Text(trial_state(trial), style=_STYLES.get(trial.state, "")) for trial in trials],
        "steps": [f"{trial.step}/{trial.num_steps}" for trial in trials],
        "time": [duration(trial.seconds) if trial.seconds else "" for trial in trials],
        metric: ["" if trial.value is None else number(trial.value) for trial in trials],
    }
    if curves is not None:
        columns["curve"] = [sparkline(curves.get(trial.number, ())) for trial in trials]
    needed = {heading: columns_of(heading, *cells) for heading, cells in columns.items()}
    if curves is not None:
        needed["curve"] = CURVE_COLUMNS + COLUMN_GAP
    left = width - sum(needed.values())
    if (curves is None or width >= NARROW_COLUMNS) and left >= PARAMETERS_COLUMNS:
        columns["parameters"] = [parameters_words(trial) for trial in trials]
        needed["parameters"] = left
    shown = fitting(needed, width=width, spared=("time", "phase", "steps"))
    table = InertTable(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, header_style="bold")
    for heading in shown:
        table.add_column(
            heading,
            no_wrap=heading != "parameters" or width < NARROW_COLUMNS,
            overflow="ellipsis",
            justify="right" if heading in ("trial", "steps", "time", metric) else "left",
            min_width=CURVE_COLUMNS if heading == "curve" else None,
            max_width=needed[heading] if heading == "parameters" else None,
        )
    for cells in zip(*(columns[heading] for heading in shown), strict=True):
        table.add_row(*cells)
    return table


def trial_state(trial: TrialRead) -> str:
    """The state, with what is asked of the trial, or why it failed."""
    return f"{trial.state}{', stopping' if trial.requested else ''}{f' ({trial.reason})' if trial.reason else ''}"


def parameters_words(trial: TrialRead) -> str:
    """`lr=0.01 betas[0]=0.9`, numbers rounded."""
    return " ".join(
        f"{name}={number(value) if isinstance(value, float) else value}" for name, value in trial.parameters.items()
    )


def sparkline(values: Sequence[float], *, columns: int = CURVE_COLUMNS) -> str:
    """A curve as one block for each value, high for high ones; values that are not finite leave a gap.

    Args:
        columns: more values than that are thinned, evenly, with the last one kept.
    """
    if len(values) > columns:
        last = len(values) - 1
        values = [values[round(index * last / (columns - 1))] for index in range(columns)]
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return " " * len(values)
    low, high = min(finite), max(finite)
    height = (high - low) or 1.0
    return "".join(
        BLOCKS[round((value - low) / height * (len(BLOCKS) - 1))] if math.isfinite(value) else " " for value in values
    )
