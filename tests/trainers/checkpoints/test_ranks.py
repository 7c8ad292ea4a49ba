"""Checkpoints of several ranks: sharded and resharded, agreed on, and survived."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from tests.support.trainers import checkpoint_states
from tests.support.trainers.checkpoint_states import checkpoints, names, newest_step, replace_file
from tests.support.trainers.ranks import WarmRanks, rank_context
from tests.support.trainers.trials import assert_same_bits
from tests.support.waiting import PATIENCE_SECONDS
from trainers.ranks.context import DEFAULT_TIMEOUT_SECONDS


@pytest.mark.parametrize(
    ("mode", "optimizer"),
    [
        ("ddp", "adamw"),
        ("ddp", "lawa"),
        ("ddp", "shampoo_blocks"),
        ("fsdp2", "adamw"),
        ("fsdp2", "sgd"),
        ("fsdp2", "ema"),
        ("fsdp2", "lawa"),
        ("fsdp2", "shampoo_blocks"),
    ],
)
def test_a_state_of_two_ranks_loads_on_one_and_three_and_back(
    tmp_path: Path, two_ranks: WarmRanks, three_ranks: WarmRanks, mode: str, optimizer: str
) -> None:
    saved = two_ranks.run(checkpoint_states.train_and_save, tmp_path, optimizer, mode, 2)[0]
    one = checkpoint_states.load_and_gather(tmp_path, optimizer, "ddp", 1)
    loaded = [
        *two_ranks.run(checkpoint_states.load_and_gather, tmp_path, optimizer, mode, 2),
        *three_ranks.run(checkpoint_states.load_and_gather, tmp_path, optimizer, mode, 3),
    ]
    for state, _, world_size in [one, *loaded]:
        assert_same_bits(state, saved)
        assert world_size == 2
    assert one[1] == []
    assert all(len(sharded) == (6 if mode == "fsdp2" else 0) for _, sharded, _ in loaded)


def test_a_state_of_one_rank_loads_where_it_is_sharded(tmp_path: Path, two_ranks: WarmRanks) -> None:
    saved = checkpoint_states.train_and_save(tmp_path, "adamw", "ddp", 1)
    for state, sharded, world_size in two_ranks.run(checkpoint_states.load_and_gather, tmp_path, "adamw", "fsdp2", 2):
        assert_same_bits(state, saved)
        assert (len(sharded), world_size) == (6, 1)


@pytest.mark.parametrize("optimizer", ["adamw", "shampoo_blocks"])
def test_a_state_goes_from_two_ranks_to_one_to_four_and_back(
    tmp_path: Path, two_ranks: WarmRanks, optimizer: str
) -> None:
    four_ranks = WarmRanks(4, tmp_path / "meeting_point")
    saved = two_ranks.run(checkpoint_states.train_and_save, tmp_path / "two", optimizer, "fsdp2", 2)[0]
    for mode in ("fsdp2", "hsdp", "ddp"):
        loaded = four_ranks.run(checkpoint_states.load_and_gather, tmp_path / "two", optimizer, mode, 4)
        for state, sharded, _ in loaded:
            assert_same_bits(state, saved)
            assert len(sharded) == (0 if mode == "ddp" else 6)
    assert_same_bits(checkpoint_states.load_and_gather(tmp_path / "two", optimizer, "ddp", 1)[0], saved)
    saved = four_ranks.run(checkpoint_states.train_and_save, tmp_path / "four", optimizer, "hsdp", 4)[0]
    assert_same_bits(checkpoint_states.load_and_gather(tmp_path / "four", optimizer, "ddp", 1)[0], saved)
    for state, _, _ in two_ranks.run(checkpoint_states.load_and_gather, tmp_path / "four", optimizer, "fsdp2", 2):
        assert_same_bits(state, saved)
    assert four_ranks.stop() == [0] * 4


def test_the_work_of_writing_is_shared(tmp_path: Path, two_ranks: WarmRanks) -> None:
    two_ranks.run(checkpoint_states.train_and_save, tmp_path, "adamw", "ddp", 2)
    sizes = [path.stat().st_size for path in (tmp_path / "step-00000010").glob("*.safetensors")]
    assert len(sizes) == 2
    # Beside their share of 2.5 kB, both hold their own random generators (25 kB).
    assert max(sizes) < 1.1 * min(sizes)


def test_entries_that_one_rank_owns_are_loaded_where_they_are_wanted(tmp_path: Path, two_ranks: WarmRanks) -> None:
    states = two_ranks.run(
        checkpoint_states.own_entries_are_loaded_where_the_template_has_them, tmp_path / "swapped", [1, 0]
    )
    for rank, state in enumerate(states):
        factor = {"matrix": torch.full((2, 2), 1.0 - rank), "count": 1 - rank}
        assert_same_bits(state["factors"], {f"factor-{1 - rank}": factor})
        assert_same_bits(state["everywhere"], {"late": torch.ones(3)})
        assert_same_bits(state["residual"], {"error": torch.full((rank + 1,), 7.0), "rank": rank})
    # One rank alone gets everything, but for what each had of its own.
    restored = checkpoints(tmp_path / "swapped").load({})
    assert restored is not None
    assert set(restored.state["factors"]) == {"factor-0", "factor-1"}
    assert restored.state["residual"] is None
    assert restored.random_state is None


def test_a_full_disk_on_any_rank_is_told_to_all(tmp_path: Path, two_ranks: WarmRanks) -> None:
    for failing in (0, 1):
        directory = tmp_path / str(failing)
        results = two_ranks.run(checkpoint_states.save_on_full_disk, directory, failing)
        assert results[0] == results[1]
        at_the_next_save, at_wait, steps = results[0]
        for message in (at_the_next_save, at_wait):
            assert message.startswith(f"checkpoint of step 90 in {directory}: rank {failing}: ")
            assert "File too large" in message
        assert steps == [20, 30]
        assert names(directory) == {"step-00000020", "step-00000030"}


def test_a_directory_that_cannot_be_made_is_told_to_all(tmp_path: Path, two_ranks: WarmRanks) -> None:
    (tmp_path / "file").write_text("")
    errors = two_ranks.run(checkpoint_states.save_without_a_directory, tmp_path)
    assert errors[0] == errors[1]
    assert "rank 0: " in errors[0]
    assert "File exists" in errors[0] or "Not a directory" in errors[0]


def test_states_that_differ_where_they_must_not_are_refused_on_all_ranks(tmp_path: Path, two_ranks: WarmRanks) -> None:
    results = two_ranks.run(checkpoint_states.save_what_differs, tmp_path)
    assert results[0] == results[1]
    expected = [
        "state/count is 0 on rank 0 and 1 on rank 1; if it may differ, use PerRank",
        "state/list has 1 elements on rank 0 and 2 on rank 1",
        "state/mixed is 1.0 on rank 0 and a dict on rank 1",
        "state/tensor is torch.float32 (1,) plain on one rank and torch.float32 (2,) plain on rank 1",
        "state/tensor is torch.float32 (2,) plain on one rank and torch.float64 (2,) plain on rank 1",
        "rank 1: state/bad is <object",
    ]
    *errors, kept = results[0]
    assert kept == "step-00000020"
    assert len(errors) == len(expected)
    for error, part in zip(errors, expected, strict=True):
        assert part in error


@pytest.mark.parametrize("name", ["rank-00000.safetensors", "rank-00001.safetensors", "manifest.json"])
def test_all_ranks_pass_over_the_same_damaged_one(tmp_path: Path, two_ranks: WarmRanks, name: str) -> None:
    two_ranks.run(checkpoint_states.save_steps, tmp_path, [10, 20])
    (tmp_path / "step-00000020" / name).unlink()
    assert (
        two_ranks.run(checkpoint_states.load_on_all, tmp_path, {})
        == [(10, [f"step-00000020: {name} is missing"], "")] * 2
    )
    # Also one that only the rank that reads it finds out about.
    replace_file(tmp_path / "step-00000010", "rank-00001.safetensors", b"short")
    assert two_ranks.run(checkpoint_states.load_on_all, tmp_path, {}) == [(None, [], "")] * 2


def test_another_config_is_refused_on_all_ranks(tmp_path: Path, two_ranks: WarmRanks) -> None:
    two_ranks.run(checkpoint_states.save_steps, tmp_path, [10])
    for _, _, error in two_ranks.run(checkpoint_states.load_on_all, tmp_path, {"seed": 3}):
        assert error.startswith("CheckpointMismatch: ")
        assert error.endswith("another config: seed 0 there, 3 here")


def test_a_directory_that_is_not_shared_is_refused(tmp_path: Path, two_ranks: WarmRanks) -> None:
    (tmp_path / "0").mkdir()
    two_ranks.run(checkpoint_states.save_steps, tmp_path / "1", [10])
    for _, _, error in two_ranks.run(checkpoint_states.load_where_each_rank_has_its_own, tmp_path):
        assert "the ranks see different checkpoints" in error
        assert "is it shared?" in error


def test_checkpoints_of_two_trials_do_not_disturb_the_collectives_of_training(
    tmp_path: Path, two_ranks: WarmRanks
) -> None:
    expected = [2.0 * step + 1 for step in range(1, 16) for _ in range(10)]
    assert two_ranks.run(checkpoint_states.train_while_two_trials_save, tmp_path) == [expected] * 2


@pytest.mark.processes
@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_killed_while_it_writes_leaves_the_previous_one(tmp_path: Path, killed: int) -> None:
    directory = tmp_path / "checkpoints"
    context = rank_context()
    processes = [
        context.Process(
            target=checkpoint_states.save_until_killed, args=(directory, rank, 2, tmp_path / "meeting_point", killed)
        )
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    processes[killed].join(PATIENCE_SECONDS)
    assert processes[killed].exitcode == -9
    started = time.monotonic()
    processes[1 - killed].join(PATIENCE_SECONDS)
    assert processes[1 - killed].exitcode == 3  # noticed, and not as a full disk
    assert time.monotonic() - started < DEFAULT_TIMEOUT_SECONDS  # the group's own is less
    assert any(name.startswith(".partial-step-00000030") for name in names(directory))
    # What is left of it does not disturb: a trial goes on with one rank, and cleans up.
    assert newest_step(directory) == 20
    checkpoint_states.save(checkpoints(directory), 30)
    assert names(directory) == {"step-00000020", "step-00000030"}
