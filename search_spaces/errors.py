"""The error of this package, alone or several at once: how it is raised, and how it prints values from anywhere."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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


class SpaceErrors(SpaceError):
    """Several things are wrong with a space; `field` and `message` are those of the first."""

    def __init__(self, found: Sequence[SpaceError]) -> None:
        super().__init__(found[0].field, found[0].message)
        self.found = tuple(found)

    def __str__(self) -> str:
        return "; ".join(map(str, self.found))

    def __reduce__(self) -> tuple[type[SpaceErrors], tuple[tuple[SpaceError, ...]]]:  # type: ignore[override]  # its own
        return type(self), (self.found,)


def all_of(error: SpaceError) -> Sequence[SpaceError]:
    """Each fault that an error tells."""
    return error.found if isinstance(error, SpaceErrors) else (error,)


class Breaches:
    """Collects what is wrong with a space, so that all of it is told at once."""

    def __init__(self) -> None:
        self._found: list[SpaceError] = []

    def __len__(self) -> int:
        return len(self._found)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes what the block finds wrong, and goes on behind it."""
        try:
            yield
        except SpaceError as error:
            self.note(error)

    def note(self, error: SpaceError) -> None:
        """Notes each fault that an error tells."""
        self._found += all_of(error)

    def tell(self) -> None:
        """Raises SpaceError if anything was noted: it alone, or `SpaceErrors`."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise SpaceErrors(self._found)


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
