"""Click logs in Parquet files: the 40 columns of Criteo's format in their order, whatever they are called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.parquet import whole_parquet
from trainers.installation.extras import optional_library
from trainers.workloads.clicks.parser import NUM_COUNTS, NUM_FIELDS, ParsedLines, examples_of, hexadecimals

SUFFIXES = (".parquet", ".pq")
ROWS_AT_ONCE = 4096
"""Bounds memory: about a megabyte of text."""
PURPOSE = "a click log in Parquet files"


def is_parquet(path: str | Path) -> bool:
    return str(path).lower().endswith(SUFFIXES)


def row_groups(path: Path) -> list[int]:
    """Bytes of each row group.

    Raises:
        ValueError: the file is no whole Parquet file, or its columns are others; the message names it.
    """
    arrow = optional_library("pyarrow", extra="clicks", purpose=PURPOSE)
    parquet = optional_library("pyarrow.parquet", extra="clicks", purpose=PURPOSE)
    with whole_parquet(path, extra="clicks", purpose=PURPOSE), parquet.ParquetFile(path) as stream:
        schema, metadata = stream.schema_arrow, stream.metadata
    if len(schema) != NUM_FIELDS:
        raise ValueError(
            f"{path} must have {NUM_FIELDS} columns (a label, 13 numbers, 26 categories), but has {len(schema)}"
        )
    for index, column in enumerate(schema):
        if not _is_legal(column.type, index, arrow.types):
            wanted = "a bool or integers" if index == 0 else "numbers" if index <= NUM_COUNTS else "strings or integers"
            raise ValueError(f"{path} must have {wanted} in column {index + 1} ({column.name}), but has {column.type}")
    return [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]


def parquet_blocks(path: Path, start: int, stop: int) -> Iterator[tuple[ParsedLines, int]]:
    """The rows of those row groups, with the number of rows of each block.

    Strings are hexadecimal numbers, as in the text files; integers stand for themselves.

    Raises:
        ValueError: the file is damaged; the message names it.
    """
    parquet = optional_library("pyarrow.parquet", extra="clicks", purpose=PURPOSE)
    with whole_parquet(path, extra="clicks", purpose=PURPOSE), parquet.ParquetFile(path) as stream:
        for batch in stream.iter_batches(batch_size=ROWS_AT_ONCE, row_groups=list(range(start, stop))):
            labels, has_label = _numbers(batch.column(0))
            counts = [_numbers(batch.column(1 + index))[0] for index in range(NUM_COUNTS)]
            categories = [_categories(batch.column(index)) for index in range(1 + NUM_COUNTS, NUM_FIELDS)]
            values, are_legal, are_missing = (np.stack(parts, axis=1) for parts in zip(*categories, strict=True))
            is_well_formed = has_label & ((labels == 0) | (labels == 1)) & are_legal.all(1)
            examples = examples_of(
                labels[is_well_formed],
                np.stack(counts, axis=1)[is_well_formed],
                values[is_well_formed],
                are_missing[is_well_formed],
            )
            yield ParsedLines(examples, np.flatnonzero(~is_well_formed)), batch.num_rows


def _is_legal(kind: Any, index: int, types: Any) -> bool:
    if index == 0:
        return bool(types.is_boolean(kind) or types.is_integer(kind))
    if index <= NUM_COUNTS:
        return bool(types.is_integer(kind) or types.is_floating(kind))
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind))


def _numbers(column: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The values, 0 where missing, and whether each is there."""
    is_there = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.cast("float64").fill_null(0).to_numpy(zero_copy_only=False)
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).astype(np.int64), is_there


def _categories(column: Any) -> tuple[NDArray[np.uint64], NDArray[np.bool_], NDArray[np.bool_]]:
    """The values, whether they are legal, and whether they are missing."""
    arrow = optional_library("pyarrow", extra="clicks", purpose=PURPOSE)
    if arrow.types.is_integer(column.type):
        is_missing = column.is_null().to_numpy(zero_copy_only=False)
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
        return values, np.ones(len(values), dtype=np.bool_), is_missing
    texts = column.fill_null("").cast(arrow.large_binary())
    _, offsets, characters = texts.buffers()
    places = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.zeros(0, dtype=np.uint8) if characters is None else np.frombuffer(characters, dtype=np.uint8)
    return hexadecimals(letters, places[:-1], places[1:])
