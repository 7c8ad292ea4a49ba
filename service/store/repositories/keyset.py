"""Pages of a list in any order: the next one begins after a row's place, whatever has come or gone meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, SQLColumnExpression, and_, false, literal, or_
from sqlalchemy.types import TypeEngine

Sortable: TypeAlias = str | int | float | datetime


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a row in an order."""

    value: Sortable | None
    """The value that it is ordered by; None: it has none, and so comes last whatever the direction."""
    tie: str | int
    """Tells it from others with the same value."""


@dataclass(frozen=True, slots=True)
class Keyset:
    """An order of rows in which each has a place of its own."""

    column: SQLColumnExpression[Any]
    tie: SQLColumnExpression[Any]
    """Unique and never null; it goes in the direction of `column`."""
    descending: bool
    nullable: bool = False
    """True if `column` may be null."""
    value_type: TypeEngine[Any] | None = None
    """The type of `column`, where a value of Python does not tell it, as true and false of JSON."""

    @property
    def order_by(self) -> list[SQLColumnExpression[Any]]:
        """Columns that statements order by."""
        column, tie = (self.column.desc(), self.tie.desc()) if self.descending else (self.column, self.tie)
        # Where nothing is null, an index can give the order.
        return [column.nulls_last() if self.nullable else column, tie]

    @property
    def order_by_backwards(self) -> list[SQLColumnExpression[Any]]:
        """Columns that statements order by which look for the rows before a place, the nearest first."""
        column, tie = (self.column.asc(), self.tie.asc()) if self.descending else (self.column.desc(), self.tie.desc())
        return [column.nulls_first() if self.nullable else column, tie]

    def before(self, place: Place) -> ColumnElement[bool]:
        """True of the rows in front of a place."""
        tie = self.tie > place.tie if self.descending else self.tie < place.tie
        if place.value is None:
            return or_(self.column.is_not(None), and_(self.column.is_(None), tie)) if self.nullable else false()
        value = place.value if self.value_type is None else literal(place.value, self.value_type)
        column = self.column > value if self.descending else self.column < value
        return or_(column, and_(self.column == value, tie))

    def after(self, place: Place) -> ColumnElement[bool]:
        """True of the rows behind a place."""
        tie = self.tie < place.tie if self.descending else self.tie > place.tie
        if place.value is None:
            return and_(self.column.is_(None), tie) if self.nullable else false()
        value = place.value if self.value_type is None else literal(place.value, self.value_type)
        column = self.column < value if self.descending else self.column > value
        behind = or_(column, and_(self.column == value, tie))
        return or_(behind, self.column.is_(None)) if self.nullable else behind
