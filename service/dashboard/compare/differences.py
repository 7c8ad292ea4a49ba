"""Nested settings of several jobs as rows of a table, and which of the rows differ. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.dashboard.written_json import LONGEST
from service.evidence.in_words.wording import DASH

NAMING = ("name", "metric", "search_space", "job_id")
"""Fields by which the entries of a list are told apart, the first that all of them have."""

MOST_CHARACTERS = LONGEST // 2
"""Characters of a table: its page has two of them, and is to be as short as that of a job."""
MARKUP = 20
"""Characters of HTML around a cell's text, about."""
LONGEST_TEXT = 500
"""Characters of a value or a name that its cell shows, by judgement: some lines."""
BEFORE = 100
"""Characters of a long value that are shown before those in which the jobs differ."""


@dataclass(frozen=True, slots=True)
class Row:
    """A setting with its value in each job."""

    name: str
    """Its path, as `training.num_steps`."""
    values: list[str]
    """Values as people read them; a dash where a job has no such setting."""
    differs: bool
    notes: Sequence[str] = ()
    """A few words beside each value, empty where there are none; of settings that nobody remarks on, no note."""


@dataclass(frozen=True, slots=True)
class ComparedConfig:
    """The config of a job's best trial, and what its search could not vary in it."""

    settings: Mapping[str, Any]
    fixed: Collection[str] = ()
    """The settings that its search space fixes."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values that its optimizer takes for arguments which a config does not have."""

    def value(self, row: Row, place: int) -> str:
        """The value in a row of settings at this config's place, or the default that it leaves there."""
        is_left = row.name not in self.settings and row.name in self.defaults
        return shown(self.defaults[row.name]) if is_left else row.values[place]

    def note(self, name: str) -> str:
        """The reason why a setting is what it is, if it was not searched; else empty."""
        if name in self.fixed:
            return "fixed"
        return "fixed, the default" if name not in self.settings and name in self.defaults else ""


def config_rows(configs: Sequence[ComparedConfig]) -> list[Row]:
    """The rows of several configs: one that leaves an argument at its default has that value, not none, and what was
    not searched is marked. From a job that has no config yet, or none at all, those of the others do not differ."""
    known = [place for place, each in enumerate(configs) if each.settings]
    compared = known if len(known) > 1 else range(len(configs))
    rows = []
    for row in rows_of([each.settings for each in configs]):
        values = [each.value(row, place) for place, each in enumerate(configs)]
        notes = [each.note(row.name) for each in configs]
        differs = len({values[place] for place in compared}) > 1
        rows.append(Row(row.name, values, differs=differs, notes=notes))
    return rows


def rows_of(settings: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row for each setting that one of them has, in the order in which they come."""
    flat = [dict(_leaves(each)) for each in settings]
    names = list(dict.fromkeys(name for each in flat for name in each))
    rows = []
    for name in names:
        values = [shown(each[name]) if name in each else DASH for each in flat]
        rows.append(Row(name, values, differs=len(set(values)) > 1))
    return rows


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """Rows of settings, as many as a page has room for, with long texts cut short."""

    rows: list[Row]
    num_rows: int
    """The rows that there are, shown or not."""
    num_differing: int
    num_left_out: int
    """The rows that are to be shown, and for which there is no room."""
    is_cut: bool
    """True if texts of its rows are cut short."""


def table_of(rows: Sequence[Row], *, shows_all: bool) -> SettingsTable:
    """The table of these rows.

    Args:
        shows_all: False: only of those that differ.
    """
    differing = [row for row in rows if row.differs]
    wanted = rows if shows_all else differing
    found, left, is_cut = [], MOST_CHARACTERS, False
    for row in wanted:
        name, values = _cut([row.name]), _cut(row.values)
        left -= sum(MARKUP + len(text) for text in (*name, *values))
        if left < 0:
            break
        is_cut = is_cut or (*name, *values) != (row.name, *row.values)
        found.append(replace(row, name=name[0], values=values))
    return SettingsTable(found, len(rows), len(differing), num_left_out=len(wanted) - len(found), is_cut=is_cut)


def _cut(texts: Sequence[str]) -> list[str]:
    """Texts that stand side by side, of long ones a part: the beginning, or where they begin to differ."""
    if all(len(text) <= LONGEST_TEXT for text in texts):
        return list(texts)
    least, most = min(texts), max(texts)  # of which all others begin with what these two have alike
    pairs = enumerate(zip(least, most, strict=False))
    alike = next((place for place, (one, other) in pairs if one != other), len(least))
    first = alike - BEFORE if len(set(texts)) > 1 and alike > LONGEST_TEXT - BEFORE else 0
    last = first + LONGEST_TEXT
    return [
        f"{'… ' if first else ''}{text[first:last]}{' …' if len(text) > last else ''} ({len(text):,} characters)"
        if len(text) > LONGEST_TEXT
        else text
        for text in texts
    ]


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
    for naming in NAMING:
        names = [entry.get(naming) for entry in entries]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return [str(name) for name in names]
    return None
