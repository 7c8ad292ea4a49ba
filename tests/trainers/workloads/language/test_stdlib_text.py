from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

import pytest
import torch

from trainers.workloads.language.stdlib_text import END_OF_FILE, VALIDATION_PERIOD, is_held_out, read_text, stdlib_text

LIBRARY = Path(sysconfig.get_paths()["stdlib"])


def test_training_and_validation_files_are_disjoint_and_sorted() -> None:
    text = stdlib_text()
    assert not set(text.train_files) & set(text.validation_files)
    for files in (text.train_files, text.validation_files):
        assert list(files) == sorted(set(files))
    assert {"argparse.py", "typing.py"} <= set(text.train_files)
    assert {"copy.py", "tempfile.py"} <= set(text.validation_files)


def test_the_texts_are_the_files_one_after_the_other() -> None:
    text = stdlib_text()
    for tensor, files in ((text.train_text, text.train_files), (text.validation_text, text.validation_files)):
        assert tensor.dtype == torch.uint8
        assert tensor.numpy().tobytes() == b"".join((LIBRARY / name).read_bytes() + END_OF_FILE for name in files)
        assert int((tensor == END_OF_FILE[0]).sum()) == len(files)


def test_some_megabytes_are_read_and_about_a_tenth_held_out() -> None:
    # 4.4 to 4.7 MB in the four releases from 3.10 to 3.13, of which 11 or 12 % are held out.
    text = stdlib_text()
    assert 3e6 < len(text.train_text) < 8e6
    assert 0.05 < len(text.validation_text) / len(text.train_text) < 0.2


def test_the_text_is_read_once_per_process() -> None:
    assert stdlib_text() is stdlib_text()


def test_the_digest_tells_what_was_read() -> None:
    text = stdlib_text()
    both = text.train_text.numpy().tobytes() + text.validation_text.numpy().tobytes()
    assert text.sha256 == hashlib.sha256(both).hexdigest()


def test_only_the_librarys_own_files_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    for name in ("typing.py", "copy.py", "argparse.py", "sitecustomize.py", "test_something.py", "LICENSE.txt"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "asyncio").mkdir()
    (tmp_path / "asyncio" / "queues.py").write_bytes(b"inside a folder")
    text = read_text(tmp_path)
    assert text.train_files == ("argparse.py", "typing.py")
    assert text.train_text.numpy().tobytes() == b"argparse.py\0typing.py\0"
    assert text.validation_files == ("copy.py",)
    assert text.validation_text.numpy().tobytes() == b"copy.py\0"


def test_which_files_are_held_out_follows_from_their_names() -> None:
    # Fixed for good: in every Python version a file is on the same side.
    names = ["abc.py", "argparse.py", "calendar.py", "copy.py", "glob.py", "os.py", "ssl.py", "typing.py"]
    assert [name for name in names if is_held_out(name)] == ["calendar.py", "copy.py", "glob.py", "ssl.py"]
    assert VALIDATION_PERIOD == 10


@pytest.mark.parametrize("present", [[], ["argparse.py"], ["copy.py"]])
def test_a_python_without_its_source_is_named(present: list[str], tmp_path: Path) -> None:
    for name in present:
        (tmp_path / name).write_text("pass")
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path} has {len(present)} source files"):
        read_text(tmp_path)
