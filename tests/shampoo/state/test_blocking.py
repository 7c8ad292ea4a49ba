"""Merging, cutting and the strided views that address blocks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shampoo.hyperparameters import Hyperparameters, LargeDimMethod, Preconditioner, unused
from shampoo.state.blocking import Region, cut, merged_shape, regions
from shampoo.state.factors import is_plain

SIDES = st.one_of(st.just(0), st.just(1), st.sampled_from([2, 3, 5, 7, 11, 13, 97]), st.integers(2, 24))
SHAPES = st.lists(SIDES, max_size=5).map(tuple).filter(lambda shape: math.prod(shape) <= 20_000)
# Long enough beside the smallest blocks that a side is left without a factor.
LONG_SHAPES = st.one_of(SHAPES, st.permutations([1, 2, 300]).map(tuple), st.permutations([3, 700]).map(tuple))


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
        (7, 10**400, [(1, 7)]),
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


def _geometry(preconditioner: Preconditioner, max_dim: int, method: LargeDimMethod, one_sided: bool) -> Hyperparameters:
    config: dict[str, Any] = {"max_preconditioner_dim": max_dim, "large_dim_method": method, "one_sided": one_sided}
    if one_sided and method == "diagonal":
        config["large_dim_method"] = "one_sided"
    return Hyperparameters(
        preconditioner=preconditioner,
        **{name: value for name, value in config.items() if name not in unused(preconditioner)},
    )


GEOMETRIES = st.builds(
    _geometry,
    preconditioner=st.sampled_from(["shampoo", "soap", "kl", "spectral", "none"]),
    max_dim=st.integers(2, 64),
    method=st.sampled_from(["blocking", "diagonal", "one_sided"]),
    one_sided=st.booleans(),
)
"""Every member with every treatment of long sides."""


def _numbered(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)


@settings(deadline=None)  # a busy machine may take any time for an example
@given(shape=LONG_SHAPES, h=GEOMETRIES, max_blocks=st.integers(1, 9))
def test_regions_and_their_parts_address_every_element_once(
    shape: tuple[int, ...], h: Hyperparameters, max_blocks: int
) -> None:
    tensor = _numbered(shape)
    seen = []
    for region in regions(shape, h):
        view = region.view(tensor)
        assert view.shape == region.grid + region.block
        assert region.num_blocks == math.prod(region.grid) > 0
        parts = list(region.parts(max_blocks))
        assert all(part.num_blocks <= max_blocks for part in parts)
        # Parts follow one another in the order of the region's blocks.
        stacked = torch.cat([part.view(tensor).reshape(-1, *region.block) for part in parts])
        assert torch.equal(stacked, view.reshape(-1, *region.block))
        for part in (region, *parts):
            assert part.is_dense == part.view(tensor).is_contiguous()
            assert not part.is_dense or torch.equal(part.flat(tensor), part.view(tensor).reshape(-1))
        seen.append(view.reshape(-1))
    elements = torch.cat(seen) if seen else torch.empty(0, dtype=torch.float64)
    assert torch.equal(elements.sort().values, tensor.reshape(-1))


@settings(deadline=None)
@given(shape=LONG_SHAPES, h=GEOMETRIES)
def test_long_sides_are_cut_or_left_whole_as_asked(shape: tuple[int, ...], h: Hyperparameters) -> None:
    merged = merged_shape(shape, h.max_preconditioner_dim)
    found = regions(shape, h)
    if not merged:
        assert found == []
        return
    if found[0].block == ():  # without a preconditioner: the elements in their order
        assert found == [Region(grid=(math.prod(shape),), block=(), strides=(1,), offset=0)]
        return
    assert len(merged) >= 2
    assert all(len(region.block) == len(merged) for region in found)
    if h.large_dim_method == "blocking":
        assert len(found) <= 2 ** len(merged)
        for mode, length in enumerate(merged):
            sizes = {region.block[mode] for region in found}
            assert max(sizes) <= h.max_preconditioner_dim
            assert max(sizes) - min(sizes) <= 1
            assert length > h.max_preconditioner_dim or sizes == {length}
    else:
        (region,) = found
        assert region.grid == tuple(1 for _ in merged)
        assert region.block == merged


@settings(deadline=None)
@given(shape=LONG_SHAPES, h=GEOMETRIES)
def test_a_tensor_is_flat_exactly_if_none_of_its_blocks_has_a_preconditioner(
    shape: tuple[int, ...], h: Hyperparameters
) -> None:
    is_flat = {region.block == () for region in regions(shape, h)}
    if h.preconditioner == "none" or sum(size > 1 for size in shape) < 2:
        assert is_flat <= {True}
    assert len(is_flat) <= 1
    if is_flat == {False}:
        assert not all(is_plain(region.block, h) for region in regions(shape, h))


def _h(
    preconditioner: Preconditioner = "shampoo", method: LargeDimMethod = "blocking", **changes: Any
) -> Hyperparameters:
    return Hyperparameters(
        preconditioner=preconditioner, **{"max_preconditioner_dim": 8, "large_dim_method": method, **changes}
    )


@pytest.mark.parametrize(
    ("shape", "h", "blocks"),
    [
        ((17, 6), _h(), {(6, 6): 2, (5, 6): 1}),
        ((17, 6), _h(method="diagonal"), {(17, 6): 1}),
        ((17, 6), _h(method="one_sided"), {(17, 6): 1}),
        ((17, 20), _h("soap", method="one_sided"), {(): 340}),  # both sides too long
        ((17, 20), _h("soap", method="diagonal"), {(): 340}),  # whose diagonal factors would have the basis I
        ((17, 20), _h("kl", method="diagonal"), {(17, 20): 1}),
        ((17, 20), _h("spectral", method="one_sided"), {(17, 20): 1}),  # which has no factors to be too large
        ((17, 20), _h("kl", one_sided=True, method="one_sided"), {(): 340}),
        ((17, 20), _h("kl", one_sided=True), {(6, 5): 8, (5, 5): 4}),
        ((17,), _h(), {(): 17}),
        ((17, 6), Hyperparameters(preconditioner="none"), {(): 102}),
    ],
)
def test_blocks_of_a_tensor(shape: tuple[int, ...], h: Hyperparameters, blocks: dict[tuple[int, ...], int]) -> None:
    assert {region.block: region.num_blocks for region in regions(shape, h)} == blocks


def test_a_region_of_a_view_with_an_offset_starts_there() -> None:
    whole = torch.arange(30.0)
    (region,) = regions((4, 5), _h())
    assert torch.equal(region.view(whole[10:].view(4, 5)), whole[10:].view(1, 1, 4, 5))
