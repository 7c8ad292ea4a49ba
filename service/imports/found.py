"""The trials that other programs kept, read from where they are, and fitted to a search space."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from search_spaces import SearchSpace, SpaceError
from search_spaces.nearest import did_you_mean
from service.domain import Direction
from service.errors import InvalidInput
from service.specification.imported import MAX_IMPORTED, ImportedTrial

PREFIXES = ("", "parameter.", "params_", "config.", "config/")
"""Before the name of a parameter in a column: none, that of our exports, of Optuna's data frames, of W&B's tables."""
MAX_SOURCE_LENGTH = 200

Value: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class FoundTrial:
    """A trial of another study that has a value."""

    source: str
    number: int
    values: Mapping[str, Value]
    """By the names that it had there."""
    value: float


@dataclass(frozen=True, slots=True)
class Imported:
    """What becomes of the trials that were found."""

    pinned: Sequence[dict[str, Any]]
    """The best, to be trained first; what they do not say takes its default."""
    trials: Sequence[ImportedTrial]
    """Those that say all of the space's parameters, the best first."""
    num_found: int
    num_unfit: int
    """Of those found: they say nothing of the space, or values that it does not have."""


def trials_of_csv(path: Path, *, value_column: str) -> Iterator[FoundTrial]:
    """The rows of a CSV file that have a finite value: our export's, Optuna's data frame's, W&B's or anybody's.

    Raises:
        InvalidInput: there is no such file or column.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            if rows.fieldnames is None:
                raise InvalidInput(str(path), "is empty")
            if value_column not in rows.fieldnames:
                known = ", ".join(rows.fieldnames[:40])
                hint = did_you_mean(value_column, rows.fieldnames) or ": --value names the one with the objective"
                raise InvalidInput("--value", f"{path} has no column {value_column!r} (it has: {known}){hint}")
            for number, row in enumerate(rows):
                value = _number(row[value_column])
                if value is not None:
                    values = {name: _read(text) for name, text in row.items() if name is not None}
                    yield FoundTrial(path.name[:MAX_SOURCE_LENGTH], number, values, value)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(str(path), getattr(error, "strerror", None) or str(error)) from error


def fitted(
    found: Iterator[FoundTrial],
    space: SearchSpace,
    direction: Direction,
    *,
    num_pinned: int,
    renamed: Mapping[str, str],
) -> Imported:
    """The trials as a job takes them: the best are pinned, and those that say all are told to its sampler.

    Args:
        renamed: name there by parameter of the space.
    """
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    pinned: list[dict[str, Any]] = []
    trials: list[ImportedTrial] = []
    num_found, num_unfit = 0, 0
    for trial in sorted(found, key=lambda trial: sign * trial.value):
        num_found += 1
        given = _of_space(trial, space, renamed)
        whole = _whole(given, space)
        if whole is None:
            num_unfit += 1
            continue
        if len(pinned) < num_pinned and given not in pinned:
            pinned.append(given)
        if whole == given and len(trials) < MAX_IMPORTED:
            trials.append(ImportedTrial(source=trial.source, number=trial.number, parameters=whole, value=trial.value))
    return Imported(pinned, trials, num_found, num_unfit)


def _of_space(trial: FoundTrial, space: SearchSpace, renamed: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for parameter in space.parameters:
        names = [f"{prefix}{renamed.get(parameter.name, parameter.name)}" for prefix in PREFIXES]
        found = [trial.values[name] for name in names if trial.values.get(name) is not None]
        if found:
            given[parameter.name] = found[0]
    return given


def _whole(given: dict[str, Any], space: SearchSpace) -> dict[str, Any] | None:
    """The values with the defaults of those that are missing; None: the space has no such values."""
    if not given:
        return None
    try:
        return dict(space.defaults(given))
    except SpaceError:
        return None


def _read(text: object) -> Value:
    """A cell of a CSV file as JSON has it, where it is a number or a truth value, else as text."""
    if not isinstance(text, str) or not text.strip():
        return None
    lowered = text.strip().lower()
    try:
        value = json.loads(lowered)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool) else text


def _number(text: object) -> float | None:
    value = _read(text)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
