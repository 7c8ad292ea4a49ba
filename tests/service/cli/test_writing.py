"""Files that commands write are whole, or not there; what they are to replace stays meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cli.writing import AlreadyThere, write_whole


def test_a_file_that_cannot_be_written_to_its_end_keeps_what_it_had(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    path = tmp_path / "job.yaml"
    path.write_text("precious")
    path.chmod(0o600)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, pieces(), overwrites=True)
    assert path.read_text() == "precious"
    write_whole(path, [b"wh", b"ole"], overwrites=True)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("whole", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_is_refused_before_its_content_is_asked_for(tmp_path: Path) -> None:
    asked = []

    def pieces() -> Iterator[bytes]:
        asked.append(True)
        yield b"new"

    path, link = tmp_path / "job.yaml", tmp_path / "link"
    path.write_text("precious")
    link.symlink_to(path)
    for there in (path, link):
        with pytest.raises(AlreadyThere, match=f"^{there} is there already; --overwrite replaces it$"):
            write_whole(there, pieces(), overwrites=False)
    assert (path.read_text(), asked) == ("precious", [])


def test_a_link_and_a_device_stay_what_they_are(tmp_path: Path) -> None:
    path, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(path)
    write_whole(link, [b"whole"], overwrites=False)
    assert (link.is_symlink(), path.read_text()) == (True, "whole")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, [b"whole"], overwrites=False)
        assert os.read(reader, 100) == b"whole"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
