"""The one error of this package, and how it prints values that came from anywhere."""

from __future__ import annotations

import reprlib

_short = reprlib.Repr()
_short.maxstring = 60
_short.maxother = 60
_short.maxlong = 40


class SpaceError(ValueError):
    """A search space, or values for one, are invalid; `field` is the path of the culprit, e.g. `parameters[2].low`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message

    def __reduce__(self) -> tuple[type[SpaceError], tuple[str, str]]:
        return type(self), (self.field, self.message)


def show(value: object) -> str:
    """A short `repr`, whatever the size, depth or kind of the value."""
    try:
        text = _short.repr(value)
    except ValueError:  # an integer beyond Python's limit of digits
        return f"a huge {type(value).__name__}"
    return text.encode("ascii", "backslashreplace").decode()


def require(condition: bool, field: str, rule: str, value: object) -> None:
    """Raises `SpaceError` for `field`, with the rule and the value, unless the condition holds."""
    if not condition:
        raise SpaceError(field, f"{rule}, got {show(value)}")
