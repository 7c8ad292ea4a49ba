"""The digest of data: of files wherever they lie, or of examples."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from trainers.identity.data import MAX_FILES, content_digest
from trainers.workload.description import OptionRole, WorkloadDescription, WorkloadOption


def described(roles: Mapping[str, OptionRole]) -> WorkloadDescription:
    return WorkloadDescription(
        name="mine",
        title="mine",
        implementation="mine:Mine",
        metrics={"loss": "minimize"},
        default_objective="loss",
        default_num_steps=1,
        default_evaluate_every=1,
        default_batch_size=1,
        options={name: WorkloadOption(None, "", role=role) for name, role in roles.items()},
    )


class Examples:
    """Gives examples by their numbers."""

    def __init__(self, *, first: float = 0.0, num: int = 100) -> None:
        self.data = torch.arange(num, dtype=torch.float32).reshape(-1, 1)
        self.data[0] = first
        self.num_train_examples = num

    def batch(self, indices: Tensor) -> Any:
        return {"x": self.data[indices], "y": (self.data[indices].long(),)}


class Counted(Examples):
    def counts(self) -> Mapping[str, int]:
        return {"read": 1}


class Broken(Examples):
    def batch(self, indices: Tensor) -> Any:
        raise KeyError("no such example")


WORKLOAD: Any = Examples()


def digest(**options: str) -> str | None:
    return content_digest(WORKLOAD, described(dict.fromkeys(options, "path")), options)


def written(directory: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return directory


def test_files_stand_for_themselves_wherever_they_lie(tmp_path: Path) -> None:
    files = {"train/a.txt": b"one", "train/b.txt": b"two", "validation.txt": b"three"}
    here = digest(path=str(written(tmp_path / "here", files)))
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    (tmp_path / "there" / ".hidden").write_bytes(b"not read")
    assert digest(path=str(tmp_path / "there")) == here is not None
    for number, change in enumerate([{"train/a.txt": b"won"}, {"train/a.txt": b"ones"}, {"train/c.txt": b""}]):
        assert digest(path=str(written(tmp_path / f"other-{number}", {**files, **change}))) != here


def test_each_option_with_a_path_counts_and_a_word_in_its_place_as_it_is(tmp_path: Path) -> None:
    path = str(written(tmp_path, {"text.txt": b"text"}) / "text.txt")
    found = {digest(path=path), digest(path=path, tokenizer="byte"), digest(path=path, tokenizer="words")}
    assert len(found) == 3
    assert digest(path=path, validation_path=path) not in found


@pytest.mark.slow
def test_links_that_lead_nowhere_or_in_a_circle_are_passed_over(tmp_path: Path) -> None:
    files = {"a/1.txt": b"one", "b/2.txt": b"two"}
    without, linked = written(tmp_path / "without", files), written(tmp_path / "linked", files)
    (linked / "a" / "dangling.txt").symlink_to("missing.txt")
    (linked / "a" / "circle.txt").symlink_to("circle.txt")
    (linked / "a" / "back").symlink_to("..")
    (linked / "b" / "same").symlink_to("../b")
    assert digest(path=str(linked)) == digest(path=str(without)) is not None


@pytest.mark.slow
def test_of_many_files_all_names_and_some_contents_count(tmp_path: Path) -> None:
    files = {f"{number:05d}": b"x" for number in range(2 * MAX_FILES)}
    before = digest(path=str(written(tmp_path / "a", files)))
    assert digest(path=str(written(tmp_path / "b", {**files, "00000": b"y"}))) != before
    assert digest(path=str(written(tmp_path / "c", {**files, "00001": b"y"}))) == before
    assert digest(path=str(written(tmp_path / "d", {**files, "zzz": b"x"}))) != before


def test_without_files_examples_stand_for_the_data() -> None:
    plain = described({})
    first = content_digest(Examples(), plain, {})  # type: ignore[arg-type]
    assert first == content_digest(Examples(), plain, {}) is not None  # type: ignore[arg-type]
    others = [Examples(first=1.0), Examples(num=101)]
    assert all(content_digest(other, plain, {}) != first for other in others)  # type: ignore[arg-type]


def test_data_that_cannot_be_asked_for_have_no_digest() -> None:
    for workload in (Counted(), Broken(), object()):
        assert content_digest(workload, described({}), {}) is None  # type: ignore[arg-type]
