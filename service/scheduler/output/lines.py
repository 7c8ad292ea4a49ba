"""Lines that are safe to show anywhere, made from the bytes that a rank printed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.inert import one_line

MAX_LINE_LENGTH = 4096
"""The most characters of a line; a longer one is cut, with the number of missing characters."""
HIDDEN = "***"

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, movements
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # strings for the terminal: titles, links
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
"""Escape sequences of ECMA-48."""


def lines_of(content: bytes, *, secrets: Sequence[str] = ()) -> list[str]:
    """The lines of some output. For a line that was overwritten, as by a progress bar, only the last text is kept.
    Sequences that colour a terminal are left out, and `service.inert` makes the rest harmless.

    Args:
        secrets: texts to hide.
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
