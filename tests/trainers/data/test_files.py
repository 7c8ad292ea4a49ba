"""The files that a path stands for, the beginnings of lines in them, and the equality of their content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainers.data import files as module
from trainers.data.files import content_digest, data_files, line_end, stretches


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory of files in an order that is not the alphabet's."""
    root = tmp_path / "data"
    for name in ("day_10.txt", "day_2.txt", "more/a.txt", "notes.md", ".hidden.txt", "_SUCCESS", ".git/x.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def names(directory: Path, **arguments: object) -> list[str]:
    return [file.name for file in data_files("path", str(directory), **arguments)]  # type: ignore[arg-type]


def test_files_come_in_natural_order_without_hidden_ones(directory: Path) -> None:
    assert names(directory) == ["day_2.txt", "day_10.txt", "more/a.txt", "notes.md"]
    assert names(directory, suffixes=(".md",)) == ["notes.md"]
    assert names(directory, suffixes=(".md",), pattern="*.txt") == ["day_2.txt", "day_10.txt"]
    assert names(directory / "notes.md", suffixes=(".txt",)) == ["notes.md"]


def test_a_path_without_files_is_refused_by_name(directory: Path) -> None:
    for path, arguments, message in (
        (directory / "nothing", {}, "path must be a file or a directory, got '.*nothing'"),
        (directory, {"suffixes": (".a", ".b")}, r"is a directory without a file named \*.a, \*.b"),
        (directory, {"pattern": "*.c"}, r"is a directory without a file that '\*.c' finds"),
        (
            directory / "more",
            {"pattern": "../*.md"},
            "is not a pattern of files in path '.*more': it leads out of there",
        ),
        (directory, {"pattern": "/etc/*"}, "is not a pattern of files in path"),
    ):
        with pytest.raises(ValueError, match=message):
            names(path, **arguments)


def test_stretches_begin_with_lines_and_leave_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for text in (b"", b"\n", b"abc", b"a\n" * 50, b"abcdefgh\n\n\nij\nk" * 9, b"x" * 100 + b"\n" + b"y" * 100):
        path.write_bytes(text)
        for num_bytes in (1, 3, 10, 1000):
            found = list(stretches(path, 0, len(text), num_bytes=num_bytes))
            assert b"".join(text[start:stop] for start, stop in found) == text
            assert all(start == 0 or text[start - 1 : start] == b"\n" for start, _ in found)
    path.write_bytes(b"ab\ncd\n")
    assert [line_end(path, position) for position in range(7)] == [3, 3, 3, 3, 6, 6, 6]


def test_the_digest_is_of_names_and_contents_wherever_they_lie(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"

    def digest(root: Path) -> str:
        return content_digest(data_files("path", str(root)), cache_directory=cache)

    first = digest(directory)
    # Files that were written just now may change again within the clock's tick.
    assert not [path for path in (cache / "digests").iterdir() if path.suffix != ".lock"]
    monkeypatch.setattr(module, "UNSETTLED_SECONDS", -1.0)
    assert digest(directory) == first
    (remembered,) = (path for path in (cache / "digests").iterdir() if path.suffix != ".lock")
    assert remembered.read_text() == first
    remembered.write_text("0" * 64)  # it is what is believed
    assert digest(directory) == "0" * 64
    remembered.write_text("cut sho")
    assert digest(directory) == first
    shutil.copytree(directory, tmp_path / "copy")
    assert digest(tmp_path / "copy") == first
    (directory / "notes.md").write_text("notes.mD")
    assert digest(directory) != first
    (tmp_path / "copy" / "notes.md").rename(tmp_path / "copy" / "other.md")
    assert digest(tmp_path / "copy") not in (first, digest(directory))
