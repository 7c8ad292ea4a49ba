"""Lists of a job's trials: found by what is asked for, in an order, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select
from sqlalchemy.orm import Session, defer

from service.domain import Phase, TrialState
from service.store.models import Trial
from service.store.repositories.keyset import Keyset, Place


class TrialOrder(StrEnum):
    """An order of trials; a minus: descending."""

    FIRST = "number"
    LAST = "-number"
    LOWEST = "value"
    HIGHEST = "-value"
    STATE = "state"
    STATE_BACKWARDS = "-state"
    PHASE = "phase"
    PHASE_BACKWARDS = "-phase"

    @property
    def is_descending(self) -> bool:
        return self.startswith("-")

    @property
    def value_type(self) -> type:
        """Of what it goes by."""
        return {"number": int, "value": float, "state": TrialState, "phase": Phase}[self.removeprefix("-")]

    def place_of(self, trial: Trial) -> Place:
        """The place of a trial in this order."""
        return Place(getattr(trial, self.removeprefix("-")), trial.number)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from one to another, both included; None: there is no end."""

    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ParameterFilter:
    """A value that a parameter must have."""

    name: str
    wanted: Range | str
    """Text: a choice, or `true`, `false` or `null`; it stands for a number, too, if it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialQuery:
    """What is asked of a job's trials; a field that is None, or empty, leaves them all."""

    states: Sequence[TrialState] = ()
    phase: Phase | None = None
    value: Range | None = None
    """Of the first objective."""
    parameters: Sequence[ParameterFilter] = ()


@dataclass(frozen=True, slots=True)
class FoundTrial:
    """A trial of a list. Its config is there only if it was asked for."""

    trial: Trial
    num_steps: int
    """That its config says."""


class TrialListRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def page(
        self,
        job_id: str,
        query: TrialQuery,
        *,
        order: TrialOrder = TrialOrder.FIRST,
        after: Place | None = None,
        with_config: bool,
        limit: int,
    ) -> list[FoundTrial]:
        """Up to `limit` trials of a job, beginning behind a place in the order."""
        keyset = Keyset(
            getattr(Trial, order.removeprefix("-")), Trial.number, order.is_descending, nullable=order.endswith("value")
        )
        statement = select(Trial, Trial.config["num_steps"].as_integer()).where(Trial.job_id == job_id)
        if not with_config:
            statement = statement.options(defer(Trial.config, raiseload=True))
        if query.states:
            statement = statement.where(Trial.state.in_(query.states))
        if query.phase is not None:
            statement = statement.where(Trial.phase == query.phase)
        if query.value is not None:
            statement = statement.where(_within(Trial.value, query.value))
        statement = statement.where(*(self._has(wanted) for wanted in query.parameters))
        if after is not None:
            statement = statement.where(keyset.after(after))
        return [FoundTrial(*row) for row in self._session.execute(statement.order_by(*keyset.order_by).limit(limit))]

    def _has(self, asked: ParameterFilter) -> ColumnElement[bool]:
        """True of the trials whose parameter has a value. What is of another kind in one trial is never compared."""
        if self._session.get_bind().dialect.name == "sqlite":
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
    wanted: Range | str,
    kind: ColumnElement[Any],
    number: ColumnElement[Any],
    text: ColumnElement[Any],
    *,
    numbers: Sequence[str],
    texts: str,
) -> ColumnElement[bool]:
    """Whether a value of JSON is wanted.

    Args:
        kind: what it is.
        number: its value, where it is a number.
        text: its value, where it is a text, or one of the words of JSON.
        numbers: the kinds that numbers are.
        texts: the kind that text is.
    """
    if isinstance(wanted, Range):
        return and_(kind.in_(numbers), _within(number, wanted))
    found = [and_(kind == texts, text == wanted)]
    if wanted in ("true", "false"):
        found += [kind == wanted, and_(kind == "boolean", text == wanted)]
    if wanted == "null":
        found.append(kind == "null")
    return or_(*found)


def _within(column: Any, wanted: Range) -> ColumnElement[bool]:
    ends = [] if wanted.low is None else [column >= wanted.low]
    return and_(*ends, *([] if wanted.high is None else [column <= wanted.high]))
