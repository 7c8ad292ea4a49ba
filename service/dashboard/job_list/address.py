"""Addresses of the list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode


@dataclass(frozen=True, slots=True)
class ListAddress:
    """The address of a page of the list of jobs, and of others beside it with the same filters."""

    asked: Sequence[tuple[str, str]]
    """Names and values of the query."""

    @property
    def others(self) -> list[tuple[str, str]]:
        """What the search form keeps as it is: all that it has no field for."""
        tags = [pair for pair in self.asked if pair[0] == "tag"][1:]
        return self._without("before", "text", "archived", "tag") + tags

    @property
    def first_tag(self) -> str:
        """Of those that are asked for, the one in the search form."""
        return next((value for name, value in self.asked if name == "tag"), "")

    @property
    def is_narrowed(self) -> bool:
        """True if jobs may be left out by what was asked."""
        return any(value for pair in self.asked if pair != ("archived", "false") for value in pair[1:])

    def with_state(self, state: str | None) -> str:
        """The first page with jobs in a state alone; None: in any."""
        return self._to([*self._without("state", "before"), *([] if state is None else [("state", state)])])

    def before(self, job_id: str | None) -> str:
        """The page that begins behind a job; None: the first one."""
        return self._to([*self._without("before"), *([] if job_id is None else [("before", job_id)])])

    def _without(self, *names: str) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.asked if name not in names]

    def _to(self, pairs: Sequence[tuple[str, str]]) -> str:
        return f"/?{urlencode(pairs)}" if pairs else "/"
