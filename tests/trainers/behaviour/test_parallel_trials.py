"""Whole trials in every mode of parallelism: the loop, checkpoints and optimizers on shared models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers.parallel.training import MODES
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import final_state, run_to_the_end, run_trial, small_trial, without_clock
from trainers.config import AveragingConfig, CompressionConfig, OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context

SHARDED = ("fsdp2", "hsdp", "simple_fsdp")

# Blocks of 16, so that ranks own parts of parameters.
BLOCKS = OptimizerConfig(
    "shampoo",
    {
        "lr": 3e-3,
        "precondition_frequency": 2,
        "start_preconditioning_step": 3,
        "max_preconditioner_dim": 16,
        "distributed": "lossless",
    },
)

VARIANTS: dict[str, dict[str, Any]] = {
    **{mode: {"parallelism": MODES[mode]} for mode in SHARDED},
    "fsdp2_bfloat16_averaged": {
        "parallelism": MODES["fsdp2"],
        "precision": "bfloat16",
        "averaging": AveragingConfig("ema", {"decay": 0.9}),
    },
    "simple_fsdp_recomputed_float16": {
        "parallelism": MODES["simple_fsdp"],
        "precision": "float16",
        "activation_checkpointing": True,
    },
    "blocks": {"optimizer": BLOCKS},
    "blocks_averaged_compressed": {
        "optimizer": BLOCKS,
        "averaging": AveragingConfig("lawa", {"num_snapshots": 2, "update_frequency": 2}),
        "compression": CompressionConfig(rank=2, start_step=3),
        "accumulation_steps": 2,
        "gradient_clip_norm": 1.0,
    },
    "blocks_of_shards": {"optimizer": BLOCKS, "parallelism": MODES["fsdp2"]},
    "compressed": {"compression": CompressionConfig(rank=2, start_step=3), "accumulation_steps": 2},
}


def short(optimizer: str | OptimizerConfig = "adamw", **fields: Any) -> TrialConfig:
    return small_trial(optimizer, **{"num_steps": 6, "evaluate_every": 2, **fields})


@pytest.mark.parametrize("variant", VARIANTS)
def test_resume_is_bit_identical(two_ranks: WarmRanks, variant: str, tmp_path: Path) -> None:
    options = {"hidden_sizes": [32, 16], "dropout": 0.2}
    config = short(**{"workload_options": options, **VARIANTS[variant]})
    whole = two_ranks.run(run_trial, config, tmp_path / "whole")
    stopped = two_ranks.run(run_trial, config, tmp_path / "stopped", 2)
    resumed = two_ranks.run(run_trial, config, tmp_path / "stopped")
    assert resumed[0] == resumed[1]
    assert without_clock(stopped[0] + resumed[0][1:]) == without_clock(whole[0])
    assert final_state(tmp_path / "stopped", config) == final_state(tmp_path / "whole", config)


@pytest.mark.parametrize(
    ("mode", "optimizer"), [*((mode, "sgd") for mode in SHARDED), *((mode, BLOCKS) for mode in MODES)]
)
def test_sharded_trials_equal_one_process(two_ranks: WarmRanks, mode: str, optimizer: str | OptimizerConfig) -> None:
    config = short(optimizer, gradient_clip_norm=1.0, parallelism=MODES[mode])
    alone = list(train(config, single_process_context()))
    by_rank = two_ranks.run(run_trial, config)
    assert by_rank[0] == by_rank[1]
    for one, two in zip(alone, by_rank[0], strict=True):
        for name in ("train_loss", "validation_loss"):
            # The same sums in another order: float32 rounding.
            assert two.metrics[name] == pytest.approx(one.metrics[name], rel=1e-5)


@pytest.mark.parametrize(
    ("mode", "optimizer"), [*((mode, "sgd") for mode in SHARDED), *((mode, BLOCKS) for mode in MODES)]
)
def test_a_checkpoint_of_shards_goes_on_on_three_ranks_and_one(
    two_ranks: WarmRanks, three_ranks: WarmRanks, mode: str, optimizer: str | OptimizerConfig, tmp_path: Path
) -> None:
    config = short(optimizer, parallelism=MODES[mode])
    whole = two_ranks.run(run_trial, config)[0]
    two_ranks.run(run_trial, config, tmp_path, 1)
    if mode != "hsdp":  # three ranks do not come in pairs
        three_ranks.run(run_trial, config, tmp_path, 2)
    rest = list(train(config, single_process_context(checkpoint_directory=tmp_path)))
    assert rest[0].step == (2 if mode == "hsdp" else 4)
    assert rest[-1].metrics["validation_loss"] == pytest.approx(whole[-1].metrics["validation_loss"], rel=1e-5)


def test_blocks_in_a_damaged_checkpoint_are_those_of_the_one_before_it(
    two_ranks: WarmRanks, three_ranks: WarmRanks, tmp_path: Path
) -> None:
    config = short(BLOCKS)
    whole = two_ranks.run(run_trial, config, tmp_path)[0]
    for damaged in ("step-00000006/rank-00001.safetensors", "step-00000006/rank-00000.safetensors"):
        content = bytearray((tmp_path / damaged).read_bytes())
        content[-1] ^= 1
        (tmp_path / damaged).write_bytes(content)
    rest = three_ranks.run(run_trial, config, tmp_path)
    assert [m.step for m in rest[0]] == [4, 6]
    assert rest[0] == rest[1] == rest[2]
    assert rest[0][-1].metrics["validation_loss"] == pytest.approx(whole[-1].metrics["validation_loss"], rel=1e-5)


@pytest.mark.parametrize("mode", ["ddp", *SHARDED])
def test_the_optimizers_state_is_divided(two_ranks: WarmRanks, mode: str) -> None:
    config = short(BLOCKS, parallelism=MODES[mode])
    alone = next(train(config, single_process_context())).metrics["optimizer_state_bytes"]
    divided = two_ranks.run(run_trial, config, None, 1)[0][0].metrics["optimizer_state_bytes"]
    assert divided < 0.6 * alone


@pytest.mark.parametrize("mode", SHARDED)
def test_divergence_ends_both_ranks_and_leaves_the_group_usable(two_ranks: WarmRanks, mode: str) -> None:
    diverging = short(OptimizerConfig("sgd", {"lr": 1e6}), parallelism=MODES[mode])
    outcomes = two_ranks.run(run_to_the_end, diverging)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == "Diverged"
    assert [outcome[0] for outcome in two_ranks.run(run_to_the_end, short(parallelism=MODES[mode]))] == [
        "completed"
    ] * 2
