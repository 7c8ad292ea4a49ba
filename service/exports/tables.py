"""The tables of a job: its trials, one row each, and their measurements; read in pages, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from pydantic import TypeAdapter

from search_spaces import Scalar
from service.store.models import MeasurementRow, Trial
from service.store.repositories import (
    JobRepository,
    MeasurementRepository,
    Place,
    TrialListRepository,
    TrialQuery,
)
from service.store.session import Session

ALL_TRIALS = TrialQuery()
TRIALS_PER_PAGE = 200
"""Rows, by judgement: a row has a whole config."""
MEASUREMENTS_PER_PAGE = 1000
"""Rows, by judgement: they are much smaller than trials."""

Reading: TypeAlias = Callable[[], AbstractContextManager[Session]]
"""A session for one page: an export takes minutes, and none must keep the database at one state for so long."""
Cell: TypeAlias = str | int | float | bool | datetime | None
Row: TypeAlias = list[Cell]

_PARAMETERS: TypeAdapter[dict[str, Scalar]] = TypeAdapter(dict[str, Scalar])
_METRICS: TypeAdapter[dict[str, float | None]] = TypeAdapter(dict[str, float | None])


class Kind(StrEnum):
    """The values of a column; any may be missing."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"


class TableName(StrEnum):
    """The tables of a job."""

    TRIALS = "trials"
    MEASUREMENTS = "measurements"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows are read as they are asked for."""

    columns: Sequence[Column]
    pages: Callable[[], Iterator[list[Row]]]
    """Rows in the order of trials, and of steps; each page with a session of its own."""


_OF_TRIALS = (
    Column("number", Kind.INTEGER),
    Column("phase", Kind.TEXT),
    Column("optimizer", Kind.TEXT),
    Column("state", Kind.TEXT),
    Column("reason", Kind.TEXT),
    Column("detail", Kind.TEXT),
    Column("seed", Kind.INTEGER),
    Column("batch_size", Kind.INTEGER),
    Column("num_steps", Kind.INTEGER),
    Column("step", Kind.INTEGER),
    Column("value", Kind.NUMBER),
    Column("seconds", Kind.NUMBER),
    Column("spent_seconds", Kind.NUMBER),
    Column("confirms", Kind.INTEGER),
    Column("forked_from", Kind.INTEGER),
    Column("proposed", Kind.BOOLEAN),
    Column("created_at", Kind.TIME),
    Column("started_at", Kind.TIME),
    Column("finished_at", Kind.TIME),
)
_OF_MEASUREMENTS = (
    Column("trial", Kind.INTEGER),
    Column("step", Kind.INTEGER),
    Column("epoch", Kind.NUMBER),
    Column("seconds", Kind.NUMBER),
    Column("recorded_at", Kind.TIME),
)


def table_of(reading: Reading, job_id: str, name: TableName, query: TrialQuery = ALL_TRIALS) -> Table:
    """A table of a job, with its columns; no row is read yet.

    Args:
        query: the trials that it is of.

    Raises:
        NotFound: no such job.
    """
    with reading() as session:
        JobRepository(session).check_exists(job_id)
    return (_trials if name is TableName.TRIALS else _measurements)(reading, job_id, query)


def _trials(reading: Reading, job_id: str, query: TrialQuery) -> Table:
    """Columns of their own, `parameter.NAME` of every parameter, and `metric.NAME` of each last measurement."""
    kinds: dict[str, set[type]] = {}
    metrics: dict[str, None] = {}
    for page in _trial_pages(reading, job_id, query):
        for trial in page:
            for name, value in _PARAMETERS.validate_python(trial.parameters).items():
                kinds.setdefault(name, set()).add(type(value))
            metrics.update(dict.fromkeys(trial.metrics))
    parameters = {name: _kind_of(found) for name, found in sorted(kinds.items())}

    def row(trial: Trial) -> Row:
        config = trial.stored_config
        values = _PARAMETERS.validate_python(trial.parameters)
        measured = _METRICS.validate_python(trial.metrics)
        own: Row = [
            trial.number,
            trial.phase.value,
            config.optimizer,
            trial.state.value,
            None if trial.reason is None else trial.reason.value,
            trial.detail,
            config.seed,
            config.batch_size,
            config.num_steps,
            trial.step,
            trial.value,
            trial.seconds,
            trial.spent_seconds,
            trial.confirms,
            trial.forked_from,
            trial.proposed,
            trial.created_at,
            trial.started_at,
            trial.finished_at,
        ]
        return [
            *own,
            *(_as(kind, values.get(name)) for name, kind in parameters.items()),
            *(measured.get(name) for name in metrics),
        ]

    columns = (
        *_OF_TRIALS,
        *(Column(f"parameter.{name}", kind) for name, kind in parameters.items()),
        *(Column(f"metric.{name}", Kind.NUMBER) for name in metrics),
    )
    return Table(columns, lambda: ([row(trial) for trial in page] for page in _trial_pages(reading, job_id, query)))


def _measurements(reading: Reading, job_id: str, query: TrialQuery) -> Table:
    """`metric.NAME` of every metric that was ever measured beside the step, the epoch and the seconds."""
    with reading() as session:
        names = MeasurementRepository(session).metric_names_of_job(job_id)

    def row(number: int, measured: MeasurementRow) -> Row:
        values = measured.metrics
        own: Row = [number, measured.step, measured.epoch, measured.seconds, measured.recorded_at]
        return [*own, *(values.get(name) for name in names)]

    def pages() -> Iterator[list[Row]]:
        for trials in _trial_pages(reading, job_id, query):
            for trial in trials:
                after: int | None = None
                while True:
                    with reading() as session:
                        found = MeasurementRepository(session).of_trial(
                            trial.id, after_step=after, limit=MEASUREMENTS_PER_PAGE
                        )
                        rows = [row(trial.number, measured) for measured in found]
                    if rows:
                        after = found[-1].step
                        yield rows
                    if len(rows) < MEASUREMENTS_PER_PAGE:
                        break

    return Table((*_OF_MEASUREMENTS, *(Column(f"metric.{name}", Kind.NUMBER) for name in names)), pages)


def _trial_pages(reading: Reading, job_id: str, query: TrialQuery) -> Iterator[list[Trial]]:
    after: Place | None = None
    while True:
        with reading() as session:
            page = TrialListRepository(session).page(
                job_id, query, after=after, with_config=True, limit=TRIALS_PER_PAGE
            )
        if page:
            after = page[-1].place
            yield [found.trial for found in page]
        if len(page) < TRIALS_PER_PAGE:
            return


def _kind_of(types: set[type]) -> Kind:
    """The kind of a column with values of these types."""
    if types == {bool}:
        return Kind.BOOLEAN
    if types == {int}:
        return Kind.INTEGER
    return Kind.NUMBER if types <= {int, float} else Kind.TEXT


def _as(kind: Kind, value: Scalar | None) -> Cell:
    """The value as its column has it."""
    if value is None:
        return None
    if kind is Kind.TEXT:
        return value if isinstance(value, str) else str(value)
    return float(value) if kind is Kind.NUMBER else value
