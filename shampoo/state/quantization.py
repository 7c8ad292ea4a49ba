"""Stacks of n × n matrices stored in bfloat16, 8 bit or 4 bit, for low-precision optimizer state.

8 and 4 bit (4-bit Shampoo, arXiv 2405.18144): the n² values of a matrix, row after row, are cut into blocks of 64; a
block is its largest absolute value s, the *scale*, and one code of b bits per value, the nearest entry of the
linear-2 codebook times s,

    R_j = (2j/m − 1)·|2j/m − 1|,  m = 2ᵇ − 1,  j = 0, ..., m,      but 0 for j = (m − 1)/2.

Departures from the paper:
- Scales are bfloat16. Codes are chosen for the scale as stored, so its rounding costs nothing measurable (0.108
  either way on orthogonal matrices), and n = 64 stays below 1/6.5 of float32's bytes, which float32 scales miss.
- Code j is written as j XOR (m − 1)/2, so that bytes of zeros are the zero matrix.
- Orthogonal matrices, and symmetric ones whose diagonal is kept elsewhere, have only n(n − 1)/2 degrees of freedom: the
  bytes of 4 bits per entry hold 8 bits for each of these. So if the caller names such a `Structure`, "int4" stores the
  Householder vectors of the QR decomposition (what is read back is orthogonal to rounding), or the lower triangle. On
  random matrices of condition number 1e6, A^(-1/4) from such eigenvectors, those of large eigenvalues first, is off by
  0.3 to 1.7% (4-bit entries: 15 to 16%, rectified 4 to 9%), the stored root itself by 0.2 to 0.6% (3 to 9%), by the
  spectrum: `tests/shampoo/state/test_packed_eigenvectors.py` checks these figures. The price: reading eigenvectors
  costs a triangular solve, and reading roots takes about twice the time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from shampoo.hyperparameters import StateDtype

Structure: TypeAlias = Literal["general", "orthogonal", "symmetric"]
"""The structure of the matrices; "symmetric" ones have a diagonal of zeros. It only changes how "int4" stores them."""

BLOCK_VALUES = 64
"""Values that share a scale, as in the paper."""

_PLAIN_DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_BITS: dict[str, int] = {"int8": 8, "int4": 4}
_TINY = torch.finfo(torch.float32).tiny
_LARGEST_SCALE = torch.finfo(torch.bfloat16).max
_CHUNK_CODES_CPU = 1 << 16
"""Codes decoded together on the CPU: their indices and values, 0.5 MiB, stay in the cache."""
_CHUNK_CODES = 1 << 24
"""Codes decoded together on other devices: their indices and values are limited to some 128 MiB."""


def packed_layout(
    size: int, dtype: StateDtype, *, structure: Structure = "general"
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape, without the stack's dimension, and dtype of each tensor that holds a size × size matrix, by name.

    Raises:
        ValueError: an unknown dtype or structure, or a negative size.
    """
    _check_kind(dtype, structure)
    if size < 0:
        raise ValueError(f"size must not be negative, got {size}")
    if dtype in _PLAIN_DTYPES:
        return {"values": ((size, size), _PLAIN_DTYPES[dtype])}
    num_values, bits = _num_values(size, dtype, structure), _bits(dtype, structure)
    layout: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "codes": ((math.ceil(num_values * bits / 8),), torch.uint8),
        "scales": ((math.ceil(num_values / BLOCK_VALUES),), torch.bfloat16),
    }
    if _stored_as(dtype, structure) == "orthogonal":
        layout["signs"] = ((size,), torch.bfloat16)
    return layout


def pack(X: Tensor, into: Mapping[str, Tensor], dtype: StateDtype, *, structure: Structure = "general") -> None:
    """Writes X, (K, n, n) float32, into the tensors of its layout, each (K, ...), in place; others are left alone.

    Each matrix is stored separately: row k of every tensor depends only on X[k]. Packing the result of `unpack` gives
    the same bits again, except for "int4" of "orthogonal" matrices. The structure is not checked: "int4" reads the
    lower triangle of symmetric matrices without the diagonal, and gives the nearby Q of the QR decomposition for
    orthogonal ones (zeros for zeros).

    A block that holds a NaN or an infinity becomes NaN; in an orthogonal matrix, at least the column does. A block
    whose values are all below float32's smallest normal number, 1.2e-38, becomes zeros.

    Raises:
        ValueError: X or a tensor of `into` has another shape or dtype than the layout asks for.
    """
    _check_stack(X)
    n = X.shape[-1]
    num, _ = _check_stored(into, n, dtype, structure)
    if num != len(X):
        raise ValueError(f"{len(X)} matrices do not fit tensors that hold {num}")
    if dtype in _PLAIN_DTYPES:
        into["values"].copy_(X)
        return
    match _stored_as(dtype, structure):
        case "orthogonal":
            values, signs = _householder_vectors(X)
            into["signs"].copy_(signs)
        case "symmetric":
            rows, columns = torch.tril_indices(n, n, -1, device=X.device)
            values = X[:, rows, columns]
        case "general":
            values = X.reshape(len(X), n * n)
    _encode(values, into["codes"], into["scales"], bits=_bits(dtype, structure))


def unpack(
    stored: Mapping[str, Tensor],
    size: int,
    dtype: StateDtype,
    *,
    structure: Structure = "general",
) -> Tensor:
    """The stored matrices, (K, size, size) float32: a new tensor, never a view of what is stored.

    Args:
        stored: The tensors of the layout, each (K, ...); others are left alone.
        size: n.
        dtype: As at `pack`.
        structure: As at `pack`.

    Raises:
        ValueError: a tensor has another shape or dtype than the layout asks for.
    """
    num, device = _check_stored(stored, size, dtype, structure)
    out = torch.empty((num, size, size), dtype=torch.float32, device=device)
    if dtype in _PLAIN_DTYPES:
        return out.copy_(stored["values"])
    table = decode_table(dtype, device, structure=structure)
    kind = _stored_as(dtype, structure)
    num_values = _num_values(size, dtype, structure)
    values = out.view(num, num_values) if kind == "general" else out.new_empty((num, num_values))
    _decode(stored["codes"], stored["scales"], table, out=values)
    if kind == "orthogonal":
        _product_of_reflections(values, stored["signs"], out=out)
    elif kind == "symmetric":
        _symmetric(values, out=out)
    return out


@functools.cache  # called by each read
def decode_table(dtype: StateDtype, device: torch.device, *, structure: Structure = "general") -> Tensor:
    """The values that each byte of codes means, in units of the scale, (256, values per byte) float32; not to be
    written to.

    Raises:
        ValueError: the dtype has no codes, or the structure is unknown.
    """
    _check_kind(dtype, structure)
    if dtype not in _BITS:
        raise ValueError(f"{dtype!r} has no codes; the dtypes that have: {', '.join(_BITS)}")
    byte = torch.arange(256, device=device)
    if _bits(dtype, structure) == 8:
        return _codebook(8, device)[byte ^ 127].unsqueeze(1)
    return _codebook(4, device)[torch.stack([byte & 15, byte >> 4], dim=1) ^ 7]


def is_product_of_reflections(dtype: StateDtype, structure: Structure) -> bool:
    """True if matrices are stored as Householder vectors: what is read back is orthogonal to rounding."""
    return _stored_as(dtype, structure) == "orthogonal"


def rectify(V: Tensor) -> Tensor:
    """1.5·V − 0.5·V Vᵀ V: a step of Newton and Schulz towards the nearest orthogonal matrix.

    V: (K, n, n), singular values below √3. A singular value at a small distance d from 1 ends at a distance of 1.5·d².
    The "orthogonality rectification" of arXiv 2405.18144, which does it once before an update of A and four times
    before its root.
    """
    return torch.baddbmm(V, V, torch.bmm(V.mT, V), beta=1.5, alpha=-0.5)


def _codebook(bits: int, device: torch.device) -> Tensor:
    """R_0 < ... < R_m, float32. Each is rounded once, on any device, because integers are divided."""
    largest = (1 << bits) - 1
    odd = torch.arange(-largest, largest + 1, 2, device=device)
    return torch.where(odd == -1, 0, odd * odd.abs()).to(torch.float32) / largest**2


def _encode(values: Tensor, codes: Tensor, scales: Tensor, *, bits: int) -> None:
    """Writes the nearest codes of (K, values per matrix) float32, and their scales."""
    for rows in _chunks(codes):
        # The last block and the last byte are padded with zeros.
        padded = pad(values[rows], (0, -values.shape[1] % BLOCK_VALUES))
        blocks = padded.view(*scales[rows].shape, BLOCK_VALUES)
        scales[rows] = scale = _scales(blocks)
        divisor = torch.where(scale == 0, 1, scale.float())
        nearest = _nearest_entries(blocks / divisor.unsqueeze(-1), bits).flatten(1)
        code = nearest.bitwise_xor_((1 << bits - 1) - 1)
        if bits == 4:
            code = code[:, 0::2] | (code[:, 1::2] << 4)
        codes[rows] = code[:, : codes.shape[1]]


def _nearest_entries(x: Tensor, bits: int) -> Tensor:
    """The j whose R_j is nearest, uint8, for |x| hardly above 1; that of 0 for NaN. Overwrites x.

    In units of 1/m² the entries are the squares of the odd numbers k, signed. Halfway between k² and (k + 2)² lies (k +
    1)² + 1, so p = ⌊√(|x| − 1)/2⌋ steps lead from 1 to the nearest. There is no entry at −1, but one at 0; the boundary
    between it and 1 is 0.5, and that between it and −9 is −4.5. A search among the midpoints gives the same and takes
    longer.
    """
    last = (1 << bits) - 1
    x = x.mul_(last**2)
    p = x.abs().sub_(1).clamp_(min=0).sqrt_().mul_(0.5).floor_()
    down = torch.fmax(p, (x < -4.5).to(p.dtype)).neg_()
    return torch.where(x > 0.5, p.add_(1), down).add_((last - 1) // 2).to(torch.uint8)


def _scales(blocks: Tensor) -> Tensor:
    """Largest absolute value over the last dimension in bfloat16; NaN where it is not finite.

    Rounding a scale to nearest, up or down, keeps the block's largest value at the outermost code in every
    codebook here, so the scale that a decoded block has is the stored one.
    """
    largest = blocks.abs().amax(dim=-1)
    largest = torch.where(largest.isfinite(), largest, torch.nan)
    # A subnormal scale has too few bits to be recovered exactly. bfloat16 would round the largest float32 to infinity.
    return torch.where(largest < _TINY, 0, largest.clamp(max=_LARGEST_SCALE)).to(torch.bfloat16)


def _decode(codes: Tensor, scales: Tensor, table: Tensor, *, out: Tensor) -> None:
    """Writes the values of (K, bytes) codes into (K, values per matrix) float32."""
    num_whole = out.shape[1] // BLOCK_VALUES
    whole = num_whole * BLOCK_VALUES
    if table.shape[1] == 2:
        # A pair is read as one element of 8 bytes: on one thread this is twice as fast as rows of two, and faster than
        # arithmetic.
        table = table.view(torch.float64)
    table = table.view(-1)
    for rows in _chunks(codes):
        scale = scales[rows].float()
        values = table.index_select(0, codes[rows].reshape(-1).int()).view(torch.float32).view(len(scale), -1)
        block_shape = (len(scale), num_whole, BLOCK_VALUES)
        torch.mul(
            values[:, :whole].view(block_shape),
            scale[:, :num_whole].unsqueeze(-1),
            out=out[rows, :whole].view(block_shape),
        )
        if whole < out.shape[1]:
            torch.mul(values[:, whole : out.shape[1]], scale[:, num_whole:], out=out[rows, whole:])


def _chunks(codes: Tensor) -> Iterator[slice]:
    """Consecutive rows of (K, bytes) codes, few enough to decode together."""
    most = _CHUNK_CODES_CPU if codes.device.type == "cpu" else _CHUNK_CODES
    rows = max(1, most // max(1, codes.shape[1]))
    return (slice(start, start + rows) for start in range(0, len(codes), rows))


def _symmetric(triangles: Tensor, *, out: Tensor) -> None:
    """Writes (K, n, n) from (K, n(n − 1)/2) lower triangles, row after row; the diagonal is zero."""
    n = out.shape[-1]
    if n > 1:
        i = torch.arange(n, device=out.device, dtype=torch.int32)
        row, column = torch.maximum(i.unsqueeze(1), i), torch.minimum(i.unsqueeze(1), i)
        # On the diagonal this is the next row's first entry; for the last row it would be out of bounds.
        position = (row * (row - 1) // 2 + column).clamp_(max=triangles.shape[1] - 1)
        torch.index_select(triangles, 1, position.view(-1), out=out.view(len(out), n * n))
    out.diagonal(dim1=-2, dim2=-1).zero_()


# An orthogonal V = H_1 ⋯ H_n · diag(signs), H_j = I − 2·v_j v_jᵀ/‖v_j‖² with v_j = (0, ..., 0, 1, w_j): whatever the
# rounding of the w_j, the product is orthogonal. W = [v_1, ..., v_n] is unit lower triangular.


def _householder_vectors(V: Tensor) -> tuple[Tensor, Tensor]:
    """The w_j one after another, (K, n(n − 1)/2) float32, and the signs, (K, n), of orthogonal V, (K, n, n)."""
    factored, tau = torch.geqrf(V)
    n = V.shape[-1]
    columns, rows = torch.triu_indices(n, n, 1, device=V.device)
    # R is diagonal: ±1 to rounding, zeros for zeros, NaN for NaN. LAPACK's H_j is the identity if nothing has to be
    # reflected; ours, with w_j = 0, changes the sign.
    signs = factored.diagonal(dim1=-2, dim2=-1).round() * torch.where(tau == 0, -1, 1)
    return factored[:, rows, columns], signs


def _product_of_reflections(vectors: Tensor, signs: Tensor, *, out: Tensor) -> None:
    """Writes V, (K, n, n), from (K, n(n − 1)/2) vectors and (K, n) signs.

    By the compact WY form, H_1 ⋯ H_n = I − W S⁻¹ Wᵀ with S the upper triangle of WᵀW, its diagonal halved: matrix
    products and one triangular solve for the whole stack, while LAPACK goes matrix by matrix.
    """
    n = signs.shape[-1]
    columns, rows = torch.triu_indices(n, n, 1, device=signs.device)
    W = out.new_zeros((len(signs), n, n))
    W[:, rows, columns] = vectors
    W.diagonal(dim1=-2, dim2=-1).fill_(1)
    S = torch.bmm(W.mT, W).triu_()
    S.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    reflected = torch.linalg.solve_triangular(S, W.mT, upper=True)
    torch.bmm(W, reflected, out=out).neg_()
    out.diagonal(dim1=-2, dim2=-1).add_(1)
    out.mul_(signs.unsqueeze(-2))


def _stored_as(dtype: StateDtype, structure: Structure) -> Structure:
    return structure if dtype == "int4" else "general"


def _bits(dtype: StateDtype, structure: Structure) -> int:
    """Bits per code."""
    return _BITS[dtype] if _stored_as(dtype, structure) == "general" else 8


def _num_values(size: int, dtype: StateDtype, structure: Structure) -> int:
    """Codes per matrix."""
    return size * size if _stored_as(dtype, structure) == "general" else size * (size - 1) // 2


def _check_kind(dtype: str, structure: str) -> None:
    if dtype not in get_args(StateDtype):
        raise ValueError(f"unknown state dtype {dtype!r}; known: {', '.join(get_args(StateDtype))}")
    if structure not in get_args(Structure):
        raise ValueError(f"unknown structure {structure!r}; known: {', '.join(get_args(Structure))}")


def _check_stack(X: Tensor) -> None:
    if X.dim() != 3 or X.shape[1] != X.shape[2] or X.dtype != torch.float32:
        raise ValueError(f"a stack of matrices must be (K, n, n) float32, got {X.dtype} of shape {tuple(X.shape)}")


def _check_stored(
    stored: Mapping[str, Tensor], size: int, dtype: StateDtype, structure: Structure
) -> tuple[int, torch.device]:
    """Number of matrices in the stack, and its device. Tensors under other names are left alone."""
    layout = packed_layout(size, dtype, structure=structure)
    actual = {name: (tuple(stored[name].shape), stored[name].dtype) for name in layout if name in stored}
    num = stored["codes" if dtype in _BITS else "values"].shape[:1].numel() if len(actual) == len(layout) else 0
    expected = {name: ((num, *shape), kind) for name, (shape, kind) in layout.items()}
    if actual != expected:
        raise ValueError(f"{dtype} matrices of size {size} are stored as (K, ...) of {layout}, got {actual}")
    return num, stored[next(iter(layout))].device
