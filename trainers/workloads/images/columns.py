"""Images in a column of Parquet or Arrow files, read on demand. No torch: workers run it.

Parquet is read by row groups, of which each process keeps a few: where they are not all kept, an image costs reading
its whole row group, as training takes images in random order. Arrow files are mapped into memory, and all processes
share those pages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from trainers.data.parquet import is_damage
from trainers.installation.extras import optional_library
from trainers.workloads.images.unreadable import UnreadableImage

Label: TypeAlias = int | str

logger = getLogger(__name__)

ARROW_FILE_MAGIC = b"ARROW1"
"""The first bytes of an Arrow file; without them it is a stream, which is what `datasets` writes."""
MAX_KEPT_BYTES = 256 * 2**20
"""Bytes of row groups that a process keeps in memory, at most, if they are several."""
MAX_OPEN_FILES = 64
"""Files that a process keeps open, at most: well below the usual limit of 1,024, of which every worker has its own."""


@dataclass(frozen=True, slots=True)
class Chunks:
    """The places of rows: row groups of Parquet files or record batches of Arrow files, one after the other."""

    paths: tuple[str, ...]
    image_column: str
    ends: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    """(number of chunks,): the number of rows up to the end of each."""
    files: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    """(number of chunks,): the place in `paths` of the file that each is in."""
    places: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    """(number of chunks,): the place of each in its file."""


class ColumnImages:
    """Images in a column: bytes, or structures with a field `bytes` as Hugging Face's `datasets` writes them."""

    def __init__(self, chunks: Chunks, labels: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        self._chunks = chunks
        self.labels = labels
        self._open: OrderedDict[int, ParquetChunks | ArrowChunks] = OrderedDict()
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._kept_bytes = 0

    def __getstate__(self) -> tuple[Chunks, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
        return self._chunks, self.labels

    def __setstate__(self, state: tuple[Chunks, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]) -> None:
        ColumnImages.__init__(self, *state)

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        chunk = self._chunk_of(index)
        first_of_file = int(np.searchsorted(self._chunks.files, self._chunks.files[chunk]))
        row = index - (int(self._chunks.ends[first_of_file - 1]) if first_of_file > 0 else 0)
        return f"{self._path_of(chunk)}, row {row}"

    def encoded(self, index: int) -> bytes:
        chunk = self._chunk_of(index)
        start = int(self._chunks.ends[chunk - 1]) if chunk > 0 else 0
        value = self._column(chunk)[index - start].as_py()
        if isinstance(value, dict):
            value = value["bytes"]
        if value is None:
            raise UnreadableImage("there are no bytes in that row")
        return bytes(value)

    def _chunk_of(self, index: int) -> int:
        return int(np.searchsorted(self._chunks.ends, index, side="right"))

    def _path_of(self, chunk: int) -> str:
        return self._chunks.paths[int(self._chunks.files[chunk])]

    def _column(self, chunk: int) -> Any:
        """The chunk's images, an Arrow array.

        Raises:
            UnreadableImage: the file is damaged there.
            OSError: the system does not let it be read.
        """
        if chunk in self._kept:
            self._kept.move_to_end(chunk)
            return self._kept[chunk]
        arrow = _arrow()
        try:
            column = self._file(int(self._chunks.files[chunk])).images(int(self._chunks.places[chunk]))
        except (arrow.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            raise UnreadableImage(f"a part of the file cannot be read: {error}") from error
        self._kept[chunk] = column
        self._kept_bytes += column.nbytes
        while self._kept_bytes > MAX_KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return column

    def _file(self, number: int) -> ParquetChunks | ArrowChunks:
        if number not in self._open:
            if len(self._open) == MAX_OPEN_FILES:
                self._open.popitem(last=False)
            self._open[number] = open_chunks(self._chunks.paths[number], self._chunks.image_column)
        self._open.move_to_end(number)
        return self._open[number]


class ParquetChunks:
    """The row groups of a Parquet file."""

    def __init__(self, path: str, image_column: str) -> None:
        self._file = optional_library("pyarrow.parquet", extra="vision", purpose=f"reading {path}").ParquetFile(
            path, memory_map=True
        )
        self.schema = self._file.schema_arrow
        self._image_column = image_column

    def num_rows(self) -> list[int]:
        return [self._file.metadata.row_group(place).num_rows for place in range(self._file.num_row_groups)]

    def num_bytes(self) -> int:
        """Bytes of all columns, before compression."""
        return sum(self._file.metadata.row_group(place).total_byte_size for place in range(self._file.num_row_groups))

    def images(self, place: int) -> Any:
        # Of a structure, the other fields are not needed.
        is_structure = _arrow().types.is_struct(self.schema.field(self._image_column).type)
        name = f"{self._image_column}.bytes" if is_structure else self._image_column
        return self._file.read_row_group(place, columns=[name], use_threads=False).column(0)

    def column(self, name: str) -> Any:
        return self._file.read(columns=[name], use_threads=False).column(0)


class ArrowChunks:
    """The record batches of an Arrow file or stream, mapped into memory."""

    def __init__(self, path: str, image_column: str) -> None:
        arrow = _arrow()
        self._image_column = image_column
        with Path(path).open("rb") as file:
            is_file = file.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC
        source = arrow.memory_map(path)
        if is_file:
            self._reader = arrow.ipc.open_file(source)
            self.schema = self._reader.schema
            self._batches = None
            return
        before = arrow.total_allocated_bytes()
        stream = arrow.ipc.open_stream(source)
        self.schema = stream.schema
        self._batches = list(stream)
        allocated = arrow.total_allocated_bytes() - before
        num_bytes = sum(batch.nbytes for batch in self._batches)
        if allocated > num_bytes / 2 and num_bytes > MAX_KEPT_BYTES:
            raise ValueError(
                f"{path} is a compressed Arrow stream, which cannot be mapped into memory: write it uncompressed"
            )

    def num_rows(self) -> list[int]:
        return [self._batch(place).num_rows for place in range(self._num_batches())]

    def images(self, place: int) -> Any:
        return self._batch(place).column(self._image_column)

    def column(self, name: str) -> Any:
        arrow = _arrow()
        parts = [self._batch(place).column(name) for place in range(self._num_batches())]
        return arrow.chunked_array(parts, type=self.schema.field(name).type)

    def _num_batches(self) -> int:
        return self._reader.num_record_batches if self._batches is None else len(self._batches)

    def _batch(self, place: int) -> Any:
        return self._reader.get_batch(place) if self._batches is None else self._batches[place]


def open_chunks(path: str, image_column: str) -> ParquetChunks | ArrowChunks:
    return (ParquetChunks if path.lower().endswith(".parquet") else ArrowChunks)(path, image_column)


def read_columns(paths: Sequence[Path], image_column: str, label_column: str) -> tuple[Chunks, list[Label]]:
    """The places of the images of some files, and their labels as they are there (integers or strings).

    Raises:
        ValueError: a file is damaged, or has no such columns of a usable type; the message names the file, the column
            and what is there.
        OSError: the system does not let one be read.
    """
    arrow = _arrow()
    labels: list[Label] = []
    num_rows: list[int] = []
    files: list[int] = []
    places: list[int] = []
    num_parquet_bytes = num_row_groups = 0
    for number, path in enumerate(paths):
        try:
            chunks = open_chunks(str(path), image_column)
            _check_columns(chunks.schema, path, image_column, label_column)
            labels.extend(_labels(chunks.column(label_column), path, label_column))
            rows = chunks.num_rows()
            if isinstance(chunks, ParquetChunks):
                num_parquet_bytes += chunks.num_bytes()
                num_row_groups += len(rows)
        except (arrow.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            kind = "Parquet" if path.suffix.lower() == ".parquet" else "Arrow"
            raise ValueError(f"{path} is not a whole {kind} file: {error}") from error
        num_rows.extend(rows)
        files.extend([number] * len(rows))
        places.extend(range(len(rows)))
    if num_parquet_bytes > MAX_KEPT_BYTES:
        logger.warning(
            "images in %s are read in random order, each with all of its row group of %.1f MB on average; Arrow files "
            "(.arrow), which are mapped into memory, or row groups of a few images are read faster",
            paths[0].parent,
            num_parquet_bytes / num_row_groups / 1e6,
        )
    if len({type(label) for label in labels}) > 1:
        raise ValueError(
            f"column {label_column!r} must hold the same type in all files, got integers in some and strings in "
            f"others of {', '.join(str(path) for path in paths[:5])}"
        )
    if not labels:
        raise ValueError(f"there are no rows in {', '.join(str(path) for path in paths[:5])}")
    ends = np.cumsum(num_rows, dtype=np.int64)
    found = Chunks(tuple(map(str, paths)), image_column, ends, np.array(files), np.array(places))
    assert int(ends[-1]) == len(labels)
    return found, labels


def _check_columns(schema: Any, path: Path, image_column: str, label_column: str) -> None:
    types = _arrow().types
    columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
    for option, name in (("image_column", image_column), ("label_column", label_column)):
        if name not in schema.names:
            raise ValueError(f"{path} has no column {name!r} ({option}); its columns are {columns}")
        if schema.names.count(name) > 1:
            raise ValueError(f"{path} has {schema.names.count(name)} columns {name!r} ({option}): {columns}")
    kind = schema.field(image_column).type
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    if not (types.is_binary(kind) or types.is_large_binary(kind)):
        raise ValueError(
            f"column {image_column!r} of {path} must hold bytes of image files, or structures with a field 'bytes', "
            f"found {schema.field(image_column).type}"
        )
    kind = schema.field(label_column).type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if not (types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)):
        found = schema.field(label_column).type
        raise ValueError(f"column {label_column!r} of {path} must hold integers or strings, found {found}")


def _labels(column: Any, path: Path, label_column: str) -> list[Label]:
    if column.null_count > 0:
        row = column.is_null().to_pylist().index(True)
        raise ValueError(f"column {label_column!r} of {path} has no value in row {row}")
    try:
        values: list[Label] = column.to_pylist()
    except UnicodeDecodeError as error:
        raise ValueError(f"column {label_column!r} of {path} has a label that is no UTF-8: {error}") from error
    for row, value in enumerate(values):
        if isinstance(value, int) and value < 0:
            raise ValueError(
                f"column {label_column!r} of {path} must not hold negative labels, got {value} in row {row}: some data "
                "sets mark images without a label so"
            )
    return values


def _arrow() -> Any:
    return optional_library("pyarrow", extra="vision", purpose="reading Parquet and Arrow files")
