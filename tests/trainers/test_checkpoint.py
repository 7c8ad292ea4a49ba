from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.trainers.trials import small_trial
from trainers.checkpoint import Checkpoint, CheckpointMismatch, CheckpointNotWritten, read_newest, save, write
from trainers.config import Measurement
from trainers.distributed import single_process_context

CONFIG = small_trial()


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(
        measurement=Measurement(step=step, epoch=step / 30, seconds=0.1 * step, metrics={"train_loss": 1 / step}),
        model={"weight": torch.full((50, 50), float(step))},
        optimizer={"state": {0: {"step": step}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99), "params": [0]}]},
        schedule={"last_epoch": step},
        random_states=[{"cpu": torch.get_rng_state()}],
    )


def newest_step(directory: Path) -> int | None:
    found = read_newest(directory, config=CONFIG)
    return None if found is None else found.measurement.step


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written = checkpoint(10)
    write(tmp_path / "new" / "directory", written, config=CONFIG)
    read = read_newest(tmp_path / "new" / "directory", config=CONFIG)
    assert read is not None
    assert read.measurement == written.measurement
    assert torch.equal(read.model["weight"], written.model["weight"])
    assert (read.optimizer, read.schedule) == (written.optimizer, written.schedule)
    assert torch.equal(read.random_states[0]["cpu"], written.random_states[0]["cpu"])


def test_no_checkpoint_and_no_directory_read_as_none(tmp_path: Path) -> None:
    assert newest_step(tmp_path) is None
    assert newest_step(tmp_path / "missing") is None


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        write(tmp_path, checkpoint(step), config=CONFIG)
    assert names(tmp_path) == {"step-00000030", "step-00000040"}


def test_what_is_written_is_kept_though_all_newer_ones_are_damaged(tmp_path: Path) -> None:
    for step in (30, 40):
        write(tmp_path, checkpoint(step), config=CONFIG)
        _empty(tmp_path / f"step-{step:08d}")
    assert newest_step(tmp_path) is None
    for step in (10, 20, 30, 40):
        write(tmp_path, checkpoint(step), config=CONFIG)
        assert newest_step(tmp_path) == step
    assert names(tmp_path) == {"step-00000030", "step-00000040"}


def _flip_a_byte(path: Path) -> None:
    content = bytearray((path / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "state.pt").write_bytes(content)


def _truncate(path: Path) -> None:
    os.truncate(path / "state.pt", 1000)


def _empty(path: Path) -> None:
    (path / "state.pt").write_bytes(b"")


def _lose_the_state(path: Path) -> None:
    (path / "state.pt").unlink()


def _lose_the_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def _spoil_the_manifest(path: Path) -> None:
    (path / "manifest.json").write_bytes(b"\xff\x00{")


def _empty_the_manifest(path: Path) -> None:
    (path / "manifest.json").write_text("[]")


@pytest.mark.parametrize(
    "damage",
    [
        _flip_a_byte,
        _truncate,
        _empty,
        _lose_the_state,
        _lose_the_manifest,
        _spoil_the_manifest,
        _empty_the_manifest,
    ],
)
def test_a_damaged_newest_falls_back_to_the_one_before(
    tmp_path: Path, damage: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(damage)
    write(tmp_path, checkpoint(10), config=CONFIG)
    write(tmp_path, checkpoint(20), config=CONFIG)
    damage(tmp_path / "step-00000020")
    assert newest_step(tmp_path) == 10
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "step-00000020 is damaged" in caplog.text
    write(tmp_path, checkpoint(20), config=CONFIG)
    assert newest_step(tmp_path) == 20


def test_when_all_are_damaged_there_is_none(tmp_path: Path) -> None:
    write(tmp_path, checkpoint(10), config=CONFIG)
    _truncate(tmp_path / "step-00000010")
    assert newest_step(tmp_path) is None


class _Executes:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch executed",)


def test_a_checkpoint_cannot_execute_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, checkpoint(10), config=CONFIG)
    buffer = io.BytesIO()
    torch.save({"model": _Executes()}, buffer)
    manifest = json.loads((tmp_path / "step-00000010" / "manifest.json").read_text())
    manifest["sha256"]["state.pt"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    (tmp_path / "step-00000010" / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "step-00000010" / "state.pt").write_bytes(buffer.getvalue())
    assert newest_step(tmp_path) is None
    assert "more than tensors and plain values" in caplog.text
    assert not (tmp_path / "executed").exists()


def test_another_config_is_refused_and_what_differs_named(tmp_path: Path) -> None:
    write(tmp_path, checkpoint(10), config=CONFIG)
    with pytest.raises(CheckpointMismatch, match="another config: batch_size 48 there, 96 here; seed 0 there, 1 here"):
        read_newest(tmp_path, config=small_trial(batch_size=96, seed=1))


def test_a_kill_in_mid_write_leaves_the_previous_one(tmp_path: Path) -> None:
    program = f"""if True:
        import os, sys, time
        from pathlib import Path
        from tests.trainers.test_checkpoint import CONFIG, checkpoint, write
        directory = Path({str(tmp_path)!r})
        write(directory, checkpoint(10), config=CONFIG)
        write(directory, checkpoint(20), config=CONFIG)
        def hang(descriptor):
            print("writing", flush=True)
            time.sleep(60)
        os.fsync = hang
        write(directory, checkpoint(30), config=CONFIG)
    """
    repository = Path(__file__).parents[2]
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=repository) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        os.kill(process.pid, signal.SIGKILL)
    assert len(names(tmp_path)) == 3
    assert newest_step(tmp_path) == 20
    write(tmp_path, checkpoint(30), config=CONFIG)
    assert names(tmp_path) == {"step-00000020", "step-00000030"}


def test_a_full_disk_at_the_flush_leaves_the_previous_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = single_process_context()
    save(tmp_path, checkpoint(10), config=CONFIG, context=context)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointNotWritten, match=r"checkpoint of step 20 in .*No space left on device"):
        save(tmp_path, checkpoint(20), config=CONFIG, context=context)
    assert names(tmp_path) == {"step-00000010"}
    assert newest_step(tmp_path) == 10


def test_a_write_the_system_refuses_leaves_the_previous_one(tmp_path: Path) -> None:
    context = single_process_context()
    save(tmp_path, checkpoint(10), config=CONFIG, context=context)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(CheckpointNotWritten, match=r"checkpoint of step 20 in .*File too large"):
            save(tmp_path, checkpoint(20), config=CONFIG, context=context)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == {"step-00000010"}
    assert newest_step(tmp_path) == 10
