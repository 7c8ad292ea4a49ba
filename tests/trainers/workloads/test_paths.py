"""Remarks on the paths that a job names, before anything is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainers.data.roots import DataRoots
from trainers.workloads import paths
from trainers.workloads.paths import problems_of_paths
from trainers.workloads.registry import BUILT_IN

TEXT = BUILT_IN["text-lm"]


def problems(**options: object) -> list[tuple[str, str]]:
    return list(problems_of_paths(TEXT, options))  # type: ignore[arg-type]  # a request may hold anything


def test_every_option_that_is_a_path_is_one_of_the_workload_and_says_so() -> None:
    found = {
        name: [o for o, option in each.options.items() if option.role == "path"] for name, each in BUILT_IN.items()
    }
    assert {name: options for name, options in found.items() if options} == {
        "text-lm": ["path", "validation_path"],
        "image-folder": ["path"],
        "click-log": ["path", "validation_path"],
        "huggingface": ["model_path", "path", "validation_path"],
    }


def test_data_have_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep" / "down").mkdir(parents=True)
    (tmp_path / "deep" / "down" / "a.txt").write_text("text")
    (tmp_path / "deep" / "empty.txt").touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for path in (str(tmp_path / "deep"), str(tmp_path / "deep" / "down" / "a.txt"), "~/deep", "deep"):
        assert problems(path=path) == []
    assert problems(path=None, validation_path="", tokenizer="/nowhere") == []  # the workload's to judge


def test_what_cannot_be_read_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "bare" / "deeper").mkdir(parents=True)
    (tmp_path / "hollow").mkdir()
    (tmp_path / "hollow" / "a.txt").touch()
    os.mkfifo(tmp_path / "pipe")
    missing, lost = str(tmp_path / "text.txt"), str(tmp_path / "no" / "such" / "place")
    assert problems(path=missing) == [("path", f"there is nothing at {missing!r}")]
    assert problems(path=lost) == [("path", f"there is nothing at {lost!r}: {str(tmp_path)!r} is as far as it leads")]
    for name, words in {
        "empty.txt": "is an empty file",
        "bare": "is a directory without a file",
        "hollow": "is a directory of empty files",
        "pipe": "is neither a file nor a directory",
    }.items():
        path = str(tmp_path / name)
        assert problems(validation_path=path) == [("validation_path", f"{path!r} {words}")]
    assert [option for option, _ in problems(path=missing, validation_path=missing)] == ["path", "validation_path"]
    for odd in ("a" * 5000, "nul\0", "~nobody-of-this-name/x"):
        assert len(problems(path=odd)) == 1


def test_a_large_directory_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MAX_LOOKED_AT", 3)
    for number in range(4):
        (tmp_path / f"{number}.txt").touch()
    assert problems(path=str(tmp_path)) == []


@pytest.mark.parametrize("target", ["there.txt", "missing.txt", "full", "bare"])
def test_a_link_out_of_the_roots_tells_nothing_of_where_it_leads(tmp_path: Path, target: str) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "data").mkdir(parents=True)
    (elsewhere / "full").mkdir(parents=True)
    (elsewhere / "bare").mkdir()
    for name in ("there.txt", "full/a.txt"):
        (elsewhere / name).write_text("text")
    link = root / "data" / "link"
    link.symlink_to(elsewhere / target)
    path = str(root / "data")
    message = f"{path!r} holds a link that leads out of the directories of data: {str(link)!r}"
    assert list(problems_of_paths(TEXT, {"path": path}, DataRoots((str(root),)))) == [("path", message)]
    link.unlink()
    (root / "own.txt").write_text("text")
    link.symlink_to(root / "own.txt")
    assert list(problems_of_paths(TEXT, {"path": path}, DataRoots((str(root),)))) == []
