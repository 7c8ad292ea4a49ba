"""The trials of a CSV file: our export's, an Optuna data frame's, W&B's or anybody's."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from search_spaces.nearest import did_you_mean
from service.domain import Phase
from service.errors import InvalidInput
from service.imports.found import MAX_SOURCE_LENGTH, Found, FoundTrial, LeftOut, Value
from trainers.config import is_usable

OPTIMIZER, PHASE, STATE, FORKED_FROM = "optimizer", "phase", "state", "forked_from"
"""Columns that say of a row which trial it is, in small letters: our export has all, Optuna and W&B the state."""
COMPLETED = ("completed", "complete", "finished")
"""The states of a trial that went to its end, in small letters: ours, Optuna's and W&B's."""


def trials_of_csv(path: Path, *, value_column: str, optimizer: str, of_parameters: Collection[str]) -> Found:
    """The rows of a CSV file that are results of an optimizer: completed, with a finite value, no confirmation and no
    fork.

    Where a file has no such column, its rows are all taken to be that.

    Args:
        of_parameters: columns of parameters. They say nothing else, whatever they are called.

    Raises:
        InvalidInput: there is no such file or column.
    """
    found = Found(path.name)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if rows.fieldnames is None:
                raise InvalidInput(str(path), "is empty: its first line must name the columns")
            if value_column not in rows.fieldnames:
                known = ", ".join(rows.fieldnames[:40])
                hint = did_you_mean(value_column, rows.fieldnames) or ": --value names the one with the objective"
                raise InvalidInput("--value", f"{path} has no column {value_column!r} (it has: {known}){hint}")
            telling = _telling(rows.fieldnames, {value_column, *of_parameters})
            _add(found, rows, value_column=value_column, optimizer=optimizer, telling=telling)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(str(path), getattr(error, "strerror", None) or str(error)) from error
    return found


def _telling(columns: Sequence[str], others: Collection[str]) -> dict[str, str]:
    """The columns that say which trial a row is, by what they say."""
    named = {column.strip().lower(): column for column in reversed(columns) if column not in others}
    return {what: named[what] for what in (OPTIMIZER, PHASE, STATE, FORKED_FROM) if what in named}


def _add(
    found: Found,
    rows: Iterable[Mapping[str, str | None]],
    *,
    value_column: str,
    optimizer: str,
    telling: Mapping[str, str],
) -> None:
    """Sorts the rows into those that are taken and those that are left out."""
    for number, row in enumerate(rows):
        why = _why_left_out({what: (row[name] or "").strip().lower() for what, name in telling.items()}, optimizer)
        value = _number(row[value_column])
        if why is not None:
            found.leave_out(why)
        elif value is None:
            found.leave_out(LeftOut.NO_VALUE)
        else:
            values = {name: _read(text) for name, text in row.items() if name is not None}
            found.trials.append(FoundTrial(found.name[:MAX_SOURCE_LENGTH], number, values, value))


def _why_left_out(told: Mapping[str, str], optimizer: str) -> LeftOut | None:
    """The first reason there is; None: none.

    A baseline's trials are a search of their optimizer, too: those of the job's own are as good as a search's.
    """
    if told.get(OPTIMIZER, optimizer.lower()) != optimizer.lower():
        return LeftOut.OTHER_OPTIMIZER
    if told.get(PHASE) == Phase.CONFIRMATION:
        return LeftOut.CONFIRMATION
    if told.get(FORKED_FROM):
        return LeftOut.FORKED
    if told.get(STATE, COMPLETED[0]) not in COMPLETED:
        return LeftOut.NOT_COMPLETED
    return None


def _read(text: object) -> Value:
    """A cell of a CSV file: a truth value or a number where JSON would read one that floats can hold, else the text."""
    if not isinstance(text, str) or not text.strip():
        return None
    lowered = text.strip().lower()
    try:
        value = json.loads(lowered)
        if isinstance(value, int):
            float(value)
    except (ValueError, OverflowError, RecursionError):
        return text
    return value if isinstance(value, int | float | bool) else text


def _number(text: object) -> float | None:
    value = _read(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_usable(value):
        return None
    return float(value)
