"""The names that were probably meant by one that there is not: what every message about an unknown name ends with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MIN_PART = 4
"""Characters of a name that can stand for a longer one."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """`: did you mean 'NAME'?` with the name that was probably meant; "": there is none."""
    near = near_name(name, known)
    return "" if near is None else f": did you mean {near!r}?"


def near_name(name: object, known: Iterable[str]) -> str | None:
    """The known name that is most like one, whatever its case, or else the only one that it is a part of; None: there
    is none, or what was given is no text."""
    if not isinstance(name, str):
        return None
    folded: dict[str, str] = {}
    for each in known:
        folded.setdefault(each.casefold(), each)
    given = name.casefold()
    near = difflib.get_close_matches(given, folded, n=1)
    wider = [each for each in folded if len(given) >= MIN_PART and given in each]
    near = near or (wider if len(wider) == 1 else [])
    return folded[near[0]] if near else None


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """The known names, the most like `name` first, and equally like ones by the alphabet."""
    return sorted(known, key=lambda other: (-_likeness(name, other), other))


def _likeness(name: str, other: str) -> float:
    return difflib.SequenceMatcher(None, name.casefold(), other.casefold()).ratio()
