"""Names in the order of their likeness to one that is none of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LIKE = 0.6
"""Likeness from which a name was probably meant."""


def nearest_first(name: str, known: Iterable[str]) -> list[str]:
    """The known names, the most like `name` first, and equally like ones by the alphabet."""
    return sorted(known, key=lambda other: (-likeness(name, other), other))


def likeness(name: str, other: str) -> float:
    """From 0 to 1, whatever the case of letters."""
    return difflib.SequenceMatcher(None, name.casefold(), other.casefold()).ratio()
