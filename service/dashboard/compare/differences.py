"""Nested settings of several jobs as rows of a table, and which of the rows differ. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.evidence.in_words.wording import DASH

NAMING = ("name", "metric", "search_space", "job_id")
"""Fields by which the entries of a list are told apart, the first that all of them have."""


@dataclass(frozen=True, slots=True)
class Row:
    """A setting with its value in each job."""

    name: str
    """Its path, as `training.num_steps`."""
    values: list[str]
    """Values as people read them; a dash where a job has no such setting."""
    differs: bool


def rows_of(settings: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row for each setting that one of them has, in the order in which they come."""
    flat = [dict(_leaves(each)) for each in settings]
    names = list(dict.fromkeys(name for each in flat for name in each))
    rows = []
    for name in names:
        values = [shown(each[name]) if name in each else DASH for each in flat]
        rows.append(Row(name, values, differs=len(set(values)) > 1))
    return rows


def shown(value: object) -> str:
    """A setting's value for people: exactly, as two that differ must not look alike."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if value in ([], {}):
        return "none"
    return json.dumps(value, ensure_ascii=False)


def _leaves(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        where = f"{path}.{name}" if path else str(name)
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, where)
        elif isinstance(inner, list) and inner and all(isinstance(entry, dict) for entry in inner):
            names = _names(inner)
            if names is not None and all(len(entry) == 1 for entry in inner):
                yield where, names
            else:
                places = names or [str(place) for place in range(1, len(inner) + 1)]
                yield from _leaves(dict(zip(places, inner, strict=True)), where)
        else:
            yield where, inner


def _names(entries: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """The field that names the entries of a list; None: nothing does."""
    for field in NAMING:
        names = [entry.get(field) for entry in entries]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return [str(name) for name in names]
    return None
