"""Lists of a job's trials: found by what is asked for, in an order, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from sqlalchemy import ColumnElement, and_, case, exists, func, literal_column, or_, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session, defer

from service.domain import Phase, TrialState
from service.store.models import Trial
from service.store.repositories.keyset import Keyset, Place

PARAMETER_PREFIX = "parameter."
"""Text before the name of a parameter where others stand beside it."""


class TrialKey(StrEnum):
    """The orders of trials, beside those by their parameters."""

    NUMBER = "number"
    VALUE = "value"
    STATE = "state"
    PHASE = "phase"
    STEP = "step"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class ParameterKey:
    """Trials are ordered by a parameter: numbers by their size, text by its letters."""

    name: str


@dataclass(frozen=True, slots=True)
class TrialSorting:
    """An order of trials. Those that have nothing to be ordered by come last, whatever the direction."""

    by: TrialKey | ParameterKey = TrialKey.NUMBER
    is_descending: bool = False

    def __str__(self) -> str:
        """The order as addresses have it: `number`, `-value`, `parameter.lr`."""
        name = self.by.value if isinstance(self.by, TrialKey) else f"{PARAMETER_PREFIX}{self.by.name}"
        return f"-{name}" if self.is_descending else name

    @property
    def value_types(self) -> tuple[type, ...]:
        """The types of the values that it goes by."""
        match self.by:
            case ParameterKey():
                return str, float, int, bool
            case TrialKey.NUMBER | TrialKey.STEP:
                return (int,)
            case TrialKey.VALUE | TrialKey.SECONDS:
                return (float,)
            case TrialKey.STATE:
                return (TrialState,)
            case TrialKey.PHASE:
                return (Phase,)
            case _:
                assert_never(self.by)


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Numbers from one to another, both included; None: there is no end."""

    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ParameterFilter:
    """A value that a parameter must have."""

    name: str
    wanted: NumberRange | str
    """Text: a choice, or `true`, `false` or `null`; it stands for a number, too, if it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialQuery:
    """A question about a job's trials; a field that is None, or empty, leaves them all."""

    states: Sequence[TrialState] = ()
    phase: Phase | None = None
    value: NumberRange | None = None
    """Bounds of the first objective."""
    parameters: Sequence[ParameterFilter] = ()


@dataclass(frozen=True, slots=True)
class TrialOfList:
    """A trial of a list. Its config is there only if it was asked for."""

    trial: Trial
    num_steps: int
    """Steps that its config says."""
    place: Place
    """The trial's place in the order of the list."""


@dataclass(frozen=True, slots=True)
class FoundNumbers:
    """Some of the trials that a list has."""

    numbers: list[int]
    total: int
    """Number of trials that the list has in all."""


BY_NUMBER = TrialSorting()


class TrialListRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def page(
        self,
        job_id: str,
        query: TrialQuery,
        *,
        order: TrialSorting = BY_NUMBER,
        after: Place | None = None,
        with_config: bool,
        limit: int,
    ) -> list[TrialOfList]:
        """Up to `limit` trials of a job, beginning behind a place in the order."""
        keyset = self._keyset(order)
        # What the database itself orders by: read from JSON by Python, a number could differ in its last bit.
        statement = select(Trial, Trial.config["num_steps"].as_integer(), keyset.column)
        if not with_config:
            statement = statement.options(defer(Trial.config, raiseload=True))
        statement = statement.where(*self._conditions(job_id, query))
        if after is not None:
            statement = statement.where(keyset.after(after))
        rows = self._session.execute(statement.order_by(*keyset.order_by).limit(limit))
        return [TrialOfList(trial, num_steps, Place(value, trial.number)) for trial, num_steps, value in rows]

    def numbers(self, job_id: str, query: TrialQuery, *, order: TrialSorting, offset: int, limit: int) -> FoundNumbers:
        """Up to `limit` of the trials that are found, without the first `offset` of the order. Where an index has all
        that is asked for, no trial is read."""
        conditions = self._conditions(job_id, query)
        # The count is read from an index, unless it takes the trials themselves: then they are read once for both.
        total: ColumnElement[int] = (
            func.count().over() if query.parameters else select(func.count()).where(*conditions).scalar_subquery()
        )
        statement = select(Trial.number, total).where(*conditions).order_by(*self._keyset(order).order_by)
        rows = list(self._session.execute(statement.offset(offset).limit(limit)))
        return FoundNumbers([row[0] for row in rows], rows[0][1] if rows else self._count(conditions))

    def num_before(self, job_id: str, query: TrialQuery, *, order: TrialSorting, number: int) -> int | None:
        """The number of the trials found that come before one of them in the order; None: that one is not found."""
        keyset, conditions = self._keyset(order), self._conditions(job_id, query)
        found = self._session.execute(select(keyset.column).where(*conditions, Trial.number == number)).one_or_none()
        if found is None:
            return None
        behind = self._count([*conditions, keyset.after(Place(found[0], number))])
        return self._count(conditions) - behind - 1

    def _count(self, conditions: Sequence[ColumnElement[bool]]) -> int:
        return self._session.scalars(select(func.count()).select_from(Trial).where(*conditions)).one()

    @property
    def _is_sqlite(self) -> bool:
        return self._session.get_bind().dialect.name == "sqlite"

    def _keyset(self, order: TrialSorting) -> Keyset:
        if isinstance(order.by, TrialKey):
            column = getattr(Trial, order.by)
            return Keyset(column, Trial.number, order.is_descending, nullable=order.by is TrialKey.VALUE)
        name, is_descending = order.by.name, order.is_descending
        if self._is_sqlite:
            value: ColumnElement[Any] = func.json_extract(Trial.parameters, f'$."{name}"')
            return Keyset(value, Trial.number, is_descending, nullable=True)
        value = func.nullif(Trial.parameters[name], literal_column("'null'::jsonb"), type_=JSONB())
        return Keyset(value, Trial.number, is_descending, nullable=True, value_type=JSONB())

    def _conditions(self, job_id: str, query: TrialQuery) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = [Trial.job_id == job_id]
        if query.states:
            found.append(Trial.state.in_(query.states))
        if query.phase is not None:
            found.append(Trial.phase == query.phase)
        if query.value is not None:
            found.append(_within(Trial.value, query.value))
        return found + [self._has(wanted) for wanted in query.parameters]

    def _has(self, asked: ParameterFilter) -> ColumnElement[bool]:
        """True of the trials whose parameter has a value. What is of another kind in one trial is never compared."""
        if self._is_sqlite:
            pairs = func.json_each(Trial.parameters).table_valued("key", "value", "type")
            found = _is_wanted(
                asked.wanted, pairs.c.type, pairs.c.value, pairs.c.value, numbers=("integer", "real"), texts="text"
            )
            return exists(select(pairs.c.key).where(pairs.c.key == asked.name, found).correlate(Trial))
        value = Trial.parameters[asked.name]
        kind = func.jsonb_typeof(value)
        number = case((kind == "number", value.as_float()))  # a cast of text to a number would be an error
        return _is_wanted(asked.wanted, kind, number, value.as_string(), numbers=("number",), texts="string")


def _is_wanted(
    wanted: NumberRange | str,
    kind: ColumnElement[Any],
    number: ColumnElement[Any],
    text: ColumnElement[Any],
    *,
    numbers: Sequence[str],
    texts: str,
) -> ColumnElement[bool]:
    """True if a value of JSON is wanted.

    Args:
        kind: what it is.
        number: its value, where it is a number.
        text: its value, where it is a text, or one of the words of JSON.
        numbers: the kinds that numbers are.
        texts: the kind that text is.
    """
    if isinstance(wanted, NumberRange):
        return and_(kind.in_(numbers), _within(number, wanted))
    found = [and_(kind == texts, text == wanted)]
    if wanted in ("true", "false"):
        found += [kind == wanted, and_(kind == "boolean", text == wanted)]
    if wanted == "null":
        found.append(kind == "null")
    return or_(*found)


def _within(column: Any, wanted: NumberRange) -> ColumnElement[bool]:
    ends = [] if wanted.low is None else [column >= wanted.low]
    return and_(*ends, *([] if wanted.high is None else [column <= wanted.high]))
