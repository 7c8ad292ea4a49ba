"""Promises of every built-in workload, at its default options: the data of ranks, evaluation, training, resume."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.trainers import promises
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import assert_same_bits, final_state, run_trial, without_clock
from trainers.config import InvalidConfig, OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.batches import train_batches
from trainers.workloads.registry import describe, load

WORKLOADS = ["digits-mlp", "digits-autoencoder", "digits-convnet", "stdlib-gpt"]
SIZED = [name for name in WORKLOADS if "size" in describe(name).options]


@pytest.mark.parametrize("name", WORKLOADS)
def test_ranks_see_parts_of_one_global_batch(name: str) -> None:
    promises.assert_ranks_see_parts_of_one_batch(name, {})


@pytest.mark.parametrize("name", WORKLOADS)
def test_batches_go_on_at_any_step(name: str) -> None:
    promises.assert_batches_go_on_at_any_step(name, {})


@pytest.mark.parametrize("name", WORKLOADS)
def test_two_ranks_together_see_each_example_once_per_epoch(name: str) -> None:
    promises.assert_an_epoch_has_each_example_once(name, {})


@pytest.mark.parametrize("name", WORKLOADS)
def test_ranks_share_the_evaluation(name: str) -> None:
    # There are 360 validation images and 256 sequences.
    promises.assert_ranks_share_the_evaluation(name, {}, more_than_examples=400)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_model_is_drawn_from_the_global_generator(name: str) -> None:
    promises.assert_the_model_is_drawn_from_the_global_generator(name, {})


@pytest.mark.slow
@pytest.mark.usefixtures("_few_validation_sequences")
@pytest.mark.parametrize(
    ("name", "num_steps", "bound"),
    # Measured: 0.18, 7.7, 0.34 and 2.8; without training it is 2.3, 31, 2.3 and 5.7.
    [("digits-mlp", 60, 0.35), ("digits-autoencoder", 201, 9.0), ("digits-convnet", 60, 0.6), ("stdlib-gpt", 60, 3.1)],
)
def test_adamw_learns_from_real_data(name: str, num_steps: int, bound: float) -> None:
    description = describe(name)
    config = TrialConfig(
        workload=name,
        optimizer=OptimizerConfig("adamw", {"lr": 5e-3}),
        num_steps=num_steps,
        evaluate_every=num_steps // 3,
        batch_size=8 if name == "stdlib-gpt" else description.default_batch_size,
    )
    measurements = list(train(config, single_process_context()))
    assert all(m.metrics.keys() >= description.metrics.keys() for m in measurements)
    losses = [m.metrics["validation_loss"] for m in measurements]
    assert losses == sorted(losses, reverse=True)
    # Of one batch, and for stdlib-gpt another with each version of Python: first and last lie farthest apart.
    assert measurements[-1].metrics["train_loss"] < measurements[0].metrics["train_loss"]
    assert measurements[-1].metrics["validation_loss"] < bound


@pytest.mark.slow
# Each workload and each optimizer: what of one resumes does not depend on the other.
@pytest.mark.usefixtures("_few_validation_sequences")
@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("digits-mlp", "adamw"),
        ("digits-mlp", "shampoo"),
        ("digits-autoencoder", "shampoo"),
        ("digits-convnet", "shampoo"),
        ("stdlib-gpt", "adamw"),
    ],
)
def test_resume_is_bit_identical(name: str, optimizer: str, tmp_path: Path) -> None:
    config = promises.trial(name, {}, optimizer=optimizer)
    whole = list(train(config, single_process_context(checkpoint_directory=tmp_path / "whole")))
    context = single_process_context(checkpoint_directory=tmp_path / "stopped")
    stopped = list(islice(train(config, context), 2))
    torch.manual_seed(999)
    resumed = list(train(config, context))
    assert without_clock(stopped + resumed[1:]) == without_clock(whole)
    assert_same_bits(final_state(tmp_path / "stopped", config), final_state(tmp_path / "whole", config))


@pytest.mark.parametrize("name", WORKLOADS)
def test_one_rank_equals_two(two_ranks: WarmRanks, name: str) -> None:
    config = promises.trial(name, {})
    alone = list(train(config, single_process_context()))
    by_rank = two_ranks.run(run_trial, config)
    assert by_rank[0] == by_rank[1]
    for one, two in zip(alone, by_rank[0], strict=True):
        assert (two.step, two.epoch) == (one.step, one.epoch)
        for metric in describe(name).metrics:
            # The same sums in another order: float32 rounding. AdamW's first steps have the size of the learning rate
            # whatever the size of the gradient, so an entry that is all rounding moves differently, but little.
            assert two.metrics[metric] == pytest.approx(one.metrics[metric], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZED)
def test_small_is_a_larger_model_that_trains(name: str) -> None:
    num_parameters = {
        size: sum(parameter.numel() for parameter in load(name, {"size": size}).build_model().parameters())
        for size in ("tiny", "small")
    }
    assert num_parameters["small"] > 3 * num_parameters["tiny"]
    workload = load(name, {"size": "small"})
    torch.manual_seed(0)
    model = workload.build_model()
    batch = next(train_batches(workload, batch_size=2, seed=0, rank=0, world_size=1, start_step=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        loss = workload.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # The same batch again and again: it is learnt.
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("size", ["large", "", 3, None, ["tiny"], {"tiny": 1}])
@pytest.mark.parametrize("name", SIZED)
def test_an_unknown_size_is_refused_with_the_known_ones(name: str, size: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"workload_options.size: size must be one of tiny, small, got ") as caught:
        load(name, {"size": size})
    assert caught.value.message.endswith(repr(size))
    assert caught.value.field == "workload_options.size"
