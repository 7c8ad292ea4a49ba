"""Trials on real gloo ranks that stay in one process group, as the scheduler runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import (
    assert_same_bits,
    final_state,
    first_loss,
    random_numbers_after,
    resident_bytes_after_each,
    run_to_the_end,
    run_trial,
    run_with_full_disk_on_rank_0,
    small_trial,
    without_clock,
)
from trainers.config import OptimizerConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context

DROPOUT = {"hidden_sizes": [32, 16], "dropout": 0.2}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "shampoo"])
def test_one_rank_equals_two(two_ranks: WarmRanks, optimizer: str) -> None:
    config = small_trial(optimizer, gradient_clip_norm=1.0)
    alone = list(train(config, single_process_context()))
    by_rank = two_ranks.run(run_trial, config)
    assert by_rank[0] == by_rank[1]
    for one, two in zip(alone, by_rank[0], strict=True):
        assert (two.step, two.epoch) == (one.step, one.epoch)
        assert two.metrics["validation_accuracy"] == one.metrics["validation_accuracy"]
        for name in ("train_loss", "validation_loss"):
            # The same sums in another order: float32 rounding, which 40 steps amplify a little.
            assert two.metrics[name] == pytest.approx(one.metrics[name], rel=1e-5)


@pytest.mark.parametrize("optimizer", ["adamw", "shampoo"])
def test_resume_on_two_ranks_is_bit_identical(two_ranks: WarmRanks, optimizer: str, tmp_path: Path) -> None:
    _assert_resume_is_bit_identical(two_ranks, optimizer, tmp_path)


def test_resume_on_three_ranks_is_bit_identical(three_ranks: WarmRanks, tmp_path: Path) -> None:
    # From three ranks on, the order of a sum over ranks depends on DDP's buckets.
    _assert_resume_is_bit_identical(three_ranks, "adamw", tmp_path)


def _assert_resume_is_bit_identical(ranks: WarmRanks, optimizer: str, tmp_path: Path) -> None:
    config = small_trial(optimizer, workload_options=DROPOUT)
    whole = ranks.run(run_trial, config, tmp_path / "whole")[0]
    stopped = ranks.run(run_trial, config, tmp_path / "stopped", 2)
    resumed = ranks.run(run_trial, config, tmp_path / "stopped")
    assert all(measurements == resumed[0] for measurements in resumed)
    assert resumed[0][0] == stopped[0][-1]
    assert without_clock(stopped[0] + resumed[0][1:]) == without_clock(whole)
    assert_same_bits(final_state(tmp_path / "stopped", config), final_state(tmp_path / "whole", config))


def test_a_checkpoint_of_two_ranks_goes_on_on_one(two_ranks: WarmRanks, tmp_path: Path) -> None:
    config = small_trial("shampoo")
    whole = list(train(config, single_process_context()))
    two_ranks.run(run_trial, config, tmp_path, 2)
    rest = list(train(config, single_process_context(checkpoint_directory=tmp_path)))
    assert [m.step for m in rest] == [20, 30, 40]
    assert rest[-1].metrics["validation_loss"] == pytest.approx(whole[-1].metrics["validation_loss"], rel=1e-5)


def test_ranks_draw_different_dropout(two_ranks: WarmRanks) -> None:
    states = two_ranks.run(random_numbers_after, small_trial(workload_options=DROPOUT))
    assert states[0] != states[1]


def test_divergence_is_raised_on_both_ranks_at_the_same_step_and_the_group_stays_usable(two_ranks: WarmRanks) -> None:
    config = small_trial(OptimizerConfig("sgd", {"lr": 1e6}), evaluate_every=40)
    assert [outcome[:2] for outcome in two_ranks.run(run_to_the_end, config)] == [("Diverged", 2)] * 2
    assert [outcome[0] for outcome in two_ranks.run(run_to_the_end, small_trial())] == ["completed"] * 2


def test_a_loss_that_is_too_large_on_one_rank_ends_both(two_ranks: WarmRanks) -> None:
    losses = two_ranks.run(first_loss, small_trial())
    assert losses[0] != losses[1]
    config = small_trial(max_loss=sum(losses) / 2)
    outcomes = two_ranks.run(run_to_the_end, config)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][:2] == ("Diverged", 1)
    assert "on 1 of 2 ranks; hidden0.weight has the largest gradient" in outcomes[0][2]


def test_a_batch_that_ranks_cannot_share_is_refused_on_both(two_ranks: WarmRanks) -> None:
    outcomes = two_ranks.run(run_to_the_end, small_trial(batch_size=47))
    assert outcomes == [("InvalidConfig", -1, "batch_size: must be divisible by the world size 2, got 47")] * 2


def test_a_full_disk_ends_both_ranks_with_the_same_error(two_ranks: WarmRanks, tmp_path: Path) -> None:
    config = small_trial()
    before = two_ranks.run(run_trial, config, tmp_path, 1)
    outcomes = two_ranks.run(run_with_full_disk_on_rank_0, config, tmp_path)
    assert [outcome[0] for outcome in outcomes] == ["CheckpointNotWritten"] * 2
    assert "File too large" in outcomes[0][2]
    # With room again, the trial goes on from the checkpoint that was there.
    assert two_ranks.run(run_trial, config, tmp_path)[0][0] == before[0][0]


def test_trials_in_one_group_leave_no_memory_behind(two_ranks: WarmRanks) -> None:
    config = small_trial("shampoo", workload_options={"hidden_sizes": [256, 128]}, num_steps=6, evaluate_every=3)
    # Model, gradients and state of this trial are 2.9 MB: 7 leaked trials would show as 20 MB.
    for sizes, num_alive in two_ranks.run(resident_bytes_after_each, config, 12):
        assert num_alive == 0
        assert sizes[-1] - sizes[4] < 10e6, sizes
