from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
import torch
from torch import Tensor

from trainers.data import order
from trainers.data.order import epoch_permutation, permuted, rank_batches


@pytest.fixture(params=[order.MAX_LISTED, 0], ids=["listed", "computed"], autouse=True)
def listed_or_computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of few examples, and that of very many, tested alike."""
    monkeypatch.setattr(order, "MAX_LISTED", request.param)


def global_batches(**changes: int) -> Iterator[Tensor]:
    arguments = {"num_examples": 100, "batch_size": 24, "seed": 5, "rank": 0, "world_size": 1, "start_step": 0}
    arguments.update(changes)
    return rank_batches(arguments.pop("num_examples"), **arguments)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_share_the_global_batch_without_overlap(world_size: int) -> None:
    shares = [islice(global_batches(rank=rank, world_size=world_size), 20) for rank in range(world_size)]
    for whole, *parts in zip(islice(global_batches(), 20), *shares, strict=True):
        assert {len(part) for part in parts} == {24 // world_size}
        assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("start_step", [1, 4, 5, 17, 1000])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_resumed_order_goes_on_where_it_was(start_step: int, rank: int) -> None:
    from_the_start = islice(global_batches(rank=rank, world_size=2), start_step, start_step + 9)
    resumed = islice(global_batches(rank=rank, world_size=2, start_step=start_step), 9)
    assert all(torch.equal(a, b) for a, b in zip(from_the_start, resumed, strict=True))


def test_every_epoch_sees_every_example_once() -> None:
    stream = torch.cat(list(islice(global_batches(), 25)))
    for epoch in stream.split(100):
        assert sorted(epoch.tolist()) == list(range(100))


def test_a_batch_larger_than_the_data_holds_several_epochs() -> None:
    batch = next(global_batches(num_examples=10, batch_size=30))
    assert sorted(batch.tolist()) == sorted(list(range(10)) * 3)


def test_seeds_and_epochs_give_different_orders() -> None:
    orders = {tuple(epoch_permutation(50, seed=seed, epoch=epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_a_batch_that_cannot_be_shared_is_refused_with_the_values() -> None:
    with pytest.raises(ValueError, match="batch_size 24 is not divisible by world_size 5"):
        next(global_batches(world_size=5))


def test_an_order_of_more_examples_than_fit_into_memory_begins_at_once() -> None:
    for num_examples in (2**24 + 1, 10**9, 10**15):
        first, second = islice(global_batches(num_examples=num_examples, batch_size=2000), 2)
        both = torch.cat([first, second])
        assert len(both.unique()) == 4000
        assert 0 <= int(both.min()) < int(both.max()) < num_examples
        assert abs(float(both.double().mean()) / num_examples - 0.5) < 5 * 12**-0.5 / 4000**0.5
        other = torch.cat(list(islice(global_batches(num_examples=num_examples, batch_size=2000, seed=6), 2)))
        assert not torch.equal(both, other)


@pytest.mark.parametrize("num_examples", [1, 2, 3, 5, 12, 16, 17, 101, 4096, 9999])
def test_computed_permutations_have_each_example_once(num_examples: int) -> None:
    found = permuted(torch.arange(num_examples), num_examples, seed=3, epoch=2)
    assert torch.equal(found.sort().values, torch.arange(num_examples))


@pytest.mark.parametrize("distance", [1, 2, 100, 101, 5000])
def test_computed_permutations_part_neighbours(distance: int) -> None:
    # Of independent places, the share of pairs within a hundredth of all places of each other is 0.0199; here it is
    # within five standard deviations of that, for positions that are near, or share a row or a column of the table.
    num_examples = 10_000
    near = torch.zeros(())
    for epoch in range(20):
        found = permuted(torch.arange(num_examples), num_examples, seed=0, epoch=epoch)
        apart = (found[distance:] - found[:-distance]).abs()
        near += (apart <= num_examples // 100).double().mean()
    num_pairs = 20 * (num_examples - distance)
    assert abs(float(near) / 20 - 0.0199) < 5 * (0.0199 * 0.98 / num_pairs) ** 0.5
