"""A checkpoint of one trial as the beginning of another: the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.file_size_limit import files_end_at
from tests.support.trainers.checkpoint_states import (
    checkpoints,
    config,
    names,
    newest_step,
    save,
    small_state,
)
from tests.support.trainers.trials import assert_same_bits
from trainers.checkpoints import CheckpointMissing, fork_checkpoint


def test_a_copy_is_loaded_like_the_original(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(checkpoints(tmp_path / "1"), step)
    (tmp_path / "2" / ".partial-step-00000020-0").mkdir(parents=True)  # left by a crash
    save(checkpoints(tmp_path / "2"), 5)
    fork_checkpoint(tmp_path / "1", tmp_path / "2", step=20, config=config())
    fork_checkpoint(
        tmp_path / "1", tmp_path / "2", step=20, config=config()
    )  # once more, after a crash that left nobody knowing
    assert names(tmp_path / "2") == {"step-00000020"}
    restored = checkpoints(tmp_path / "2").load(small_state(1))
    assert restored is not None
    assert (restored.measurement.step, restored.skipped) == (20, [])
    assert_same_bits(restored.state, small_state(20))
    save(checkpoints(tmp_path / "2"), 30)  # the trial goes on from there
    assert names(tmp_path / "2") == {"step-00000020", "step-00000030"}
    assert names(tmp_path / "1") == {"step-00000020", "step-00000030"}


def test_a_checkpoint_that_is_not_there_is_not_copied(tmp_path: Path) -> None:
    save(checkpoints(tmp_path / "1"), 10)
    with pytest.raises(CheckpointMissing, match="step-00000020"):
        fork_checkpoint(tmp_path / "1", tmp_path / "2", step=20, config=config())
    assert not (tmp_path / "2").exists()


def test_of_a_copy_that_fails_nothing_is_left(tmp_path: Path) -> None:
    save(checkpoints(tmp_path / "1"), 10)
    save(checkpoints(tmp_path / "2"), 5)
    with files_end_at(1000), pytest.raises(OSError, match="File too large"):
        fork_checkpoint(tmp_path / "1", tmp_path / "2", step=10, config=config())
    assert names(tmp_path / "2") == {"step-00000005"}
    assert newest_step(tmp_path / "2") == 5
