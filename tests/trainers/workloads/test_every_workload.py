"""Promises of every built-in workload, at its default options: the data of ranks, evaluation, training, resume."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import assert_same_bits, final_state, run_trial, small_trial, without_clock
from trainers.config import InvalidConfig, OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.batches import train_batches
from trainers.workloads.registry import describe, load

WORKLOADS = ["digits-mlp", "digits-autoencoder", "digits-convnet", "stdlib-gpt"]
SIZED = [name for name in WORKLOADS if "size" in describe(name).options]


def trial(name: str, **fields: Any) -> TrialConfig:
    """12 steps, measured every 4."""
    return small_trial(
        **{"workload": name, "workload_options": {}, "num_steps": 12, "evaluate_every": 4, "batch_size": 16, **fields}
    )


def examples(batch: object) -> list[bytes]:
    """The examples of a batch, as bytes."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    return [b"".join(part[index].numpy().tobytes() for part in parts) for index in range(len(parts[0]))]


def stream(name: str, *, seed: int, world_size: int, batch_size: int) -> Iterator[list[bytes]]:
    """The global batches from the first step on, put together from all ranks' shares."""
    workload = load(name, {})
    shares = [
        train_batches(workload, batch_size=batch_size, seed=seed, rank=rank, world_size=world_size, start_step=0)
        for rank in range(world_size)
    ]
    for batches in zip(*shares, strict=True):
        assert len({len(examples(batch)) for batch in batches}) == 1
        yield [example for batch in batches for example in examples(batch)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_ranks_see_parts_of_one_global_batch(name: str) -> None:
    whole = list(islice(stream(name, seed=1, world_size=1, batch_size=48), 40))
    for world_size in (2, 3):
        assert list(islice(stream(name, seed=1, world_size=world_size, batch_size=48), 40)) == whole
    assert list(islice(stream(name, seed=2, world_size=1, batch_size=48), 40)) != whole


@pytest.mark.parametrize("name", WORKLOADS)
def test_batches_go_on_at_any_step(name: str) -> None:
    workload = load(name, {})
    arguments = {"batch_size": 32, "seed": 3, "rank": 1, "world_size": 2}
    from_the_beginning = islice(train_batches(workload, **arguments, start_step=0), 50, 60)
    from_step_50 = islice(train_batches(workload, **arguments, start_step=50), 10)
    for one, other in zip(from_the_beginning, from_step_50, strict=True):
        assert examples(one) == examples(other)


@pytest.mark.parametrize("name", WORKLOADS)
def test_two_ranks_together_see_each_example_once_per_epoch(name: str) -> None:
    num_examples = load(name, {}).num_train_examples

    def epoch(seed: int) -> Counter[bytes]:
        batches = stream(name, seed=seed, world_size=2, batch_size=256)
        seen = [example for batch in islice(batches, math.ceil(num_examples / 256)) for example in batch]
        return Counter(seen[:num_examples])

    # Had an example been left out or seen twice, the two orders would differ in which.
    assert epoch(seed=1) == epoch(seed=2)


@pytest.mark.parametrize("world_size", [2, 7, 400])
@pytest.mark.parametrize("name", WORKLOADS)
def test_ranks_share_the_evaluation(name: str, world_size: int) -> None:
    # With 400 ranks, some have no share: there are 360 validation images and 256 sequences.
    workload = load(name, {})
    torch.manual_seed(0)
    model = workload.build_model().eval()
    with torch.no_grad():
        whole = workload.evaluate(model, rank=0, world_size=1, device="cpu")
        shares = [workload.evaluate(model, rank=r, world_size=world_size, device="cpu") for r in range(world_size)]
    for metric, (total, weight) in whole.items():
        assert sum(share[metric][0] for share in shares) == pytest.approx(total, rel=1e-5)  # float32 sums
        assert sum(share[metric][1] for share in shares) == weight


@pytest.mark.parametrize(
    ("name", "num_steps", "bound"),
    # Measured: 0.18, 7.7, 0.34 and 2.7; without training it is 2.3, 31, 2.3 and 5.7.
    [("digits-mlp", 60, 0.35), ("digits-autoencoder", 200, 9.0), ("digits-convnet", 60, 0.6), ("stdlib-gpt", 60, 3.1)],
)
def test_adamw_learns_from_real_data(name: str, num_steps: int, bound: float) -> None:
    description = describe(name)
    config = TrialConfig(
        workload=name,
        optimizer=OptimizerConfig("adamw", {"lr": 5e-3}),
        num_steps=num_steps,
        evaluate_every=num_steps // 4,
        batch_size=description.default_batch_size,
    )
    measurements = list(train(config, single_process_context()))
    assert all(m.metrics.keys() >= description.metrics.keys() for m in measurements)
    for metric in ("train_loss", "validation_loss"):
        losses = [m.metrics[metric] for m in measurements]
        assert losses == sorted(losses, reverse=True)
    assert measurements[-1].metrics["validation_loss"] < bound


# Each workload and each optimizer: what of one resumes does not depend on the other.
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
    config = trial(name, optimizer=optimizer)
    whole = list(train(config, single_process_context(checkpoint_directory=tmp_path / "whole")))
    context = single_process_context(checkpoint_directory=tmp_path / "stopped")
    stopped = list(islice(train(config, context), 2))
    torch.manual_seed(999)
    resumed = list(train(config, context))
    assert without_clock(stopped + resumed[1:]) == without_clock(whole)
    assert_same_bits(final_state(tmp_path / "stopped", config), final_state(tmp_path / "whole", config))


@pytest.mark.parametrize("name", WORKLOADS)
def test_one_rank_equals_two(two_ranks: WarmRanks, name: str) -> None:
    config = trial(name)
    alone = list(train(config, single_process_context()))
    by_rank = two_ranks.run(run_trial, config)
    assert by_rank[0] == by_rank[1]
    for one, two in zip(alone, by_rank[0], strict=True):
        assert (two.step, two.epoch) == (one.step, one.epoch)
        for metric in describe(name).metrics:
            # The same sums in another order: float32 rounding. AdamW's first steps have the size of the learning rate
            # whatever the size of the gradient, so an entry that is all rounding moves differently, but little.
            assert two.metrics[metric] == pytest.approx(one.metrics[metric], rel=1e-3)


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
    batch = next(train_batches(workload, batch_size=4, seed=0, rank=0, world_size=1, start_step=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(5):
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
    with pytest.raises(InvalidConfig, match=r"size must be one of tiny, small, got ") as caught:
        load(name, {"size": size})
    assert caught.value.message.endswith(repr(size))
    assert caught.value.field == "workload_options"


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_model_is_drawn_from_the_global_generator(name: str) -> None:
    workload = load(name, {})

    def parameters(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return list(workload.build_model().parameters())

    assert_same_bits(parameters(1), parameters(1))
    assert not all(torch.equal(one, other) for one, other in zip(parameters(1), parameters(2), strict=True))
