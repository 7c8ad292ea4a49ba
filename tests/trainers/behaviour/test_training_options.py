"""The options of a trial's config beside the optimizer: what each does, and what it must not change."""

from __future__ import annotations

import functools
import itertools
import math
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import run_trial, small_trial, without_clock
from trainers.config import (
    AveragingConfig,
    Diverged,
    InvalidConfig,
    Measurement,
    OptimizerConfig,
    TargetConfig,
    TrialConfig,
)
from trainers.loop import train
from trainers.ranks.context import RankContext, single_process_context
from trainers.workloads.digits.digits import DigitsMLP


def measurements(config: TrialConfig, directory: Path | None = None) -> list[Measurement]:
    return list(train(config, single_process_context(checkpoint_directory=directory)))


def values(config: TrialConfig, metric: str = "validation_loss") -> list[float]:
    return [m.metrics[metric] for m in measurements(config)]


@functools.cache
def plain(optimizer: str) -> list[Measurement]:
    """A trial without options, to compare with."""
    return measurements(small_trial(optimizer))


def plain_values(optimizer: str, metric: str = "validation_loss") -> list[float]:
    return [m.metrics[metric] for m in plain(optimizer)]


@pytest.mark.parametrize("optimizer", ["adamw", "shampoo"])
@pytest.mark.parametrize("accumulation_steps", [2, 4])
def test_a_batch_in_parts_trains_as_the_whole(optimizer: str, accumulation_steps: int) -> None:
    # The same examples in each step; sums in another order.
    parts = measurements(small_trial(optimizer, accumulation_steps=accumulation_steps))
    for metric in ("validation_loss", "train_loss"):
        expected = pytest.approx(plain_values(optimizer, metric), rel=1e-4)
        assert [m.metrics[metric] for m in parts] == expected


def test_parts_on_two_ranks_train_as_the_whole_on_one(two_ranks: WarmRanks) -> None:
    parts = two_ranks.run(run_trial, small_trial(accumulation_steps=2))
    assert without_clock(parts[0]) == without_clock(parts[1])
    found = [m.metrics["validation_loss"] for m in parts[0]]
    assert found == pytest.approx(values(small_trial()), rel=1e-4)


def test_a_batch_that_cannot_be_shared_in_parts_is_refused() -> None:
    with pytest.raises(
        InvalidConfig, match=r"^batch_size: must be divisible by the world size 3 times accumulation_st"
    ):
        next(train(small_trial(accumulation_steps=6), RankContext(0, 3, "cpu")))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("optimizer", ["adamw", "shampoo"])
def test_sixteen_bits_train_nearly_as_well_and_differently(precision: str, optimizer: str) -> None:
    exact = plain_values(optimizer)
    rounded = values(small_trial(optimizer, precision=precision))
    assert rounded != exact
    assert rounded[-1] == pytest.approx(exact[-1], rel=0.05)


def test_an_overflow_in_float16_leaves_the_step_out_and_lowers_the_scale(tmp_path: Path) -> None:
    # Losses near 1e3 times the first scale of 2^16 overflow float16's 65,504 in the gradients.
    config = small_trial(
        OptimizerConfig("sgd", {"lr": 1e-4}),
        workload="digits-autoencoder",
        workload_options={},
        precision="float16",
        num_steps=20,
    )
    found = measurements(config, tmp_path)
    assert found[0].metrics["num_skipped_steps"] >= 1
    assert found[-1].metrics["loss_scale"] == 2**16 / 2 ** found[-1].metrics["num_skipped_steps"]
    assert found[-1].metrics["validation_loss"] < found[0].metrics["validation_loss"]
    resumed = measurements(config, tmp_path)
    assert without_clock(resumed) == without_clock(found[-1:])


@pytest.mark.parametrize(
    "averaging",
    [
        AveragingConfig("ema", {"decay": 0.9}),
        AveragingConfig("lawa", {"num_snapshots": 3, "update_frequency": 2}),
        AveragingConfig("schedule_free"),
        AveragingConfig("primal", {"mu_x": 0.9}),
    ],
    ids=lambda averaging: averaging.method,
)
@pytest.mark.parametrize("optimizer", ["adamw", "shampoo"])
def test_averaged_weights_are_evaluated_and_resume_exactly(
    optimizer: str, averaging: AveragingConfig, tmp_path: Path
) -> None:
    config = small_trial(optimizer, averaging=averaging)
    whole = measurements(config, tmp_path / "whole")
    assert whole[-1].metrics["validation_loss"] != plain_values(optimizer)[-1]
    if averaging.method in ("ema", "lawa"):  # these leave the trained weights alone
        assert [m.metrics["train_loss"] for m in whole] == plain_values(optimizer, "train_loss")
    trial = train(config, single_process_context(checkpoint_directory=tmp_path / "cut"))
    first = [next(trial), next(trial)]
    trial.close()
    rest = measurements(config, tmp_path / "cut")
    assert without_clock(rest) == without_clock([first[1], *whole[2:]])


@pytest.mark.parametrize(
    ("averaging", "message"),
    [
        (AveragingConfig("ema", {"num_snapshots": 3}), "num_snapshots=3 has no effect"),
        (AveragingConfig("ema", {"speed": 3}), "speed"),
    ],
)
def test_averaging_that_is_impossible_is_refused_with_its_values(averaging: AveragingConfig, message: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^averaging: refused: .*{message}"):
        measurements(small_trial(averaging=averaging))


def test_a_trial_is_measured_by_epochs() -> None:
    config = small_trial(evaluate_every=None, evaluate_every_epochs=0.5, num_steps=60)
    found = measurements(config)
    assert [m.step for m in found] == [15, 30, 45, 60]  # 1,437 images in batches of 48
    assert [math.floor(m.epoch * 2) for m in found] == [1, 2, 3, 4]


def test_a_trial_is_measured_by_seconds_on_all_ranks_at_once(two_ranks: WarmRanks) -> None:
    # Steps take a millisecond or so: there are some between two measurements, and the end is measured.
    config = small_trial(evaluate_every=None, evaluate_every_seconds=0.05, num_steps=300)
    found = two_ranks.run(run_trial, config)
    assert without_clock(found[0]) == without_clock(found[1])
    steps = [m.step for m in found[0]]
    assert steps[-1] == 300
    assert len(steps) >= 3
    seconds = [0.0, *(m.seconds for m in found[0])]
    # Rank 0 goes by its clock; the time is the mean over the ranks, and on a busy machine the other begins late.
    assert all(after - before >= 0.05 / 2 for before, after in itertools.pairwise(seconds[:-1]))


def test_a_target_is_timed_and_summaries_are_reported() -> None:
    config = small_trial(target=TargetConfig("validation_loss", 2.1), summaries=("best_validation_loss",))
    found = measurements(config)
    losses = [m.metrics["validation_loss"] for m in found]
    reached = next(m for m in found if m.metrics["validation_loss"] <= 2.1)
    assert found[-1].metrics["steps_to_target"] == reached.step
    assert found[-1].metrics["seconds_to_target"] == reached.seconds
    assert found[-1].metrics["best_validation_loss"] == min(losses)
    missed = measurements(small_trial(target=TargetConfig("validation_loss", 1e-6)))[-1].metrics
    assert missed["steps_to_target"] > 40
    assert missed["target_reached"] == 0


def test_speed_and_memory_are_measured() -> None:
    found = measurements(small_trial("shampoo"))[-1]
    assert found.metrics["step_seconds"] * found.metrics["examples_per_second"] == pytest.approx(48)
    assert 0 < found.metrics["optimizer_share"] < 1
    # Adam's moments, the Kronecker factors and roots of a (64, 32), (32, 16), (16, 10) network in float32.
    assert 30_000 < found.metrics["optimizer_state_bytes"] < 120_000
    assert found.metrics["peak_memory_bytes"] > 50e6  # torch itself


@pytest.mark.processes
def test_the_peak_is_that_of_the_trial_and_not_of_the_process() -> None:
    # In a process of its own: what other tests have left is given back to the system at any time.
    program = """
import torch
from trainers.memory.peak import peak_bytes, reset_peak

earlier = torch.ones(256 << 20, dtype=torch.uint8)
del earlier
reset_peak("cpu")
before = peak_bytes("cpu")
large = torch.ones(64 << 20, dtype=torch.uint8)
during = peak_bytes("cpu")
del large
reset_peak("cpu")
print(before, during, peak_bytes("cpu"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, during, after = map(int, done.stdout.split())
    assert during > before + 50e6
    assert after < before + 30e6


def test_our_optimizers_health_is_reported_and_other_optimizers_have_none() -> None:
    found = measurements(small_trial("shampoo", averaging=AveragingConfig("ema")))[-1].metrics
    assert found["optimizer_num_failed_refreshes"] == 0
    assert found["optimizer_share_preconditioned"] > 0.9
    assert found["optimizer_condition_max"] >= found["optimizer_condition_median"] > 1
    assert 0 < found["optimizer_update_to_weight_median"] < 1
    assert found["optimizer_grafting_ratio_median"] > 0
    others = measurements(small_trial("adamw"))[-1].metrics
    assert not any(name.startswith("optimizer_condition") for name in others)


def test_a_gradient_that_explodes_without_the_loss_is_caught_by_the_next_loss() -> None:
    config = small_trial(OptimizerConfig("sgd", {"lr": 1e20}), evaluate_every=40)
    with pytest.raises(Diverged) as caught:
        measurements(config)
    assert caught.value.step == 2
    assert caught.value.parameter is not None


def test_the_optimizers_bytes_include_averaged_weights() -> None:
    alone = measurements(small_trial())[-1].metrics["optimizer_state_bytes"]
    averaging = AveragingConfig("lawa", {"num_snapshots": 3, "update_frequency": 2})
    averaged = measurements(small_trial(averaging=averaging))[-1].metrics["optimizer_state_bytes"]
    # AdamW keeps two copies of the weights and a count; LAWA three snapshots.
    assert averaged == pytest.approx(alone * 5 / 2, rel=0.02)


class CountingDigits(DigitsMLP):
    """The digits that count the batches they gave."""

    title: ClassVar[str] = "Digits that count"
    metrics: ClassVar[dict[str, str]] = {
        "train_loss": "minimize",
        "validation_loss": "minimize",
        "validation_accuracy": "maximize",
        "num_batches": "maximize",
    }
    default_objective: ClassVar[str] = "validation_loss"
    default_num_steps: ClassVar[int] = 40
    default_evaluate_every: ClassVar[int] = 10
    default_batch_size: ClassVar[int] = 48

    def __init__(self) -> None:
        super().__init__(hidden_sizes=[16], dropout=0.0, label_smoothing=0.0)
        self._num_batches = 0

    def loss(self, model: nn.Module, batch: object) -> torch.Tensor:
        self._num_batches += 1
        return super().loss(model, batch)

    def counts(self) -> dict[str, int]:
        return {"num_batches": self._num_batches}


def test_counts_are_of_all_ranks(two_ranks: WarmRanks) -> None:
    config = small_trial(workload="tests.trainers.behaviour.test_training_options:CountingDigits", workload_options={})
    assert [m.metrics["num_batches"] for m in two_ranks.run(run_trial, config)[0]] == [20, 40, 60, 80]
