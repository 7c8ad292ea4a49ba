"""The formats of a table: CSV, JSON Lines and Parquet, written piece by piece."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

from service.errors import InvalidInput
from service.exports.tables import Cell, Column, Kind, Row, Table

FORMULA_MARKS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet takes a text cell that begins with one of these for a formula, and may run what it says."""


class TableFormat(StrEnum):
    """The formats in which a table can be had."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


MEDIA_TYPES = {
    TableFormat.CSV: "text/csv; charset=utf-8",
    TableFormat.JSONL: "application/x-ndjson",
    TableFormat.PARQUET: "application/vnd.apache.parquet",
}


def encoded(table: Table, table_format: TableFormat) -> Iterator[bytes]:
    """The file of a table in pieces, of a page of rows each; nothing is kept of those that were given.

    Raises:
        InvalidInput: the format needs a package that is not installed here.
    """
    match table_format:
        case TableFormat.CSV:
            return _csv(table)
        case TableFormat.JSONL:
            return _json_lines(table)
        case TableFormat.PARQUET:
            if importlib.util.find_spec("pyarrow") is None:
                raise InvalidInput("format", "'parquet' needs pyarrow here: pip install 'shampoo-tuner[stores]'")
            return _parquet(table)


def harmless(text: str) -> str:
    """The text as a cell that no spreadsheet takes for a formula: with an apostrophe before what could be one."""
    return f"'{text}" if text.startswith(FORMULA_MARKS) else text


def _csv(table: Table) -> Iterator[bytes]:
    yield _csv_lines([[harmless(column.name) for column in table.columns]])
    for page in table.pages():
        yield _csv_lines([[_csv_cell(cell) for cell in row] for row in page])


def _csv_lines(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _csv_cell(cell: Cell) -> object:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        return harmless(cell)
    return cell.isoformat() if isinstance(cell, datetime) else cell


def _json_lines(table: Table) -> Iterator[bytes]:
    names = [column.name for column in table.columns]
    for page in table.pages():
        lines = [json.dumps(dict(zip(names, map(_json_value, row), strict=True)), allow_nan=False) for row in page]
        yield "".join(f"{line}\n" for line in lines).encode()


def _json_value(cell: Cell) -> Cell:
    return cell.isoformat() if isinstance(cell, datetime) else cell


def _parquet(table: Table) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(column.name, _arrow_type(column)) for column in table.columns])
    sink = _Pieces()
    with parquet.ParquetWriter(sink, schema) as writer:
        for page in table.pages():
            writer.write_table(pa.table(_columns(page, table.columns), schema=schema))
            yield sink.taken()
    yield sink.taken()


def _columns(page: list[Row], columns: Sequence[Column]) -> dict[str, list[Cell]]:
    return {column.name: [row[index] for row in page] for index, column in enumerate(columns)}


def _arrow_type(column: Column) -> Any:
    import pyarrow as pa

    return {
        Kind.TEXT: pa.string(),
        Kind.INTEGER: pa.int64(),
        Kind.NUMBER: pa.float64(),
        Kind.BOOLEAN: pa.bool_(),
        Kind.TIME: pa.timestamp("us", tz="UTC"),
    }[column.kind]


class _Pieces(io.RawIOBase):
    """A file that is taken away as it is written."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._position += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._position

    def taken(self) -> bytes:
        """Takes out and returns the bytes that were written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
