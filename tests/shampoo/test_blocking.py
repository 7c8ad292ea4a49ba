"""Merging, cutting and the strided views that address blocks."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shampoo.blocking import cut, merged_shape, regions

SIDES = st.one_of(st.just(0), st.just(1), st.sampled_from([2, 3, 5, 7, 11, 13, 97]), st.integers(2, 24))
SHAPES = st.lists(SIDES, max_size=5).map(tuple).filter(lambda shape: math.prod(shape) <= 20_000)


@pytest.mark.parametrize(
    ("length", "max_dim", "expected"),
    [
        (1025, 1024, [(1, 513), (1, 512)]),
        (1024, 1024, [(1, 1024)]),
        (4608, 1024, [(6, 768)]),
        (257, 256, [(1, 129), (1, 128)]),
        (768, 256, [(3, 256)]),
        (50257, 768, [(31, 762), (35, 761)]),
        (7, 8, [(1, 7)]),
    ],
)
def test_cut_divides_exactly_or_evenly(length: int, max_dim: int, expected: list[tuple[int, int]]) -> None:
    assert cut(length, max_dim) == expected


@settings(deadline=None)
@given(length=st.integers(1, 5000), max_dim=st.integers(2, 1024))
def test_cut_covers_the_length_with_pieces_of_similar_size(length: int, max_dim: int) -> None:
    runs = cut(length, max_dim)
    assert sum(count * size for count, size in runs) == length
    sizes = [size for _, size in runs]
    assert max(sizes) <= max_dim
    assert max(sizes) - min(sizes) <= 1
    assert all(count > 0 for count, _ in runs)
    assert sum(count for count, _ in runs) <= 2 * math.ceil(length / max_dim)


@pytest.mark.parametrize(
    ("shape", "max_dim", "expected"),
    [
        ((), 256, (1,)),
        ((1, 1), 256, (1,)),
        ((0, 3), 256, ()),
        ((64,), 256, (64,)),
        ((1, 64, 1), 256, (64,)),
        ((90, 90), 8192, (90, 90)),  # never one vector of 8,100
        ((10, 512), 8192, (10, 512)),
        ((64, 32, 3, 3), 1024, (64, 288)),
        ((512, 512, 3, 3), 256, (512, 4608)),  # kernel into the input side although the product is long
        ((768, 3, 16, 16), 256, (768, 768)),
        ((3, 3, 64, 128), 256, (576, 128)),
        ((100, 200, 300), 256, (100, 200, 300)),
        ((5, 6, 5, 7), 8, (5, 6, 5, 7)),
    ],
)
def test_merged_shape(shape: tuple[int, ...], max_dim: int, expected: tuple[int, ...]) -> None:
    assert merged_shape(shape, max_dim) == expected


@settings(deadline=None)
@given(shape=SHAPES, max_dim=st.integers(2, 64))
def test_merging_keeps_the_elements_and_never_makes_a_vector_of_a_matrix(shape: tuple[int, ...], max_dim: int) -> None:
    merged = merged_shape(shape, max_dim)
    if 0 in shape:
        assert merged == ()
        return
    assert math.prod(merged) == math.prod(shape)
    assert (len(merged) >= 2) == (sum(d > 1 for d in shape) >= 2)


@settings(deadline=None)
@given(shape=SHAPES, max_dim=st.integers(2, 64), max_blocks=st.integers(1, 9))
def test_regions_and_their_parts_address_every_element_once(
    shape: tuple[int, ...], max_dim: int, max_blocks: int
) -> None:
    tensor = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    seen = []
    for region in regions(shape, max_dim):
        view = region.view(tensor)
        assert view.shape == region.grid + region.block
        if len(region.block) > 1:
            assert max(region.block) <= max_dim
        parts = list(region.parts(max_blocks))
        assert all(part.num_blocks <= max_blocks for part in parts)
        # Parts follow one another in the order of the region's blocks.
        stacked = torch.cat([part.view(tensor).reshape(-1, *region.block) for part in parts])
        assert torch.equal(stacked, view.reshape(-1, *region.block))
        seen.append(view.reshape(-1))
    elements = torch.cat(seen) if seen else torch.empty(0, dtype=torch.float64)
    assert torch.equal(elements.sort().values, tensor.reshape(-1))


def test_a_region_of_a_view_with_an_offset_starts_there() -> None:
    whole = torch.arange(30.0)
    (region,) = regions((4, 5), 8)
    assert torch.equal(region.view(whole[10:].view(4, 5)), whole[10:].view(1, 1, 4, 5))
