"""Who owns what: even in work and in bytes, the same everywhere, and equal shapes still stacked."""

from __future__ import annotations

import pytest

from shampoo import cost
from shampoo.distributed.assignment import Burden, Loads, assign, estimate_per_rank

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


@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral", "none"])
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("shapes", [GPT2, RESNET50], ids=["gpt2", "resnet50"])
def test_work_and_state_are_even_within_a_tenth(
    shapes: list[tuple[int, ...]], num_ranks: int, preconditioner: str
) -> None:
    costs = estimate_per_rank(shapes, num_ranks=num_ranks, preconditioner=preconditioner)
    for figures in ([c.state_bytes for c in costs], [c.operations_per_step for c in costs]):
        mean = sum(figures) / num_ranks
        assert max(figures) <= 1.1 * mean
    whole = cost.estimate(shapes, preconditioner=preconditioner)
    assert sum(c.state_bytes for c in costs) == whole.state_bytes
    assert sum(c.num_blocks for c in costs) == whole.num_blocks


def test_no_rank_owns_more_than_its_share_and_the_largest_parameter() -> None:
    # A vocabulary's table is one parameter of one rank, however many ranks there are.
    shapes = [(50257, 768), *GPT2]
    costs = estimate_per_rank(shapes, num_ranks=8)
    largest = cost.estimate([(50257, 768)]).state_bytes
    assert max(c.state_bytes for c in costs) <= largest + sum(c.state_bytes for c in costs) / 8


def test_equal_shapes_stay_stacked() -> None:
    # 120 small matrices beside large ones: apart they would be 120 kernels' worth of work over the ranks.
    burdens = [Burden("small", 1.0, 10)] * 120 + [Burden("large", 1000.0, 10_000)] * 8
    owners = assign(burdens, Loads.none(4))
    assert all(owners[120:].count(rank) == 2 for rank in range(4))
    assert len(set(owners[:120])) <= 2


def test_neighbours_of_equal_shape_and_some_weight_go_to_different_ranks() -> None:
    owners = assign([Burden("matrix", 1.0, 1)] * 16, Loads.none(4))
    assert all(len(set(owners[at : at + 4])) == 4 for at in range(0, 16, 4))


def test_what_is_added_later_goes_where_there_is_less() -> None:
    loads = Loads.none(3)
    first = assign([Burden("a", 5.0, 5)] * 2, loads)
    assert assign([Burden("b", 4.0, 4)], loads) == [next(rank for rank in range(3) if rank not in first)]


def test_more_ranks_than_parameters_leave_some_without_any() -> None:
    assert len(set(assign([Burden(i, 1.0, 1) for i in range(3)], Loads.none(8)))) == 3
    assert assign([], Loads.none(2)) == []


def test_parameters_that_cost_nothing_have_an_owner_too() -> None:
    assert assign([Burden("empty", 0.0, 0)] * 3, Loads.none(2)) == [0, 0, 0]


def test_it_needs_a_rank() -> None:
    with pytest.raises(ValueError, match="num_ranks must be at least 1, got 0"):
        estimate_per_rank([(4, 4)], num_ranks=0)
