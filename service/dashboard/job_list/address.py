"""Addresses of the list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

PLACES = ("after", "before")
"""Parameters of the query that say where a page begins, or ends."""
OWN_FIELDS = ("text", "archived", "tag", "model", "owner", "order_by")
"""Parameters of the query that the search form has fields for."""


@dataclass(frozen=True, slots=True)
class ListAddress:
    """The address of a page of the list of jobs, and of others beside it with the same filters."""

    asked: Sequence[tuple[str, str]]
    """Names and values of the query."""

    @property
    def others(self) -> list[tuple[str, str]]:
        """The filters that the search form keeps as they are: all that it has no field for."""
        tags = [pair for pair in self.asked if pair[0] == "tag"][1:]
        return self._without(*PLACES, *OWN_FIELDS) + tags

    def sent(self, name: str) -> str:
        """The value of a field of the search form, the first of several; empty: none was sent."""
        return next((value for asked, value in self.asked if asked == name), "")

    @property
    def is_narrowed(self) -> bool:
        """True if jobs may be left out by what was asked."""
        filters = self._without("order_by", *PLACES)
        return any(value for name, value in filters if (name, value) != ("archived", "false"))

    def with_state(self, state: str | None) -> str:
        """The first page with jobs in a state alone; None: in any."""
        return self._to([*self._without("state", *PLACES), *([] if state is None else [("state", state)])])

    def first(self) -> str:
        """The first page."""
        return self._to(self._without(*PLACES))

    def after(self, token: str) -> str:
        """The page that begins behind a place."""
        return self._to([*self._without(*PLACES), ("after", token)])

    def before(self, token: str) -> str:
        """The page that ends in front of a place."""
        return self._to([*self._without(*PLACES), ("before", token)])

    def _without(self, *names: str) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.asked if name not in names]

    def _to(self, pairs: Sequence[tuple[str, str]]) -> str:
        return f"/?{urlencode(pairs)}" if pairs else "/"
