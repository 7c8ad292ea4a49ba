"""Everything that is wrong with a request, told at once: checks that know nothing of each other are all made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from service.errors import CodeForbidden, InvalidInput

MAX_LOOKED_AT = 200
"""Faults of one request that are looked at: a body may have as many wrong names as it has room for, and a value that is
none of several kinds has one for each of them."""


class InvalidInputs(InvalidInput):
    """Several fields are impossible, of which the first `MAX_LOOKED_AT` count; `field` and `message` are those of the
    first."""

    def __init__(self, found: Sequence[InvalidInput]) -> None:
        super().__init__(found[0].field, found[0].message)
        self.found = tuple(found[:MAX_LOOKED_AT])

    def __str__(self) -> str:
        return "; ".join(self.faults)

    @property
    def faults(self) -> Sequence[str]:
        return [str(one) for one in self.found]


def one_of(found: Sequence[InvalidInput]) -> InvalidInput:
    """The error that names all of these fields."""
    return found[0] if len(found) == 1 else InvalidInputs(found)


def all_of(error: InvalidInput) -> Sequence[InvalidInput]:
    """Each field that an error names."""
    return error.found if isinstance(error, InvalidInputs) else (error,)


class Faults:
    """Collects impossible fields."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], InvalidInput] = {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes the fields that the block says are impossible, and goes on behind it. That a caller may not name code
        is no fault of a field: it is raised."""
        try:
            yield
        except CodeForbidden:
            raise
        except InvalidInput as error:
            self.note(error)

    def note(self, error: InvalidInput) -> None:
        """Notes the fields that an error names; the same one twice counts once."""
        for one in all_of(error):
            self._found.setdefault((one.field, one.message), one)

    def tell(self) -> None:
        """Raises InvalidInput if any field was noted: it alone, or `InvalidInputs`."""
        found = list(self._found.values())
        if found:
            raise one_of(found)
