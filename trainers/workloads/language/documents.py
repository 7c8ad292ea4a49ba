"""Documents in text and Parquet files: which there are, which of them are held out, and their text piece by piece."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.files import DataFile, line_end, stretches
from trainers.data.parquet import whole_parquet
from trainers.installation.extras import optional_library

TEXT_SUFFIXES = (".txt", ".text", ".md", ".rst")
PARQUET_SUFFIXES = (".parquet", ".pq")

PART_BYTES = 64 * 2**20
"""Bytes that one process tokenises at a time, roughly."""
CHUNK_BYTES = 2**16
"""Text that is tokenised at once, which bounds memory; with a megabyte a byte-level BPE takes a third longer."""
ROWS_AT_ONCE = 256
"""Rows of a Parquet file that are read at once: bounds memory."""
_PURPOSE = "text in Parquet files"

_LONE_LINE_END = re.compile(rb".*\S\n(?=\S)", re.DOTALL)
"""Text up to its last lone line end: tokenizers look at runs of white space, line ends among them, as a whole."""


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """A stretch of one file. All of its text is on one side of the split; or in Parquet, it is split by row."""

    path: str
    start: int
    """First byte of a text file, or first row group of a Parquet file."""
    stop: int
    num_bytes: int
    """Size, roughly."""
    first_document: int
    """Number of its first document: text files are one document each, Parquet files one in each row with text."""
    ends_document: bool = True
    """True if a text file's document ends with the part."""
    is_validation: bool | None = None
    """None: as `held_out` says of each document."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text of one document, in a piece that can be tokenised by itself."""

    document: int
    text: bytes
    ends_document: bool
    position: int
    """Byte in the file, or row."""


def is_parquet(path: str | Path) -> bool:
    return str(path).lower().endswith(PARQUET_SUFFIXES)


def held_out_documents(num_documents: int, *, share: float, seed: int) -> NDArray[np.bool_]:
    """The documents for validation: (num_documents,), the share of them, drawn with the seed; at least one is,
    and at least one is not.

    Raises:
        ValueError: there are fewer than two.
    """
    if num_documents < 2:
        raise ValueError(f"{num_documents} document cannot be split in two; give validation_path")
    num_held_out = min(max(1, round(share * num_documents)), num_documents - 1)
    held_out = np.zeros(num_documents, dtype=np.bool_)
    held_out[np.random.default_rng(seed).choice(num_documents, size=num_held_out, replace=False)] = True
    return held_out


def parts(
    files: Sequence[DataFile], *, text_column: str, is_validation: bool | None = None
) -> tuple[list[CorpusPart], int]:
    """All parts of the files in order, and the number of documents in them.

    Raises:
        ValueError: a Parquet file has no such column of text.
    """
    found: list[CorpusPart] = []
    num_documents = 0
    for file in files:
        if is_parquet(file.path):
            of_file, num_documents = _parquet_parts(file, num_documents, text_column=text_column)
        else:
            of_file = list(text_parts(file.path, 0, file.num_bytes, document=num_documents))
            num_documents += 1
        found += of_file
    if is_validation is not None:
        found = [_on_side(part, is_validation) for part in found]
    return found, num_documents


def text_parts(
    path: Path, start: int, stop: int, *, document: int, is_validation: bool | None = None
) -> Iterator[CorpusPart]:
    """The parts of a stretch of a text file, cut behind line ends; its document ends with the last of them."""
    for begin, end in stretches(path, start, stop, num_bytes=PART_BYTES):
        yield CorpusPart(str(path), begin, end, end - begin, document, end == stop, is_validation)


def tail_start(path: Path, num_bytes: int, *, share: float) -> int:
    """The byte where the last `share` of a text file begins: at a line, or at a character if there are no more lines.

    Raises:
        ValueError: the file is too short to be cut.
    """
    position = round(num_bytes * (1 - share))
    start = line_end(path, position)
    if not 0 < start < num_bytes:
        start = position
        with path.open("rb") as stream:
            stream.seek(start)
            while (byte := stream.read(1)) and not _begins_character(byte[0]):
                start += 1
    if not 0 < start < num_bytes:
        raise ValueError(f"{path} has {num_bytes} bytes, too few to hold a part out; give validation_path")
    return start


def pieces(part: CorpusPart, *, text_column: str) -> Iterator[TextPiece]:
    """The text of the part in pieces of at most `CHUNK_BYTES`, but for rows of Parquet, which are whole documents.

    Text is cut behind the end of a line that other lines touch, where tokenizers of the field cut it too; without one,
    a tokenizer that would have joined what lies on both sides sees them apart.
    """
    if is_parquet(part.path):
        yield from _parquet_pieces(part, text_column)
        return
    position = part.start
    with Path(part.path).open("rb") as stream:
        stream.seek(position)
        while position < part.stop:
            block = stream.read(min(CHUNK_BYTES, part.stop - position))
            if not block:
                raise ValueError(f"{part.path} became shorter than {part.stop} bytes while it was read")
            is_last = position + len(block) == part.stop
            if not is_last:
                block = block[: _cut(block)]
                stream.seek(position + len(block))
            yield TextPiece(part.first_document, block, is_last and part.ends_document, position)
            position += len(block)


def _cut(block: bytes) -> int:
    """The best place to cut: behind the last line end between other characters, or any, or before the last space"""
    if (match := _LONE_LINE_END.match(block)) is not None:
        return match.end()
    if (index := block.rfind(b"\n")) >= 0:
        return index + 1
    if (index := block.rfind(b" ")) > 0:  # tokens of the field's tokenizers begin with the space
        return index
    for end in range(len(block) - 1, max(len(block) - 5, 0), -1):
        if _begins_character(block[end]):
            return end
    return len(block)


def _begins_character(byte: int) -> bool:
    """True at the beginning of a character of UTF-8, whose further bytes, up to three, are all 10xxxxxx."""
    return byte & 0b1100_0000 != 0b1000_0000


def _on_side(part: CorpusPart, is_validation: bool) -> CorpusPart:
    return CorpusPart(
        part.path, part.start, part.stop, part.num_bytes, part.first_document, part.ends_document, is_validation
    )


@contextmanager
def _parquet_file(path: str | Path) -> Iterator[Any]:
    """The file, open; a ValueError names it where it turns out to be damaged."""
    parquet = optional_library("pyarrow.parquet", extra="text", purpose=_PURPOSE)
    with whole_parquet(path, extra="text", purpose=_PURPOSE), parquet.ParquetFile(path) as stream:
        yield stream


def _parquet_parts(file: DataFile, first_document: int, *, text_column: str) -> tuple[list[CorpusPart], int]:
    """The row groups of a file, several to a part, and the number of the first document after it."""
    with _parquet_file(file.path) as stream:
        column = _text_column(stream, file, text_column)
        metadata = stream.metadata
        found = []
        start, num_bytes, document, next_document = 0, 0, first_document, first_document
        for group in range(metadata.num_row_groups):
            # Columns are counted by leaf, which differs where others are nested; a size is all that is read here.
            leaf = min(column, metadata.row_group(group).num_columns - 1)
            num_bytes += metadata.row_group(group).column(leaf).total_uncompressed_size
            next_document += _num_texts(stream, group, leaf, text_column)
            if num_bytes >= PART_BYTES or group + 1 == metadata.num_row_groups:
                found.append(CorpusPart(str(file.path), start, group + 1, num_bytes, document))
                start, num_bytes, document = group + 1, 0, next_document
    return found, next_document


def _text_column(stream: Any, file: DataFile, name: str) -> int:
    """The place of the column of text in an open Parquet file.

    Raises:
        ValueError: there is none of that name, or several, or it holds no text.
    """
    arrow = optional_library("pyarrow", extra="text", purpose=_PURPOSE)
    names = stream.schema_arrow.names
    if name not in names:
        raise ValueError(f"text_column must be one of {', '.join(names)} in {file.path}, got {name!r}")
    if names.count(name) > 1:
        raise ValueError(f"text_column {name!r} is the name of {names.count(name)} columns in {file.path}")
    kind = stream.schema_arrow.field(name).type
    if not (arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind)):
        raise ValueError(f"text_column must hold strings, but {name!r} in {file.path} holds {kind}")
    index: int = names.index(name)
    return index


def _num_texts(stream: Any, group: int, leaf: int, text_column: str) -> int:
    """The rows of a row group that hold a text; read only where its statistics do not rule out that some hold none."""
    row_group = stream.metadata.row_group(group)
    column = row_group.column(leaf)
    known = column.statistics if column.path_in_schema == text_column else None
    if known is not None and known.has_null_count and not known.null_count and known.has_min_max and known.min_raw:
        return int(row_group.num_rows)
    batches = stream.iter_batches(batch_size=ROWS_AT_ONCE, row_groups=[group], columns=[text_column])
    return sum(sum(map(bool, _texts(batch))) for batch in batches)


def _texts(batch: Any) -> list[bytes | None]:
    """The texts as bytes, because strings in Parquet need not be UTF-8: whether that matters, the tokenizer says."""
    found: list[bytes | None] = batch.column(0).cast("large_binary").to_pylist()
    return found


def _parquet_pieces(part: CorpusPart, text_column: str) -> Iterator[TextPiece]:
    """Each row that holds a text."""
    document = part.first_document
    with _parquet_file(part.path) as stream:
        groups = list(range(part.start, part.stop))
        row = sum(stream.metadata.row_group(group).num_rows for group in range(part.start))
        for batch in stream.iter_batches(batch_size=ROWS_AT_ONCE, row_groups=groups, columns=[text_column]):
            for text in _texts(batch):
                if text:
                    yield TextPiece(document, text, ends_document=True, position=row)
                    document += 1
                row += 1
