"""Entries that processes share: made once, whole or not at all, and made again when damaged."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import platformdirs
import pytest

from tests.support.waiting import PATIENCE_SECONDS, started
from trainers.data.prepared import DIRECTORY_VARIABLE, MANIFEST, cache_directory, prepared

# A process that prepares an entry, and says so in a file; with "die", it is killed half-way.
PREPARE = """
import os, sys, time
from pathlib import Path
from trainers.data.prepared import prepared

directory, log, fate = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def prepare(draft):
    with log.open("a") as stream:
        stream.write("prepared\\n")
    (draft / "numbers").write_bytes(b"1 2")
    if fate == "die":
        os._exit(9)
    time.sleep(0.3)
    (draft / "numbers").write_bytes(b"1 2 3")
    return {"count": 3}

entry, facts = prepared(directory, "numbers", {"n": 3}, prepare)
assert (entry / "numbers").read_bytes() == b"1 2 3" and facts == {"count": 3}
"""


def processes(directory: Path, number: int, fate: str = "live") -> list[int]:
    """Runs so many at once; gives their exit codes."""
    command = [sys.executable, "-c", PREPARE, str(directory / "cache"), str(directory / "log"), fate]
    with ExitStack() as stack:
        all_of_them = [stack.enter_context(started(command)) for _ in range(number)]
        return [process.wait(PATIENCE_SECONDS) for process in all_of_them]


def test_a_directory_that_cannot_be_made_is_refused_with_the_names_of_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "cache"):
        with pytest.raises(ValueError, match=r"/file.*; the option cache_directory, or SHAMPOO_TUNER_CACHE, names"):
            prepared(directory, "numbers", {"n": 3}, Numbers())


class Numbers:
    """Prepares an entry with a large and a small file, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, draft: Path) -> dict[str, int]:
        self.times += 1
        assert list(draft.iterdir()) == []
        (draft / "large").write_bytes(bytes(range(256)) * 4096)
        (draft / "small").write_bytes(b"123")
        return {"count": 3}


def test_an_entry_is_prepared_once_and_found_again(tmp_path: Path) -> None:
    numbers = Numbers()
    for _ in range(3):
        entry, facts = prepared(tmp_path / "not" / "yet", "numbers", {"n": 3}, numbers)
        assert facts == {"count": 3}
        assert (entry / "small").read_bytes() == b"123"
    assert numbers.times == 1
    other, _ = prepared(tmp_path / "not" / "yet", "numbers", {"n": 4}, numbers)
    assert (other != entry, numbers.times) == (True, 2)


@pytest.mark.processes
def test_of_processes_that_start_at_once_one_prepares(tmp_path: Path) -> None:
    assert processes(tmp_path, 3) == [0, 0, 0]
    assert (tmp_path / "log").read_text() == "prepared\n"


@pytest.mark.processes
def test_after_a_kill_the_next_prepares_all_of_it(tmp_path: Path) -> None:
    assert processes(tmp_path, 1, "die") == [9]
    assert len(list((tmp_path / "cache").glob(".numbers-*"))) == 1
    assert processes(tmp_path, 2) == [0, 0]
    assert (tmp_path / "log").read_text() == "prepared\nprepared\n"
    assert not list((tmp_path / "cache").glob(".numbers-*"))


def test_after_an_error_nothing_remains(tmp_path: Path) -> None:
    def fail(draft: Path) -> dict[str, int]:
        (draft / "half").touch()
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        prepared(tmp_path, "numbers", {}, fail)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    numbers = Numbers()
    prepared(tmp_path, "numbers", {}, numbers)
    assert numbers.times == 1


@pytest.mark.parametrize("damage", ["truncate", "alter", "zero", "remove", "manifest", "directory"])
def test_a_damaged_entry_is_prepared_again(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    numbers = Numbers()
    entry, _ = prepared(tmp_path, "numbers", {}, numbers)
    large = entry / "large"
    match damage:
        case "truncate":
            os.truncate(large, 4096)
        case "alter":
            (entry / "small").write_bytes(b"124")
        case "zero":  # what a crash of the machine leaves of a file that was not on the disk
            large.write_bytes(bytes(large.stat().st_size))
        case "remove":
            large.unlink()
        case "manifest":
            (entry / MANIFEST).write_bytes(b"\xff[")
        case "directory":
            for file in entry.iterdir():
                file.unlink()
    with caplog.at_level(logging.WARNING):
        assert prepared(tmp_path, "numbers", {}, numbers) == (entry, {"count": 3})
    assert numbers.times == 2
    assert large.read_bytes() == bytes(range(256)) * 4096
    assert "is damaged, and was prepared again" in caplog.text


def test_who_has_mapped_a_damaged_entry_keeps_it(tmp_path: Path) -> None:
    entry, _ = prepared(tmp_path, "numbers", {}, Numbers())
    with (entry / "large").open("rb") as stream:
        (entry / "small").unlink()
        prepared(tmp_path, "numbers", {}, Numbers())
        assert stream.read() == bytes(range(256)) * 4096


def test_the_option_comes_before_the_variable_and_that_before_the_users_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    assert cache_directory(None) == Path(platformdirs.user_cache_dir("shampoo-tuner"))
    monkeypatch.setenv(DIRECTORY_VARIABLE, "/variable")
    assert cache_directory(None) == Path("/variable")
    assert cache_directory("~/option") == Path.home() / "option"
    with pytest.raises(ValueError, match="cache_directory must be a path or null, got 3"):
        cache_directory(3)
    with pytest.raises(ValueError, match="is not known; the option cache_directory, or SHAMPOO_TUNER_CACHE, names"):
        cache_directory("~nobody-of-this-name/cache")
