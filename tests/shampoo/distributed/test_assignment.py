"""The owners of blocks: even in work and in bytes, the same everywhere, and small blocks still stacked."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
import torch

from shampoo import cost
from shampoo.distributed import estimate_per_rank
from shampoo.distributed.assignment import Items, Loads, Owned, assign
from shampoo.distributed.ownership import Member, choose_group_size, owners_of
from shampoo.distributed.topology import RankArray
from shampoo.hyperparameters import DEFAULTS, Hyperparameters

# GPT-2's twelve layers without its embeddings, and ResNet-50's convolutions with their norms.
GPT2 = [
    shape
    for _ in range(12)
    for shape in ((2304, 768), (2304,), (768, 768), (768,), (3072, 768), (3072,), (768, 3072), (768,), (768,), (768,))
]
RESNET50 = [(64, 3, 7, 7), (64,), (64,), (1000, 2048), (1000,)] + [
    shape
    for width, num_blocks, entered_with in ((64, 3, 64), (128, 4, 256), (256, 6, 512), (512, 3, 1024))
    for block in range(num_blocks)
    for shape in (
        (width, entered_with if block == 0 else 4 * width, 1, 1),
        (width, width, 3, 3),
        (4 * width, width, 1, 1),
        *([(4 * width, entered_with, 1, 1)] if block == 0 else []),
        *[(width,)] * 4,
        *[(4 * width,)] * 2,
    )
]


LARGE = 1 << 20
"""Elements of a block that is never kept together with others."""


@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral", "none"])
@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("shapes", [GPT2, RESNET50], ids=["gpt2", "resnet50"])
def test_work_and_state_are_even_within_a_tenth(
    shapes: list[tuple[int, ...]], num_ranks: int, preconditioner: str
) -> None:
    costs = estimate_per_rank(shapes, num_ranks=num_ranks, preconditioner=preconditioner)
    for figures in ([c.state_bytes for c in costs], [c.operations_per_step for c in costs]):
        mean = sum(figures) / num_ranks
        assert max(figures) <= 1.1 * mean
    whole = cost.estimate(shapes, preconditioner=preconditioner)
    assert sum(c.num_blocks for c in costs) == whole.num_blocks
    # Each part of a parameter counts its own skipped steps.
    assert whole.state_bytes <= sum(c.state_bytes for c in costs) <= whole.state_bytes + 8 * num_ranks * len(shapes)


def test_a_table_is_spread_over_the_ranks_that_have_less_to_hold() -> None:
    shapes = [(50257, 768), *GPT2]
    for num_ranks in (2, 8, 16):
        held = [c.state_bytes for c in estimate_per_rank(shapes, num_ranks=num_ranks)]
        assert max(held) <= 1.05 * sum(held) / num_ranks


def test_elements_fill_ranks_up_whatever_work_the_ranks_have() -> None:
    # One block is all of the work, and an eighth of the bytes.
    lines = [Items(1, 1e9, 1 << 20, LARGE), Items(7 << 17, 0.0, 8, 1)]
    loads = Loads.none(8)
    assign(lines, loads)
    assert max(loads.state_bytes) <= 1.02 * sum(loads.state_bytes) / 8
    loads = Loads.none(4)
    assign(lines, loads)
    assert max(loads.state_bytes) <= 1.02 * sum(loads.state_bytes) / 4


def test_elements_are_cut_into_few_runs_at_whole_vector_registers() -> None:
    (runs,) = assign([Items(100_001, 0.0, 8, 1)], Loads.none(4))
    assert [run.owner for run in runs] == [0, 1, 2, 3]
    assert [run.start % 64 for run in runs] == [0, 0, 0, 0]
    assert [run.stop for run in runs] == [*(run.start for run in runs[1:]), 100_001]


def test_small_blocks_stay_stacked() -> None:
    # 120 small blocks beside large ones: apart they would be 120 kernels' worth of work over the ranks.
    small, large = assign([Items(120, 1.0, 10, 64), Items(8, 1000.0, 10_000, LARGE)], Loads.none(4))
    assert sorted(run.owner for run in large) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(small) <= 2


def test_consecutive_blocks_of_some_weight_go_to_different_ranks() -> None:
    # So that those whose refresh is due at a step are refreshed by different ranks.
    (runs,) = assign([Items(16, 1.0, 1, LARGE)], Loads.none(4))
    owners = [run.owner for run in runs for _ in range(run.start, run.stop)]
    assert all(len(set(owners[at : at + 4])) == 4 for at in range(0, 16, 4))


def test_what_is_added_later_goes_where_there_is_less() -> None:
    loads = Loads.none(3)
    (first,) = assign([Items(2, 5.0, 5, LARGE)], loads)
    free = next(rank for rank in range(3) if rank not in {run.owner for run in first})
    assert assign([Items(1, 4.0, 4, LARGE)], loads) == [[Owned(0, 1, free)]]
    # And so do elements.
    ((run, *_),) = assign([Items(64, 0.0, 1e-3, 1)], loads)
    assert run.owner == free


def test_more_ranks_than_blocks_leave_some_without_any() -> None:
    assert len({run.owner for run in assign([Items(3, 1.0, 1, LARGE)], Loads.none(8))[0]}) == 3
    assert assign([], Loads.none(2)) == []


def test_what_costs_nothing_has_an_owner_too() -> None:
    assert assign([Items(3, 0.0, 0, 0)], Loads.none(2)) == [[Owned(0, 3, 0)]]
    assert assign([Items(3, 0.0, 0, 1)], Loads.none(2)) == [[Owned(0, 3, 0)]]


def _greedily(costs: Sequence[tuple[float, int]], num_ranks: int) -> list[int]:
    """`assign` of blocks that are lines of their own, in the plainest way."""
    totals = [sum(of_all) or 1 for of_all in zip(*costs, strict=True)] or [1, 1]
    loads = [[0.0, 0.0] for _ in range(num_ranks)]
    owners = [0] * len(costs)

    def shares(of: Sequence[float], more: Sequence[float] = (0.0, 0.0)) -> list[float]:
        return [(a + b) / total for a, b, total in zip(of, more, totals, strict=True)]

    for i in sorted(range(len(costs)), key=lambda i: (-max(shares(costs[i])), i)):
        owners[i] = min(
            range(num_ranks), key=lambda rank: (max(shares(loads[rank], costs[i])), sum(shares(loads[rank])), rank)
        )
        loads[owners[i]] = [a + b for a, b in zip(loads[owners[i]], costs[i], strict=True)]
    return owners


def test_owners_are_those_of_the_plain_greedy_choice() -> None:
    draw = random.Random(3)
    for _ in range(50):
        kinds = [(draw.choice([0.0, draw.random(), 1e6 * draw.random()]), draw.randint(0, 10**6)) for _ in range(9)]
        costs = [draw.choice(kinds) for _ in range(draw.randint(0, 60))]
        num_ranks = draw.randint(1, 20)
        found = assign([Items(1, *of_one, LARGE) for of_one in costs], Loads.none(num_ranks))
        assert [run.owner for (run,) in found] == _greedily(costs, num_ranks)


def test_seventy_thousand_blocks_have_owners_among_thousands_of_ranks_in_seconds() -> None:
    begun = time.process_time()  # other processes on the machine do not count
    lines = assign([Items(23_334, 1.0 + i, 100 + i, LARGE) for i in range(3)], Loads.none(4096))
    # Half a second on an idle machine; looking at every rank for every one takes minutes.
    assert time.process_time() - begun < 15
    assert len({run.owner for runs in lines for run in runs}) == 4096


@pytest.mark.parametrize(("num_layers", "num_ranks", "expected"), [(1, 64, 4), (16, 64, 64), (16, 6, 6), (0, 4, 1)])
def test_no_more_ranks_share_plain_parameters_than_have_use(num_layers: int, num_ranks: int, expected: int) -> None:
    # Four blocks in each layer; without any, a bias.
    h = Hyperparameters(**DEFAULTS)
    shapes: list[tuple[int, ...]] = [(2048, 2048)] * num_layers or [(1,)]
    members = [Member(0, shape, torch.float32, h, RankArray((1,), None), "cpu") for shape in shapes]
    assert choose_group_size(members, num_ranks) == expected


def test_elements_that_are_cut_into_shards_belong_to_the_ranks_that_hold_them() -> None:
    h = Hyperparameters(**{**DEFAULTS, "preconditioner": "none"})
    array = RankArray((2, 2), 1)
    (owners,) = owners_of([Member(0, (1000, 4), torch.float32, h, array, "cpu")], Loads.none(4))
    # Replica by replica: half of each shard.
    assert owners == {0: (((0, 1000),),), 2: (((1000, 2000),),), 1: (((2000, 3000),),), 3: (((3000, 4000),),)}


def test_it_needs_a_rank() -> None:
    with pytest.raises(ValueError, match="num_ranks must be at least 1, got 0"):
        estimate_per_rank([(4, 4)], num_ranks=0)
