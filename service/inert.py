"""Text of others as a terminal may show it: nothing in it moves the cursor, sets a title, erases or turns lines round.

All that the command line prints goes through here, and so do comments of Python that is printed for pasting.
"""

from __future__ import annotations


def inert(text: str) -> str:
    """The text with an escape (`\\x1b`, `\\u202e`) in place of each character that is not seen as itself: control
    characters, marks of direction, separators of lines. Line feeds stay."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """`inert`, and line feeds are escapes, too."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
