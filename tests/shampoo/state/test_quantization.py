"""Packed matrices against the codebook they are made of."""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch import Tensor

from shampoo.hyperparameters import StateDtype
from shampoo.state.quantization import (
    BLOCK_VALUES,
    Structure,
    decode_table,
    pack,
    packed_layout,
    unpack,
)
from tests.support.shampoo.packed import matrices, packed, storage, through

DTYPES: list[StateDtype] = ["float32", "bfloat16", "int8", "int4"]
KINDS: list[tuple[StateDtype, Structure]] = [
    *((dtype, "general") for dtype in DTYPES),
    ("int4", "symmetric"),
    ("int4", "orthogonal"),
]
ELEMENTWISE = KINDS[:-1]
RAGGED_SIZES = [1, 2, 3, 7, 64, 65, 100]


def _codebook(bits: int) -> Tensor:
    """Linear-2, as arXiv 2405.18144 states it, float64."""
    last = 2**bits - 1
    entries = [
        0.0 if j == (last - 1) // 2 else math.copysign((2 * j / last - 1) ** 2, 2 * j - last) for j in range(last + 1)
    ]
    return torch.tensor(entries, dtype=torch.float64)


@pytest.mark.parametrize(
    ("size", "dtype", "structure", "num_bytes"),
    [
        (7, "float32", "general", 196),
        (7, "bfloat16", "general", 98),
        (7, "int8", "general", 49 + 2),
        (7, "int4", "general", 25 + 2),
        (7, "int4", "symmetric", 21 + 2),
        (7, "int4", "orthogonal", 21 + 2 + 2 * 7),
        (64, "int8", "general", 4096 + 2 * 64),
        (64, "int4", "general", 2048 + 2 * 64),
        (64, "int4", "symmetric", 2016 + 2 * 32),
        (64, "int4", "orthogonal", 2016 + 2 * 32 + 2 * 64),
        (0, "int4", "orthogonal", 0),
    ],
)
def test_a_matrix_takes_the_bytes_that_its_format_says(
    size: int, dtype: StateDtype, structure: Structure, num_bytes: int
) -> None:
    stored = storage(1, size, dtype, structure)
    assert sum(x.nbytes for x in stored.values()) == num_bytes
    pack(matrices(1, size, structure), stored, dtype, structure=structure)


def test_only_4_bit_makes_use_of_the_structure() -> None:
    for dtype in ("float32", "bfloat16", "int8"):
        X = matrices(2, 10, "orthogonal")
        assert packed_layout(10, dtype, structure="orthogonal") == packed_layout(10, dtype)
        assert torch.equal(through(X, dtype, "orthogonal"), through(X, dtype))


@pytest.mark.parametrize("size", [64, 65, 100, 256, 333, 1024])
@pytest.mark.parametrize("structures", [("general", "general"), ("orthogonal", "symmetric")])
def test_a_factor_and_its_root_in_4_bit_take_at_most_a_6_5th_of_float32(
    size: int, structures: tuple[Structure, Structure]
) -> None:
    vectors, root = (storage(1, size, "int4", structure) for structure in structures)
    eigenvalues_and_diagonal = 2 * 4 * size
    num_bytes = eigenvalues_and_diagonal + sum(x.nbytes for x in [*vectors.values(), *root.values()])
    assert 2 * 4 * size**2 / num_bytes >= 6.5


@pytest.mark.parametrize(("dtype", "bits"), [("int8", 8), ("int4", 4)])
@pytest.mark.parametrize("size", [7, 64, 65])
def test_every_value_becomes_the_nearest_entry_of_the_codebook(dtype: StateDtype, bits: int, size: int) -> None:
    X = matrices(3, size, "general")
    stored = packed(X, dtype)
    scales = stored["scales"].double().repeat_interleave(BLOCK_VALUES, dim=1)[:, : size**2].unsqueeze(-1)
    entries = scales * _codebook(bits)
    distances = (X.double().view(3, -1, 1) - entries).abs()
    chosen = (X.double() - unpack(stored, size, dtype).double()).abs().view(3, -1)
    # Two entries at the same distance but for float32's rounding may be taken for one another.
    assert (chosen - distances.amin(-1) <= 1e-6 * scales.squeeze(-1)).all()
    largest = torch.stack([block.abs().amax(1) for block in X.view(3, -1).split(BLOCK_VALUES, dim=1)], dim=1)
    torch.testing.assert_close(stored["scales"], largest.bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize(("dtype", "bits"), [("int8", 8), ("int4", 4)])
def test_the_entries_of_the_codebook_survive(dtype: StateDtype, bits: int) -> None:
    # Rows of one block each, which begins with the largest value.
    X = _codebook(bits).float()[torch.randint(2**bits, (64, 64), generator=torch.Generator().manual_seed(0))]
    X[:, 0] = 1
    X = X * torch.logspace(-20, 20, 64, base=2).bfloat16().float().unsqueeze(1)
    assert torch.equal(through(X.unsqueeze(0), dtype), X.unsqueeze(0))


@pytest.mark.parametrize(("dtype", "bits"), [("int8", 8), ("int4", 4)])
def test_the_midpoints_part_the_entries(dtype: StateDtype, bits: int) -> None:
    entries = _codebook(bits)
    midpoints = (entries[1:] + entries[:-1]) / 2
    for nudge, expected in ((-1e-5, entries[:-1]), (1e-5, entries[1:])):
        X = torch.zeros(1, 256, 64)  # one block to a row, one midpoint to a block
        X[0, :, 0] = 1
        X[0, : len(midpoints), 1] = (midpoints + midpoints.abs() * nudge).float()
        assert torch.equal(through(X.view(1, 128, 128), dtype).view(256, 64)[: len(midpoints), 1], expected.float())


def test_decode_tables_hold_the_codebook() -> None:
    device = torch.device("cpu")
    pairs = decode_table("int4", device)
    assert pairs.shape == (256, 2)
    assert torch.equal(pairs.unique(), _codebook(4).float())
    assert torch.equal(decode_table("int8", device).view(-1).sort().values, _codebook(8).float())
    assert torch.equal(decode_table("int4", device, structure="symmetric"), decode_table("int8", device))
    assert decode_table("int4", device) is pairs  # each read of a state asks
    with pytest.raises(ValueError, match="'bfloat16' has no codes"):
        decode_table("bfloat16", device)


@pytest.mark.parametrize(("dtype", "structure"), ELEMENTWISE)
@pytest.mark.parametrize("size", [*RAGGED_SIZES, 333])
def test_what_was_unpacked_packs_to_the_same_bits(dtype: StateDtype, structure: Structure, size: int) -> None:
    X = matrices(4, size, structure)
    # Blocks of the most different sizes, near the limits of float32 among them.
    X *= torch.tensor([1.0, 1e-30, 1e37, 1e-37]).view(-1, 1, 1)
    stored = packed(X, dtype, structure)
    again = packed(unpack(stored, size, dtype, structure=structure), dtype, structure)
    assert stored.keys() == again.keys()
    assert all(torch.equal(stored[name], again[name]) for name in stored)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_scales_that_round_far_come_back_as_the_same_bits(dtype: StateDtype) -> None:
    # Largest values across a whole interval between bfloat16 numbers, its midpoint too, from where rounding is longest.
    X = torch.zeros(1, 64, 64)
    X[0, :, 0] = 1 + torch.linspace(0, 2**-6, 64)
    X[0, :, 1:] = torch.rand(64, 63, generator=torch.Generator().manual_seed(0)) * 2 - 1
    stored = packed(X, dtype)
    unpacked = unpack(stored, 64, dtype)
    assert torch.equal(unpacked[0, :, 0], stored["scales"][0].float())
    again = packed(unpacked, dtype)
    assert all(torch.equal(stored[name], again[name]) for name in stored)


@pytest.mark.parametrize(("dtype", "structure"), KINDS)
@pytest.mark.parametrize("size", RAGGED_SIZES)
def test_zero_bytes_are_the_zero_matrix(dtype: StateDtype, structure: Structure, size: int) -> None:
    fresh = storage(2, size, dtype, structure)
    assert torch.equal(unpack(fresh, size, dtype, structure=structure), torch.zeros(2, size, size))
    stored = packed(torch.zeros(2, size, size), dtype, structure)
    assert all(torch.equal(stored[name], fresh[name]) for name in fresh)


@pytest.mark.parametrize(("dtype", "tolerance"), [("int8", 0.0085), ("int4", 0.13)])
@pytest.mark.parametrize("scale", [1e-36, 1e-20, 1.0, 1e20, 7e37])
def test_the_relative_error_is_the_same_at_every_scale(dtype: StateDtype, tolerance: float, scale: float) -> None:
    X = matrices(2, 50, "general")
    error = (through(X * scale, dtype).double() / scale - X).norm() / X.norm()
    assert error < tolerance


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_the_largest_number_stays_finite_and_subnormal_blocks_become_zero(dtype: StateDtype) -> None:
    X = torch.zeros(1, 16, 16)
    X[0, 0, 0] = torch.finfo(torch.float32).max
    X[0, 4] = 1e-39  # the second block
    unpacked = through(X, dtype)
    torch.testing.assert_close(unpacked[0, 0, 0], X[0, 0, 0], rtol=2**-8, atol=0)
    assert (unpacked[0, 4:] == 0).all()


@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_spoils_its_block_alone(dtype: StateDtype, bad: float) -> None:
    X = matrices(2, 16, "general")
    expected = through(X, dtype)
    X[1, 5, 3] = bad
    unpacked = through(X, dtype)
    assert unpacked[1, 4:8].isnan().all()
    unpacked[1, 4:8] = expected[1, 4:8]
    assert torch.equal(unpacked, expected)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("column", [0, 3, 15])
def test_what_is_not_finite_spoils_its_orthogonal_matrix_alone(column: int, bad: float) -> None:
    V = matrices(3, 16, "orthogonal")
    expected = through(V, "int4", "orthogonal")
    V[1, 5, column] = bad
    unpacked = through(V, "int4", "orthogonal")
    assert unpacked[1, :, column].isnan().all()
    assert torch.equal(unpacked[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize(("dtype", "structure"), KINDS)
@pytest.mark.parametrize(("num", "size"), [(3, 7), (0, 7), (4, 1), (5, 300)])  # the last is worked on in several chunks
def test_each_matrix_is_stored_by_itself(dtype: StateDtype, structure: Structure, num: int, size: int) -> None:
    X = matrices(num, size, structure)
    stored = packed(X, dtype, structure)
    unpacked = unpack(stored, size, dtype, structure=structure)
    assert unpacked.shape == X.shape
    for k in range(num):
        alone = packed(X[k : k + 1], dtype, structure)
        assert all(torch.equal(alone[name][0], stored[name][k]) for name in stored)
        rows = {name: x[k : k + 1] for name, x in stored.items()}
        # Batched matrix products may sum in another order than single ones.
        torch.testing.assert_close(
            unpack(rows, size, dtype, structure=structure)[0],
            unpacked[k],
            rtol=0,
            atol=1e-5 if structure == "orthogonal" else 0,
        )


@pytest.mark.parametrize(("dtype", "structure"), KINDS)
def test_saving_and_loading_is_exact(dtype: StateDtype, structure: Structure) -> None:
    stored = packed(matrices(3, 33, structure), dtype, structure)
    file = io.BytesIO()
    torch.save(stored, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert all(torch.equal(loaded[name], stored[name]) for name in stored)
    expected = unpack(stored, 33, dtype, structure=structure)
    assert torch.equal(unpack(loaded, 33, dtype, structure=structure), expected)


@pytest.mark.parametrize(("dtype", "structure"), KINDS)
def test_what_is_unpacked_shares_no_memory_with_what_is_stored(dtype: StateDtype, structure: Structure) -> None:
    stored = packed(matrices(3, 9, structure), dtype, structure)
    found = unpack(stored, 9, dtype, structure=structure)
    expected = found.clone()
    found.zero_()
    assert torch.equal(unpack(stored, 9, dtype, structure=structure), expected)


@pytest.mark.parametrize(("dtype", "structure"), KINDS)
def test_packing_leaves_its_input_the_random_numbers_and_other_tensors_alone(
    dtype: StateDtype, structure: Structure
) -> None:
    X = matrices(2, 20, structure)
    before, state = X.clone(), torch.get_rng_state()
    stored = {**storage(2, 20, dtype, structure), "diagonal": torch.ones(2, 20)}
    pack(X, stored, dtype, structure=structure)
    unpack(stored, 20, dtype, structure=structure)
    assert torch.equal(X, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(stored["diagonal"], torch.ones(2, 20))


@pytest.mark.parametrize(("dtype", "structure"), KINDS)
def test_transposed_and_expanded_matrices_are_packed(dtype: StateDtype, structure: Structure) -> None:
    X = matrices(1, 10, structure)
    assert torch.equal(through(X.mT, dtype, structure), through(X.mT.contiguous(), dtype, structure))
    assert torch.equal(through(X.expand(3, -1, -1), dtype, structure), through(X.repeat(3, 1, 1), dtype, structure))


def test_symmetric_matrices_stay_symmetric() -> None:
    unpacked = through(matrices(2, 33, "symmetric"), "int4", "symmetric")
    assert torch.equal(unpacked, unpacked.mT)
    assert (unpacked.diagonal(dim1=1, dim2=2) == 0).all()


def test_what_does_not_fit_is_refused() -> None:
    X = torch.zeros(2, 8, 8)
    stored = storage(2, 8, "int4")
    with pytest.raises(ValueError, match=r"must be \(K, n, n\) float32"):
        pack(X.double(), stored, "int4")
    with pytest.raises(ValueError, match=r"must be \(K, n, n\) float32"):
        pack(X[:, :7], stored, "int4")
    with pytest.raises(ValueError, match="int8 matrices of size 8 are stored as"):
        pack(X, stored, "int8")
    with pytest.raises(ValueError, match="int4 matrices of size 8 are stored as"):
        pack(X, {"codes": stored["codes"]}, "int4")
    with pytest.raises(ValueError, match="int4 matrices of size 8 are stored as"):
        unpack({**stored, "scales": stored["scales"][:1]}, 8, "int4")
    with pytest.raises(ValueError, match="1 matrices do not fit tensors that hold 2"):
        pack(X[:1], stored, "int4")
    with pytest.raises(ValueError, match="int4 matrices of size 9 are stored as"):
        unpack(stored, 9, "int4")
    with pytest.raises(ValueError, match="unknown state dtype 'int2'"):
        packed_layout(8, "int2")  # type: ignore[arg-type]  # what a config may say
    with pytest.raises(ValueError, match="unknown structure 'diagonal'"):
        packed_layout(8, "int4", structure="diagonal")  # type: ignore[arg-type]  # likewise
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        packed_layout(-1, "int4")
