"""Lines that can be shown anywhere, made of the bytes that a rank printed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.inert import one_line

MAX_LINE_LENGTH = 4096
"""Characters of a line; of a longer one the beginning is kept, and how many are missing."""
HIDDEN = "***"

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, movements
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # strings for the terminal: titles, links
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
"""Escape sequences of ECMA-48."""


def lines_of(content: bytes, *, secrets: Sequence[str] = ()) -> list[str]:
    """The lines of some output. A line that was written over, as a progress bar does, is what stood there last.
    Sequences that colour a terminal are left out, and `service.inert` makes the rest harmless.

    Args:
        secrets: texts of which none is shown.
    """
    text = content.decode(errors="replace").replace("\r\n", "\n")
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    text = _ESCAPES.sub("", text)
    found = [_one_line(line) for line in text.removesuffix("\n").split("\n")]
    return [line if len(line) <= MAX_LINE_LENGTH else _cut(line) for line in found]


def _one_line(line: str) -> str:
    shown = next((part for part in reversed(line.split("\r")) if part), "")
    return one_line(shown.expandtabs())


def _cut(line: str) -> str:
    return f"{line[:MAX_LINE_LENGTH]}... ({len(line) - MAX_LINE_LENGTH} more characters)"
