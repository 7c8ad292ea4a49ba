"""Promises of every workload on its batches, evaluation and training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import assert_same_bits, final_state, run_trial, small_trial
from trainers.config import Measurement, OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.batches import train_batches
from trainers.workloads.registry import describe, load

Options = Mapping[str, Any]


def trial(name: str, options: Options, **fields: Any) -> TrialConfig:
    """12 steps, measured every 4."""
    return small_trial(
        **{
            "workload": name,
            "workload_options": dict(options),
            "num_steps": 12,
            "evaluate_every": 4,
            "batch_size": 16,
            **fields,
        }
    )


def examples(batch: object) -> list[bytes]:
    """The examples of a batch, as bytes."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    rows = [[row.tobytes() for row in part.numpy()] for part in parts]
    return [b"".join(of_example) for of_example in zip(*rows, strict=True)]


def stream(name: str, options: Options, *, seed: int, world_size: int, batch_size: int) -> Iterator[list[bytes]]:
    """The global batches from the first step on, put together from all ranks' shares."""
    workload = load(name, options)
    shares = [
        train_batches(workload, batch_size=batch_size, seed=seed, rank=rank, world_size=world_size, start_step=0)
        for rank in range(world_size)
    ]
    for batches in zip(*shares, strict=True):
        of_ranks = [examples(batch) for batch in batches]
        assert len({len(of_rank) for of_rank in of_ranks}) == 1
        yield [example for of_rank in of_ranks for example in of_rank]


def assert_ranks_see_parts_of_one_batch(name: str, options: Options) -> None:
    whole = list(islice(stream(name, options, seed=1, world_size=1, batch_size=48), 40))
    for world_size in (2, 3):
        assert list(islice(stream(name, options, seed=1, world_size=world_size, batch_size=48), 40)) == whole
    assert list(islice(stream(name, options, seed=2, world_size=1, batch_size=48), 40)) != whole


def assert_batches_go_on_at_any_step(name: str, options: Options) -> None:
    workload = load(name, options)
    arguments = {"batch_size": 32, "seed": 3, "rank": 1, "world_size": 2}
    from_the_beginning = islice(train_batches(workload, **arguments, start_step=0), 50, 60)
    from_step_50 = islice(train_batches(workload, **arguments, start_step=50), 10)
    for one, other in zip(from_the_beginning, from_step_50, strict=True):
        assert examples(one) == examples(other)


def assert_an_epoch_has_each_example_once(name: str, options: Options) -> None:
    num_examples = load(name, options).num_train_examples

    def epoch(seed: int) -> Counter[bytes]:
        batches = stream(name, options, seed=seed, world_size=2, batch_size=64)
        seen = [example for batch in islice(batches, math.ceil(num_examples / 64)) for example in batch]
        return Counter(seen[:num_examples])

    # If an example had been left out or seen twice, it would be another one in each order.
    assert epoch(seed=1) == epoch(seed=2)


def assert_ranks_share_the_evaluation(name: str, options: Options, *, more_than_examples: int) -> None:
    workload = load(name, options)
    torch.manual_seed(0)
    model = workload.build_model().eval()
    with torch.no_grad():
        whole = workload.evaluate(model, rank=0, world_size=1, device="cpu")
        for world_size in (2, 7, more_than_examples):  # with the last, some have no share
            shares = [workload.evaluate(model, rank=r, world_size=world_size, device="cpu") for r in range(world_size)]
            for metric, (total, weight) in whole.items():
                assert sum(share[metric][0] for share in shares) == pytest.approx(total, rel=1e-5)  # float32 sums
                assert sum(share[metric][1] for share in shares) == pytest.approx(weight, rel=1e-12)


def assert_the_model_is_drawn_from_the_global_generator(name: str, options: Options) -> None:
    workload = load(name, options)

    def parameters(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return list(workload.build_model().parameters())

    assert_same_bits(parameters(1), parameters(1))
    assert not all(torch.equal(one, other) for one, other in zip(parameters(1), parameters(2), strict=True))


def assert_resume_is_bit_identical(
    name: str, options: Options, optimizer: str | OptimizerConfig, directory: Path
) -> None:
    config = trial(name, options, optimizer=optimizer)
    whole = list(train(config, single_process_context(checkpoint_directory=directory / "whole")))
    context = single_process_context(checkpoint_directory=directory / "stopped")
    stopped = list(islice(train(config, context), 2))
    torch.manual_seed(999)
    resumed = list(train(config, context))
    assert of_the_workload(name, stopped + resumed[1:]) == of_the_workload(name, whole)
    assert_same_bits(final_state(directory / "stopped", config), final_state(directory / "whole", config))


def assert_one_rank_equals_two(name: str, options: Options, two_ranks: WarmRanks, **fields: Any) -> None:
    config = trial(name, options, num_steps=6, evaluate_every=3, **fields)
    alone = list(train(config, single_process_context()))
    by_rank = two_ranks.run(run_trial, config)
    assert of_the_workload(name, by_rank[0]) == of_the_workload(name, by_rank[1])
    for one, two in zip(alone, by_rank[0], strict=True):
        assert (two.step, two.epoch) == (one.step, one.epoch)
        for metric in describe(name).metrics:
            # The same sums in another order: float32 rounding. AdamW's first steps have the size of the learning rate
            # whatever the size of the gradient, so an entry that is all rounding moves differently, but little.
            assert two.metrics[metric] == pytest.approx(one.metrics[metric], rel=1e-3)


def of_the_workload(name: str, measurements: list[Measurement]) -> list[dict[str, float]]:
    """The workload's own metrics by step, without those from clocks and the machine's memory."""
    return [{"step": m.step, **{metric: m.metrics[metric] for metric in describe(name).metrics}} for m in measurements]
