"""Rows of a user's tables: the text and the label of each, from CSV, TSV or Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainers.data.files import data_files
from trainers.data.parquet import whole_parquet
from trainers.installation.extras import optional_library

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET_SUFFIXES = (".parquet", ".pq")
_UNCLOSED_CELL = re.compile(
    rb"""(?:\A|[\t\r\n])"(?![^"\t\r\n]*(?:""[^"\t\r\n]*)*"(?:[\t\r\n]|\Z))""",
)
"""A cell of TSV that begins with a quotation mark and, within its line, does not end with one."""
_MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 2**20, 2**30
"""Bytes of a file that are parsed at once: pyarrow's default, and the most that it can count."""
_COLUMN_OPTIONS = ("text_column", "label_column")
_PURPOSE = "the huggingface workload on tables"


def labelled_rows(option: str, path: str, text_column: str, label_column: str) -> Iterator[tuple[str, str]]:
    """Text and label of each row of the tables at the path.

    An empty cell of CSV or TSV, quoted or not, is a missing one; Parquet tells the two apart.

    Args:
        option: what to call the path in an error.

    Raises:
        ValueError: there are no such files or columns, two columns have the name, their values are no text, or a text
            or label is missing.
    """
    columns = (text_column, label_column)
    for file in data_files(option, path, suffixes=(*_DELIMITERS, *_PARQUET_SUFFIXES)):
        table = _read_table(file.path, columns)
        texts, labels = (
            _strings(table.column(column), f"{name} {column!r} in {file.path}")
            for name, column in zip(_COLUMN_OPTIONS, columns, strict=True)
        )
        for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
            if text is None or label is None:
                missing = text_column if text is None else label_column
                raise ValueError(f"{option} {file.path}: row {number} has no {missing}")
            yield text, label


def _read_table(file: Path, columns: tuple[str, str]) -> Any:
    """Both columns of the table in the file.

    Raises:
        ValueError: the file is none, or has a column never or twice.
    """
    if file.name.lower().endswith(_PARQUET_SUFFIXES):
        parquet = optional_library("pyarrow.parquet", extra="text", purpose=_PURPOSE)
        with whole_parquet(file, extra="text", purpose=_PURPOSE):
            names = parquet.read_schema(file).names
        _check_columns(file, names, columns)
        with whole_parquet(file, extra="text", purpose=_PURPOSE):
            return parquet.read_table(file, columns=list(dict.fromkeys(columns)))
    delimiter = _DELIMITERS.get(file.suffix.lower())
    if delimiter is None:
        raise ValueError(f"{file} must be named *{', *'.join((*_DELIMITERS, *_PARQUET_SUFFIXES))}")
    table = _read_lines(file, columns, delimiter)
    _check_columns(file, table.column_names, columns)
    return table


def _read_lines(file: Path, columns: tuple[str, str], delimiter: str) -> Any:
    """The table of a CSV or TSV file, both columns as strings.

    In TSV, quotation marks are part of a text unless they fit around cells. Most public data sets have no quoting, and
    a text that begins with a mark would run on into the lines below; spreadsheets and pandas quote texts with tabs,
    line ends or marks in them. So marks enclose cells where each cell that begins with one also ends with one, those
    within doubled, or where lines as they stand have different numbers of cells.

    Raises:
        ValueError: rows have different numbers of cells, or text is not UTF-8.
    """
    invalid = optional_library("pyarrow", extra="text", purpose=_PURPOSE).ArrowInvalid
    reasons = []
    if delimiter == "\t" and _UNCLOSED_CELL.search(file.read_bytes()) is not None:
        try:
            return _parsed(file, columns, delimiter, is_quoted=False)
        except invalid as error:
            reasons.append(f"{error}, and with quoted cells: ")
    try:
        return _parsed(file, columns, delimiter, is_quoted=True)
    except invalid as error:
        reasons.append(str(error))
        raise ValueError(f"{file} cannot be read as a table: {''.join(reasons)}") from error


def _parsed(file: Path, columns: tuple[str, str], delimiter: str, *, is_quoted: bool) -> Any:
    arrow = optional_library("pyarrow", extra="text", purpose=_PURPOSE)
    csv = optional_library("pyarrow.csv", extra="text", purpose=_PURPOSE)
    return csv.read_csv(
        file,
        # As one block, because a cell must not be longer than one.
        read_options=csv.ReadOptions(block_size=min(max(file.stat().st_size, _MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)),
        parse_options=csv.ParseOptions(
            delimiter=delimiter, quote_char='"' if is_quoted else False, newlines_in_values=is_quoted
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(columns, arrow.string()),
            # A text "NA" or "null" is what it says.
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _check_columns(file: Path, names: Sequence[str], columns: tuple[str, str]) -> None:
    for option, column in zip(_COLUMN_OPTIONS, columns, strict=True):
        if column not in names:
            raise ValueError(f"{option} must be one of {', '.join(names)} in {file}, got {column!r}")
        if names.count(column) > 1:
            raise ValueError(f"{option} {column!r} is the name of {names.count(column)} columns in {file}")


def _strings(values: Any, name: str) -> list[str | None]:
    """The values of a column as text, numbers as they are printed.

    Args:
        name: the column's, and its file's.

    Raises:
        ValueError: they are lists or the like, or bytes that are no UTF-8.
    """
    arrow = optional_library("pyarrow", extra="text", purpose=_PURPOSE)
    try:
        strings: list[str | None] = values.cast("string").to_pylist()
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{name} holds {values.type}, which cannot be read as text: {error}") from error
    return strings
