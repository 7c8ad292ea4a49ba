"""A rank's batches, whichever method of the workload gives them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.trainers import broken_workloads
from tests.support.trainers.broken_workloads import Sound, SoundStream, WithoutBatches
from tests.support.trainers.trials import assert_same_bits, small_trial, without_clock
from trainers.config import InvalidConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.batches import RankBatches, train_batches

ORDER = {"batch_size": 12, "seed": 3, "world_size": 3}


class GivesBoth(Sound):
    """Batches by their indices, and a stream that is told apart."""

    def train_batches(self, **order: int) -> Iterator[Any]:
        yield order


@pytest.mark.parametrize("start_step", [0, 4, 17])
@pytest.mark.parametrize("rank", [0, 2])
def test_indices_from_the_loop_are_those_of_a_workload_that_follows_the_order(rank: int, start_step: int) -> None:
    order = {**ORDER, "rank": rank, "start_step": start_step}
    by_index, own = (list(islice(train_batches(w, **order), 9)) for w in (Sound(), SoundStream()))
    assert [len(targets) for _, targets in by_index] == [4] * 9
    assert_same_bits(by_index, own)


def test_a_batch_is_asked_for_when_its_step_comes() -> None:
    asked: list[Tensor] = []

    class Asked(Sound):
        def batch(self, indices: Tensor) -> Any:
            asked.append(indices)
            return super().batch(indices)

    batches = train_batches(Asked(), **ORDER, rank=0, start_step=0)
    assert not asked
    next(batches)
    assert len(asked) == 1


def test_a_workload_that_can_read_ahead_does() -> None:
    order = {**ORDER, "rank": 1, "start_step": 5}
    assert list(train_batches(GivesBoth(), **order)) == [order]


def test_a_workload_without_batches_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="WithoutBatches has neither batch nor train_batches"):
        train_batches(WithoutBatches(), **ORDER, rank=0, start_step=0)


def test_both_ways_train_alike() -> None:
    curves = [
        without_clock(
            list(
                train(
                    small_trial(workload=f"{broken_workloads.__name__}:{name}", workload_options={}, batch_size=12),
                    single_process_context(),
                )
            )
        )
        for name in ("Sound", "SoundStream")
    ]
    assert [step for step, *_ in curves[0]] == [10, 20, 30, 40]
    assert curves[0] == curves[1]


def test_batches_of_another_size_than_the_trial_says_are_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    # As those of a loader with a batch size of its own, or of one that gives each rank the whole batch.
    sound = Sound.batch
    config = small_trial(
        workload=f"{broken_workloads.__name__}:Sound", workload_options={}, batch_size=12, accumulation_steps=2
    )
    for indices_of, remarks in (
        (lambda indices: indices, []),
        (lambda indices: indices.repeat(2), ["the batches of a rank have 12 rows and not 6, its share of the batch"]),
    ):
        monkeypatch.setattr(Sound, "batch", lambda self, indices, of=indices_of: sound(self, of(indices)))
        found = next(train(config, single_process_context())).remarks
        assert [remark.partition(" size: ")[0] for remark in found] == remarks

    # Nodes of graphs have other rows than the graphs.
    nodes = {"nodes": torch.ones(40, 3), "targets": torch.ones(6)}
    batches = RankBatches(iter([nodes]), share=6)
    assert next(batches) is nodes
    assert batches.remarks == ()
