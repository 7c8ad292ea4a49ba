"""A state that does not fit is refused before it is allocated, by what takes most of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from shampoo import Shampoo, cost, memory
from shampoo.memory import free_bytes

CPU = torch.device("cpu")


@pytest.fixture
def small_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 1 MiB to spare, and no control group: the fault that is injected."""
    (tmp_path / "meminfo").write_text("MemTotal:       2048 kB\nMemAvailable:       1024 kB\nHugePages_Total:  0\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CONTROL_GROUP", tmp_path)
    return tmp_path


def test_the_free_memory_of_this_machine_is_a_part_of_it() -> None:
    free = free_bytes(CPU)
    assert free is not None
    assert 0 < free <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.usefixtures("small_machine")
def test_a_state_that_does_not_fit_is_refused_by_what_takes_most_of_it() -> None:
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in ((8, 8), (200, 300), (5,))]
    with pytest.raises(MemoryError, match=re.escape("0.00 GiB left; most of it")) as refusal:
        Shampoo(params)
    assert "(200, 300)" in str(refusal.value)
    assert "3 parameters" in str(refusal.value)
    assert "max_preconditioner_dim=1024" in str(refusal.value)
    Shampoo([params[0], params[2]])


def test_what_fits_to_the_byte_is_taken(small_machine: Path) -> None:
    shapes = [(40, 30), (7,)]
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    cost_of = cost.estimate(shapes)
    needed = cost_of.state_bytes + cost_of.scratch_bytes
    group = small_machine / "memory.max", small_machine / "memory.current", small_machine / "memory.stat"
    for content, path in zip((str(needed + 10_000), "10500", "anon 400\nfile 500\n"), group, strict=True):
        path.write_text(content)
    assert free_bytes(CPU) == needed
    Shampoo(params)
    group[1].write_text("10501")
    with pytest.raises(MemoryError):
        Shampoo(params)


@pytest.mark.usefixtures("small_machine")
def test_a_group_that_does_not_fit_leaves_nothing_behind() -> None:
    optimizer = Shampoo([torch.nn.Parameter(torch.ones(4, 4))])
    with pytest.raises(MemoryError):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(500, 500))]})
    assert len(optimizer.param_groups) == 1
    assert len(optimizer.state) == 1


@pytest.mark.parametrize(
    ("own", "directory", "names"),
    [
        ("0::/job/step", "job", ("memory.max", "memory.current", "file")),
        ("4:memory:/job/step\n0::/", "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")),
    ],
)
def test_the_limit_of_a_group_around_counts(
    small_machine: Path, monkeypatch: pytest.MonkeyPatch, own: str, directory: str, names: tuple[str, str, str]
) -> None:
    monkeypatch.setattr(memory, "_OWN_GROUPS", small_machine / "own")
    (small_machine / "own").write_text(own)
    group, (limit, used, cache) = small_machine / directory, names
    group.mkdir()
    for name, content in ((limit, "9000"), (used, "5000"), ("memory.stat", f"{cache} 500\n")):
        (group / name).write_text(content)
    assert free_bytes(CPU) == 4500


def test_without_a_limit_the_machine_counts(small_machine: Path) -> None:
    (small_machine / "memory.max").write_text("max\n")
    (small_machine / "memory.current").write_text("10")
    (small_machine / "memory.stat").write_text("file 3\n")
    assert free_bytes(CPU) == 1 << 20


def test_where_nothing_is_known_nothing_is_refused(small_machine: Path) -> None:
    (small_machine / "meminfo").unlink()
    assert free_bytes(CPU) is None
    Shampoo([torch.nn.Parameter(torch.ones(300, 300))])
