"""Files that ranks print to: read piece by piece, freed and removed when all is kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from service.domain import OutputStream
from service.scheduler.output.files import OutputPlace, SourceName, send_output_to
from service.scheduler.output.reading import (
    FILE_BYTES,
    FREED_AT_ONCE,
    SETTLING_SECONDS,
    Piece,
    kept_names,
    read_output,
)

NOBODY = 2**22 + 1
"""No process has this id."""


def source(trial: int = 0, *, rank: int = 0, begun: int = 1, pid: int | None = None) -> SourceName:
    return SourceName(trial, rank, begun, os.getpid() if pid is None else pid, OutputStream.STDOUT)


def write(directory: Path, name: SourceName, content: bytes, *, is_settled: bool = False) -> Path:
    path = directory / str(name)
    with path.open("ab") as file:
        file.write(content)
    if is_settled:
        earlier = time.time() - SETTLING_SECONDS - 1
        os.utime(path, (earlier, earlier))
    return path


def contents(pieces: list[Piece]) -> list[bytes]:
    return [piece.content for piece in pieces]


def test_lines_come_as_they_are_written_and_an_unfinished_one_when_it_has_settled(tmp_path: Path) -> None:
    write(tmp_path, source(), b"one\ntw")
    first = read_output(tmp_path, {})
    assert [(piece.source, piece.content, piece.ends_at) for piece in first] == [(source(), b"one\n", 4)]
    kept = kept_names(first)
    assert read_output(tmp_path, kept) == []
    write(tmp_path, source(), b"o\nthree")
    second = read_output(tmp_path, kept)
    assert contents(second) == [b"two\n"]
    write(tmp_path, source(), b"", is_settled=True)
    assert contents(read_output(tmp_path, kept | kept_names(second))) == [b"three"]


def test_what_was_not_kept_comes_again(tmp_path: Path) -> None:
    write(tmp_path, source(), b"one\n")
    assert read_output(tmp_path, {}) == read_output(tmp_path, {})


def test_of_a_flood_the_beginning_and_the_end_are_read_and_the_rest_is_freed(tmp_path: Path) -> None:
    lines = b"".join(b"line %07d\n" % index for index in range(5 * FREED_AT_ONCE // 13))
    path = write(tmp_path, source(), lines)
    before = path.stat().st_blocks
    first, last = read_output(tmp_path, {})
    assert first.content.startswith(b"line 0000000\n")
    assert last.content.startswith(b"line ")
    assert last.content.endswith(lines[-13:])
    assert len(first.content) + len(last.content) <= FILE_BYTES
    assert first.ends_at + last.omitted_bytes + len(last.content) == last.ends_at == len(lines)
    assert path.stat().st_blocks < before / 2
    assert path.stat().st_size == len(lines)


def test_a_file_is_removed_once_it_is_kept_and_its_process_has_gone(tmp_path: Path) -> None:
    path = write(tmp_path, source(pid=NOBODY), b"last words", is_settled=True)
    pieces = read_output(tmp_path, {})
    assert contents(pieces) == [b"last words"]
    assert path.exists()
    assert read_output(tmp_path, kept_names(pieces)) == []
    assert not path.exists()


def test_the_file_of_an_earlier_trial_of_the_same_process_is_removed(tmp_path: Path) -> None:
    earlier = write(tmp_path, source(0, begun=1), b"a\n", is_settled=True)
    present = write(tmp_path, source(1, begun=2), b"b\n", is_settled=True)
    pieces = read_output(tmp_path, {})
    assert contents(pieces) == [b"a\n", b"b\n"]
    read_output(tmp_path, kept_names(pieces))
    assert (earlier.exists(), present.exists()) == (False, True)


def test_one_long_line_is_read_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, source(), b"x" * 10_000)
    assert contents(read_output(tmp_path, {})) == [b"x" * 10_000]


def test_a_file_that_was_cut_off_is_read_from_its_beginning(tmp_path: Path) -> None:
    write(tmp_path, source(), b"new\n")
    [piece] = read_output(tmp_path, {str(source()): 1000})
    assert (piece.content, piece.ends_at) == (b"new\n", 4)


def test_other_files_and_a_missing_directory_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert read_output(tmp_path, {}) == []
    assert read_output(tmp_path / "none", {}) == []


def test_a_rank_whose_files_cannot_be_made_prints_where_it_printed_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "job_1").write_text("no directory")
    send_output_to(OutputPlace(str(tmp_path), "job_1", 0), 3)
    assert "what rank 3 prints is not kept" in caplog.text
