"""What an owner and a shard have in common: every element of a parameter once, where both have it."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from torch import Tensor

from shampoo.distributed.boxes import Runs, boxes, num_owned, sub_grids, wire_views
from shampoo.distributed.layout import rows_of_shard
from shampoo.hyperparameters import Hyperparameters
from shampoo.state.blocking import regions

SHAPES = [(24, 10), (17, 9), (3, 20), (1, 30, 7), (8, 4, 3, 3), (20, 20, 20), (40,), (5, 1), (2, 2), ()]


def _divided(counts: list[int], num_owners: int, seed: int) -> list[Runs]:
    """The blocks of regions dealt out to owners at random, in runs."""
    draw = random.Random(seed)
    by_owner: list[list[list[tuple[int, int]]]] = [[[] for _ in counts] for _ in range(num_owners)]
    for index, count in enumerate(counts):
        cuts = sorted({0, count, *(draw.randint(0, count) for _ in range(4))})
        for run in itertools.pairwise(cuts):
            by_owner[draw.randrange(num_owners)][index].append(run)
    return [tuple(tuple(of_region) for of_region in runs) for runs in by_owner]


def _stacked(whole: Tensor, h: Hyperparameters, runs: Runs) -> Tensor:
    """The blocks of runs one after the other, by the regions' own views."""
    parts = [
        region.view(whole).reshape(region.num_blocks, -1)[start:stop].flatten()
        for region, of_region in zip(regions(whole.shape, h), runs, strict=True)
        for start, stop in of_region
    ]
    return torch.cat(parts) if parts else whole.new_empty(0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_shards", [1, 2, 3, 7])
@pytest.mark.parametrize("preconditioner", ["shampoo", "none"])
def test_blocks_come_from_the_shards_and_go_back(shape: tuple[int, ...], num_shards: int, preconditioner: str) -> None:
    h = Hyperparameters(
        **({"max_preconditioner_dim": 6} if preconditioner == "shampoo" else {"preconditioner": "none"})
    )
    whole = torch.arange(math.prod(shape), dtype=torch.float64).view(shape) + 1
    found = regions(shape, h)
    length, row = (shape[0], math.prod(shape[1:])) if shape else (1, 1)
    spans = [tuple(x * row for x in rows_of_shard(length, num_shards, shard)) for shard in range(num_shards)]
    for seed in range(5):
        seen = torch.zeros(whole.numel())
        for runs in _divided([region.num_blocks for region in found], 3, seed):
            own = torch.zeros(num_owned(found, runs), dtype=whole.dtype)
            back = torch.zeros(whole.numel(), dtype=whole.dtype)
            for first, last in spans:
                shard, target = whole.flatten()[first:last].clone(), back[first:last]
                common = boxes(found, runs, (first, last))
                wire = torch.empty(sum(box.numel for box in common), dtype=whole.dtype)
                for box, view in zip(common, wire_views(wire, common), strict=True):
                    view.copy_(box.of_shard(shard))
                    box.of_owner(own).add_(view)
                    box.of_shard(target).copy_(view)
            assert torch.equal(own, _stacked(whole, h, runs))
            seen += back != 0
            assert torch.equal(back[back != 0], whole.flatten()[back != 0])
        assert torch.equal(seen, torch.ones_like(seen))


def test_a_whole_parameter_is_its_shards_one_after_the_other() -> None:
    (box,) = boxes([], None, (6, 12))
    assert (box.shape, box.owner_offset, box.shard_offset) == ((6,), 6, 0)
    assert boxes([], None, (12, 12)) == []


def test_consecutive_blocks_are_few_grids() -> None:
    (region,) = regions((40, 40), Hyperparameters(max_preconditioner_dim=5))
    assert [part.grid for part in sub_grids(region, 3, 61)] == [(1, 5), (6, 8), (1, 5)]
    assert [part.grid for part in sub_grids(region, 9, 12)] == [(1, 3)]
    assert [part.grid for part in sub_grids(region, 0, 64)] == [(8, 8)]
