"""Damage of every kind to checkpoints on disk, crashes while one is written, and files that try to execute code."""

from __future__ import annotations

import errno
import io
import logging
import os
import pickle
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.trainers.checkpoint_states import (
    change_manifest,
    checkpoints,
    names,
    newest_step,
    replace_file,
    save,
    small_state,
)
from tests.support.trainers.ranks import rank_context
from tests.support.waiting import PATIENCE_SECONDS
from trainers.checkpoints import CheckpointNotStored, CheckpointNotWritten
from trainers.storage import full_disks

TENSORS = "rank-00000.safetensors"


def _flip_a_byte(path: Path) -> None:
    content = bytearray((path / TENSORS).read_bytes())
    content[len(content) // 2] ^= 1
    (path / TENSORS).write_bytes(content)


def _truncate(path: Path) -> None:
    os.truncate(path / TENSORS, 1000)


def _truncate_and_correct_the_checksum(path: Path) -> None:
    replace_file(path, TENSORS, (path / TENSORS).read_bytes()[:1000])


def _empty(path: Path) -> None:
    (path / TENSORS).write_bytes(b"")


def _lose_the_tensors(path: Path) -> None:
    (path / TENSORS).unlink()


def _lose_the_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def _truncate_the_manifest(path: Path) -> None:
    os.truncate(path / "manifest.json", 500)


def _spoil_the_manifest(path: Path) -> None:
    (path / "manifest.json").write_bytes(b"\xff\x00{")


def _empty_the_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("[]")


def _change_a_digit(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    assert '"batch_size":48' in text
    (path / "manifest.json").write_text(text.replace('"batch_size":48', '"batch_size":49'))


@pytest.mark.parametrize(
    "damage",
    [
        _flip_a_byte,
        _truncate,
        _truncate_and_correct_the_checksum,
        _empty,
        _lose_the_tensors,
        _lose_the_manifest,
        _truncate_the_manifest,
        _spoil_the_manifest,
        _empty_the_manifest,
        _change_a_digit,
    ],
)
def test_a_damaged_newest_falls_back_to_the_one_before_and_says_so(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    for step in (10, 20):
        save(checkpoints(tmp_path), step)
    damage(tmp_path / "step-00000020")
    to = checkpoints(tmp_path)
    restored = to.load(small_state(1))
    assert restored is not None
    assert restored.measurement.step == 10
    assert len(restored.skipped) == 1
    assert restored.skipped[0].startswith("step-00000020: ")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "step-00000020 is damaged" in caplog.text
    save(to, 20)
    assert newest_step(tmp_path) == 20
    assert names(tmp_path) == {"step-00000010", "step-00000020"}


@pytest.mark.slow
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    save(checkpoints(tmp_path), 10)
    save(checkpoints(tmp_path), 20)
    choose = random.Random(0)
    for name in ("manifest.json", TENSORS):
        path = tmp_path / "step-00000020" / name
        content = path.read_bytes()
        for _ in range(100):
            spoiled = bytearray(content)
            spoiled[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
            path.write_bytes(spoiled)
            assert newest_step(tmp_path) == 10
        path.write_bytes(content)
    assert newest_step(tmp_path) == 20


def test_when_all_are_damaged_there_is_none(tmp_path: Path) -> None:
    save(checkpoints(tmp_path), 10)
    _truncate(tmp_path / "step-00000010")
    assert newest_step(tmp_path) is None


def test_damaged_ones_do_not_count_among_those_kept(tmp_path: Path) -> None:
    for step in (10, 20, 31):
        save(checkpoints(tmp_path, num_kept=3), step)
    _empty(tmp_path / "step-00000031")
    to = checkpoints(tmp_path)
    restored = to.load(small_state(1))
    assert restored is not None
    assert restored.measurement.step == 20
    # Measurements taken by the clock fall on other steps the second time.
    save(to, 29)
    assert names(tmp_path) == {"step-00000020", "step-00000029"}


def test_one_that_another_writes_over_it_is_replaced(tmp_path: Path) -> None:
    save(checkpoints(tmp_path), 10, {"weight": torch.zeros(3)})
    save(checkpoints(tmp_path), 10, {"weight": torch.ones(3)})
    restored = checkpoints(tmp_path).load({})
    assert restored is not None
    assert torch.equal(restored.state["weight"], torch.ones(3))
    assert names(tmp_path) == {"step-00000010"}


class _Executes:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


def _torch_saved() -> bytes:
    buffer = io.BytesIO()
    torch.save({"model": _Executes()}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("content", [pickle.dumps(_Executes()), _torch_saved()], ids=["pickle", "torch"])
@pytest.mark.parametrize("name", [TENSORS, "manifest.json", ".metadata", "__0_0.distcp"])
def test_a_checkpoint_cannot_execute_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    save(checkpoints(tmp_path), 10)
    checkpoint = tmp_path / "step-00000010"
    if name == "manifest.json":
        (checkpoint / name).write_bytes(content)
    elif name == TENSORS:
        # Its bytes are taken for the tensors', if there are enough of them, with a checksum that fits.
        replace_file(checkpoint, name, content.ljust((checkpoint / name).stat().st_size, b"."))
    else:
        (checkpoint / name).write_bytes(content)  # DCP would read it
    checkpoints(tmp_path).load(small_state(1))
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest["files"].update({"../../etc/passwd": "0"}),
        lambda manifest: manifest.update(world_size=2),
        lambda manifest: manifest.update(world_size="many"),
        lambda manifest: manifest.update(step=1, surprise=1),
        lambda manifest: manifest.update(structure={"call": "os.system"}),
        lambda manifest: manifest.update(structure=None),
        lambda manifest: manifest["tensors"].clear(),
        lambda manifest: _tensor(manifest).__setitem__(0, "OBJECT"),
        lambda manifest: _chunk(manifest).__setitem__(2, "../../../etc/passwd"),
        lambda manifest: _chunk(manifest).__setitem__(3, -1000),
        lambda manifest: _chunk(manifest).__setitem__(3, 1 << 40),
        lambda manifest: _chunk(manifest).__setitem__(1, [1 << 30, 1 << 30]),
    ],
)
def test_a_manifest_that_makes_no_sense_is_damage(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    for step in (10, 20):
        save(checkpoints(tmp_path), step)
    change_manifest(tmp_path / "step-00000020", dict)
    assert newest_step(tmp_path) == 20
    change_manifest(tmp_path / "step-00000020", change)
    assert newest_step(tmp_path) == 10


def _tensor(manifest: dict[str, Any]) -> list[Any]:
    found = manifest["tensors"]["state/model/weight"]
    assert isinstance(found, list)
    return found


def _chunk(manifest: dict[str, Any]) -> list[Any]:
    chunk = _tensor(manifest)[2][0]
    assert isinstance(chunk, list)
    return chunk


@pytest.mark.processes
def test_a_kill_in_mid_write_leaves_the_previous_one(tmp_path: Path) -> None:
    process = rank_context().Process(target=_save_until_killed, args=(tmp_path,))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL
    assert len(names(tmp_path)) == 3
    assert newest_step(tmp_path) == 20
    save(checkpoints(tmp_path), 30)
    assert names(tmp_path) == {"step-00000020", "step-00000030"}


def _save_until_killed(directory: Path) -> None:
    """The work of the process that is killed while it writes its third checkpoint."""
    to = checkpoints(directory)
    save(to, 10)
    save(to, 20)
    os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    save(to, 30)


@pytest.mark.parametrize("num_flushes", range(4))
def test_a_disk_that_is_full_at_any_flush_leaves_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_flushes: int
) -> None:
    to = checkpoints(tmp_path)
    save(to, 10)
    flush, flushed = os.fsync, []

    def full(descriptor: int) -> None:
        flushed.append(descriptor)
        if len(flushed) > num_flushes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        patched.setattr(full_disks, "FULL_DISK_SECONDS", 0.0)
        with pytest.raises(CheckpointNotStored, match=r"checkpoint of step 20 in .*No space left on device"):
            save(to, 20)
    # The tensors, the manifest and their directory are flushed before the new name is given, the name after it.
    assert newest_step(tmp_path) == (10 if num_flushes < 3 else 20)
    assert not any(name.startswith(".") for name in names(tmp_path))
    save(to, 20)
    assert newest_step(tmp_path) == 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_for_a_moment_delays_a_checkpoint_which_holds_no_room_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    to = checkpoints(tmp_path)
    save(to, 10)
    flush, failures = os.fsync, [number, number]
    waits: list[list[Path]] = []
    """The files that there are of the checkpoint at the begin of each wait."""

    def full(descriptor: int) -> None:
        if failures:
            raise OSError(failures.pop(), "no room")
        flush(descriptor)

    def note(_record: logging.LogRecord) -> bool:
        waits.append([path for path in tmp_path.glob(".partial-*/*") if path.is_file()])
        return True

    monkeypatch.setattr(os, "fsync", full)
    full_disks.logger.addFilter(note)
    try:
        save(to, 20)
    finally:
        full_disks.logger.removeFilter(note)
    assert newest_step(tmp_path) == 20
    assert waits == [[], []]


def test_what_is_no_lack_of_room_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = checkpoints(tmp_path)

    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(CheckpointNotWritten, match="Input/output error") as raised:
        save(to, 10)
    assert not isinstance(raised.value, CheckpointNotStored)
