"""Text that is there to be seen: of one line where it names something, and more than characters that show nothing."""

from __future__ import annotations

import unicodedata

from pydantic import AfterValidator

_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
"""Controls, formats such as the zero-width space and the joiner, spaces, and separators of lines and paragraphs."""
_LINE_ENDING_CATEGORIES = frozenset({"Cc", "Zl", "Zp"})
_DIRECTION_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Unseen characters that show the text beside them in another order (Unicode Standard Annex 9, section 2)."""
_UNSEEN_CHARACTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    chr(code)
    for first, last in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
    for code in range(first, last + 1)
)
"""Unseen characters of other categories: fillers, the blank of Braille, and variation selectors."""
_SHOWN = 40
"""Characters of it that a refusal shows."""


def is_unseen(text: str) -> bool:
    """True if no character of a text shows anything, as of an empty one."""
    return all(
        unicodedata.category(character) in _UNSEEN_CATEGORIES or character in _UNSEEN_CHARACTERS for character in text
    )


def is_one_line(text: str) -> bool:
    """True if a text has no control characters, nor any other that begins a line or shows text in another order."""
    return not any(
        unicodedata.category(character) in _LINE_ENDING_CATEGORIES or character in _DIRECTION_MARKS
        for character in text
    )


def _checked(text: str) -> str:
    if text and is_unseen(text):
        raise ValueError(f"must have a character that can be seen, got {text[:_SHOWN]!a}")
    return text


def _checked_line(text: str) -> str:
    if not is_one_line(text):
        raise ValueError(f"must be one line without control characters or marks of direction, got {text[:_SHOWN]!a}")
    return text


LINE = AfterValidator(_checked_line)
"""Refuses text of several lines, control characters, and marks of direction."""
SEEN = AfterValidator(_checked)
"""Refuses text that is not empty and shows nothing."""
