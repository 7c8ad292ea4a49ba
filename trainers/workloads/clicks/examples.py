"""Click logs on disk, parsed once into a file of examples that is mapped into memory."""

from __future__ import annotations

import gzip
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from logging import getLogger
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from trainers.data.files import DataFile, content_digest, data_files, stretches
from trainers.data.prepared import prepared
from trainers.data.processes import Job, run_jobs, serve
from trainers.workloads.clicks.parquet import is_parquet, parquet_blocks, row_groups
from trainers.workloads.clicks.parser import BLOCK_BYTES, EXAMPLE, ParsedLines, parse

logger = getLogger(__name__)

_FORMAT = "a line is a label (0 or 1), 13 integers and 26 hexadecimal numbers, separated by tabs, or empty"

PART_BYTES = 64 * 2**20
"""Bytes that one process parses at a time, roughly; a compressed file is one part."""

Examples: TypeAlias = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class LogPart:
    """A stretch of one file."""

    path: str
    start: int
    """First byte, or first row group of a Parquet file."""
    stop: int


@dataclass(frozen=True, slots=True)
class ClickLog:
    """The examples of a log in its order, which is time."""

    examples: Examples = field(repr=False)
    """(n,) `parser.EXAMPLE`, mapped from a file."""
    num_malformed_lines: int
    first_malformed_line: str
    """File and number of the first line, or row of Parquet, that was passed over; empty if none was."""


def read_click_log(
    option: str, path: str, *, file_pattern: str | None, cache_directory: Path, max_malformed_lines: int
) -> ClickLog:
    """The log at a path, parsed now unless it is in the cache, where it is found by its content.

    Args:
        option: what to call the path in an error.

    Raises:
        ValueError: there is no such file, it has no examples, or more lines than `max_malformed_lines` are malformed.
    """
    files = data_files(option, path, pattern=file_pattern)

    def prepare(directory: Path) -> dict[str, Any]:
        num_bytes = sum(file.num_bytes for file in files)
        logger.info("parsing %d files (%d bytes) of %s into %s", len(files), num_bytes, path, directory)
        return _prepare(directory, option, files, max_malformed_lines)

    key = {"log": content_digest(files, cache_directory=cache_directory)}
    directory, facts = prepared(cache_directory, "clicks", key, prepare)
    # The cache may have been filled with another limit.
    _check_malformed(option, facts["num_malformed_lines"], facts["first_malformed_line"], max_malformed_lines)
    return ClickLog(
        examples=np.memmap(directory / "examples", dtype=EXAMPLE, mode="r"),
        num_malformed_lines=facts["num_malformed_lines"],
        first_malformed_line=facts["first_malformed_line"],
    )


def parse_parts(job: Job) -> Job:
    """Writes the examples of a job's parts; stops where more lines than the limit are malformed.

    For each part that it came to it gives the number of lines, the number of malformed lines, and the place of the
    first malformed one.
    """
    num_examples, num_malformed = 0, 0
    parts = []
    with Path(job["output"]).open("wb") as output:
        for part in (LogPart(**fields) for fields in job["parts"]):
            if num_malformed > job["max_malformed_lines"]:
                break
            num_lines, of_part, first = 0, 0, -1
            for block, lines_of_block in _blocks(part):
                output.write(block.examples.tobytes())
                num_examples += len(block.examples)
                if len(block.malformed_lines) and first < 0:
                    first = num_lines + int(block.malformed_lines[0])
                of_part += len(block.malformed_lines)
                num_lines += lines_of_block
                if num_malformed + of_part > job["max_malformed_lines"]:
                    break
            num_malformed += of_part
            parts.append({**asdict(part), "num_lines": num_lines, "num_malformed": of_part, "first_malformed": first})
    return {"num_examples": num_examples, "num_malformed": num_malformed, "parts": parts}


def _prepare(directory: Path, option: str, files: Sequence[DataFile], max_malformed_lines: int) -> dict[str, Any]:
    """Writes `examples` into the directory."""
    jobs = [
        {
            "parts": [asdict(part) for part in some_parts],
            "output": str(directory / f"part-{index}"),
            "max_malformed_lines": max_malformed_lines,
        }
        for index, some_parts in enumerate(_in_portions(files))
    ]
    results = run_jobs("trainers.workloads.clicks.examples", parse_parts, jobs)
    num_malformed = sum(result["num_malformed"] for result in results)
    first = _first_malformed_line([part for result in results for part in result["parts"]])
    _check_malformed(option, num_malformed, first, max_malformed_lines)
    if sum(result["num_examples"] for result in results) == 0:
        if num_malformed:
            raise ValueError(f"{option} has no examples: every line is malformed, the first of them {first}: {_FORMAT}")
        empty = f"{len(files)} empty file{'' if len(files) == 1 else 's'}"
        raise ValueError(f"{option} has no examples: {empty}, the first of them {files[0].path}")
    with (directory / "examples").open("wb") as whole:
        for index in range(len(jobs)):
            part = directory / f"part-{index}"
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, whole, 2**20)
            part.unlink()
    return {"num_malformed_lines": num_malformed, "first_malformed_line": first}


def _check_malformed(option: str, number: int, first: str, limit: int) -> None:
    if number > limit:
        raise ValueError(
            f"max_malformed_lines is {limit}, but {option} has at least {number}, the first of them {first}: {_FORMAT}"
        )


def _first_malformed_line(parts: Sequence[dict[str, Any]]) -> str:
    """Its line, if there is one; the parts are in the order of the files."""
    path, lines_before = "", 0
    for part in parts:
        if part["path"] != path:
            path, lines_before = part["path"], 0
        if part["num_malformed"] > 0:
            what = "row" if is_parquet(path) else "line"
            return f"{path}, {what} {lines_before + part['first_malformed'] + 1}"
        lines_before += part["num_lines"]
    return ""


def _in_portions(files: Sequence[DataFile]) -> Iterator[list[LogPart]]:
    """The parts of all files in order, in portions for one process each: at least one."""
    portion: list[LogPart] = []
    num_bytes = 0
    for file in files:
        for part, size in _parts(file):
            if portion and num_bytes + size > PART_BYTES:
                yield portion
                portion, num_bytes = [], 0
            portion.append(part)
            num_bytes += size
    yield portion


def _parts(file: DataFile) -> Iterator[tuple[LogPart, int]]:
    """The parts of a file, with the bytes of each."""
    if is_parquet(file.path):
        for group, num_bytes in enumerate(row_groups(file.path)):
            yield LogPart(str(file.path), group, group + 1), num_bytes
    elif _is_compressed(file.path):
        yield LogPart(str(file.path), 0, file.num_bytes), file.num_bytes
    else:
        for start, stop in stretches(file.path, 0, file.num_bytes, num_bytes=PART_BYTES):
            yield LogPart(str(file.path), start, stop), stop - start


def _is_compressed(path: str | Path) -> bool:
    return str(path).lower().endswith(".gz")


def _blocks(part: LogPart) -> Iterator[tuple[ParsedLines, int]]:
    """The parsed lines of a part, each time with their number."""
    if is_parquet(part.path):
        yield from parquet_blocks(Path(part.path), part.start, part.stop)
        return
    try:
        with _open(part) as stream:
            num_left = sys.maxsize if _is_compressed(part.path) else part.stop - part.start
            rest = b""
            while text := stream.read(min(BLOCK_BYTES, num_left)):
                num_left -= len(text)
                lines, line_end, begun = text.rpartition(b"\n")
                if line_end:
                    whole = rest + lines + line_end
                    yield parse(whole), whole.count(b"\n")
                    rest = begun
                elif len(rest) > BLOCK_BYTES:
                    rest = rest[:BLOCK_BYTES]  # no line is so long: it is malformed, whatever follows
                else:
                    rest += text
            if rest:
                yield parse(rest), 1
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{part.path} is not a whole gzip file: {error}") from error


def _open(part: LogPart) -> IO[bytes]:
    if _is_compressed(part.path):
        return cast("IO[bytes]", gzip.open(part.path, "rb"))
    stream = Path(part.path).open("rb")  # noqa: SIM115  # the caller closes it
    stream.seek(part.start)
    return stream


if __name__ == "__main__":
    sys.exit(serve(parse_parts))
