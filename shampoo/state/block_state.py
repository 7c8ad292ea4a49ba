"""The state of stacked blocks: the names and shapes of its tensors, and the tensors themselves.

Only `state_layout` defines what the state holds; allocation and `shampoo.cost` both follow it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shampoo.hyperparameters import Hyperparameters
from shampoo.state.factors import SideKind, is_plain, side_kinds
from shampoo.state.quantization import Structure
from shampoo.state.stored_matrices import StoredMatrices, TensorSpec

HOST = ("refreshed", "begun")
"""The only tensors that are always in host memory, on any device: the host makes decisions by them."""


Due = tuple[tuple[int, int, int], ...]
"""The units to refresh: (side, first block, last block + 1)."""


@dataclass(frozen=True, slots=True)
class Side:
    """State of one side, of size d, of K stacked blocks: a factor with what is derived from it."""

    kind: SideKind
    size: int
    factor: Tensor | None
    """A, (K, d, d), of which only the lower triangle is valid, or (K, d) for a diagonal one. None in low precision."""
    root: StoredMatrices | Tensor | None
    """A^(−e): matrices, or (K, d); the identity before the first refresh."""
    basis: StoredMatrices | None
    """Eigenvectors Q in columns; the identity before the first refresh."""
    eigenvalues: Tensor | None
    """(K, d)."""
    refreshed: Tensor | None
    """The parameter's step at the last refresh, 0 for none, (K,) int64 on the host. None without a factor."""
    num_failed: Tensor | None
    """Refreshes that failed and left the previous root or basis in use, (K,) int64."""
    num_failed_in_a_row: Tensor | None
    condition: Tensor | None
    """Condition number of the factor, damped, at its last refresh, (K,) float32."""
    residual: Tensor | None
    """Remaining error after the last refresh: off-diagonal share in the new basis, or the root's residual, (K,)
    float32."""

    def mapped(self, of: Callable[[Tensor], Tensor]) -> Side:
        """The same with `of` each tensor in its place."""
        root = self.root
        return Side(
            kind=self.kind,
            size=self.size,
            factor=_if_there(of, self.factor),
            root=root.mapped(of) if isinstance(root, StoredMatrices) else _if_there(of, root),
            basis=None if self.basis is None else self.basis.mapped(of),
            eigenvalues=_if_there(of, self.eigenvalues),
            refreshed=_if_there(of, self.refreshed),
            num_failed=_if_there(of, self.num_failed),
            num_failed_in_a_row=_if_there(of, self.num_failed_in_a_row),
            condition=_if_there(of, self.condition),
            residual=_if_there(of, self.residual),
        )


@dataclass(frozen=True, slots=True)
class LeadingSubspace:
    """Leading eigenvectors of the shorter side, of size d, of K stacked matrices with a longer one of size l."""

    basis: Tensor
    """Q, orthonormal columns, (K, d, r)."""
    covariance: Tensor
    """S, the average of the gradients' Gram matrices in Q, (K, r, r)."""
    second_moment: Tensor
    """V, the average of the squared gradients in Q, (K, l, r)."""

    def mapped(self, of: Callable[[Tensor], Tensor]) -> LeadingSubspace:
        """The same with `of` each tensor in its place."""
        return LeadingSubspace(of(self.basis), of(self.covariance), of(self.second_moment))


@dataclass(frozen=True, slots=True)
class BlockState:
    """State of K stacked blocks of shape d_1 × ... × d_k; slices of it share its memory."""

    sides: tuple[Side, ...]
    """() for blocks without factors."""
    first_moment: Tensor | None
    """M, (K, d_1, ..., d_k), in the eigenbasis for soap and kl; None for β1 = 0."""
    second_moment: Tensor | None
    """V of the grafting, or of soap in the eigenbasis."""
    momentum: Tensor | None
    """B; None without momentum."""
    begun: Tensor | None
    """The parameter's step at which kl's statistics began, 0 for none yet, (K,) int64 on the host."""
    leading: LeadingSubspace | None
    """The subspace of spectral with a rank; None for others."""

    def rows(self, start: int, stop: int) -> BlockState:
        """The state of blocks start, ..., stop − 1."""
        return self._mapped(lambda x: x[start:stop])

    def clone(self) -> BlockState:
        """A copy of its own memory."""
        return self._mapped(torch.clone)

    def _mapped(self, of: Callable[[Tensor], Tensor]) -> BlockState:
        return BlockState(
            sides=tuple(side.mapped(of) for side in self.sides),
            first_moment=_if_there(of, self.first_moment),
            second_moment=_if_there(of, self.second_moment),
            momentum=_if_there(of, self.momentum),
            begun=_if_there(of, self.begun),
            leading=None if self.leading is None else self.leading.mapped(of),
        )


def _if_there(of: Callable[[Tensor], Tensor], x: Tensor | None) -> Tensor | None:
    return None if x is None else of(x)


def is_refreshed(state: BlockState) -> bool:
    """True once all factors of all blocks have been refreshed; the first refresh is of all together."""
    return all(side.refreshed is None or bool((side.refreshed > 0).all()) for side in state.sides)


def state_layout(block: Sequence[int], h: Hyperparameters, working: torch.dtype) -> dict[str, TensorSpec]:
    """Name, shape (without the leading K) and dtype of every tensor in the state of blocks of this shape.

    Names of a side end in its number: "factor0", "root1.codes".
    """
    layout: dict[str, TensorSpec] = {}
    for number, (kind, d) in enumerate(zip(side_kinds(block, h), block, strict=False)):
        for name, spec in _side_layout(kind, d, h, working).items():
            quantity, _, part = name.partition(".")
            layout[f"{quantity}{number}" + (f".{part}" if part else "")] = spec
    plain = is_plain(block, h)
    method = h.plain_method if plain else h.grafting_method
    has_second_moment = method in ("adagrad", "rmsprop", "adam") or (h.preconditioner == "soap" and not plain)
    for name, wanted in (
        ("first_moment", h.betas[0] > 0),
        ("second_moment", has_second_moment),
        ("momentum", h.momentum > 0),
    ):
        if wanted:
            layout[name] = (tuple(block), working)
    if h.preconditioner == "kl" and not plain:
        layout["begun"] = ((), torch.int64)
    if h.rank is not None and not plain:
        shorter, longer = sorted((block[0], math.prod(block[1:])))
        r = min(h.rank, shorter)
        shapes = {"leading_basis": (shorter, r), "leading_covariance": (r, r), "leading_second_moment": (longer, r)}
        layout.update({name: (shape, working) for name, shape in shapes.items()})
    return layout


def _side_layout(kind: SideKind, d: int, h: Hyperparameters, working: torch.dtype) -> dict[str, TensorSpec]:
    if kind == "identity":
        return {}
    layout: dict[str, TensorSpec] = {}
    if kind == "diagonal":
        # kl's diagonal factor consists of its eigenvalues; low precision would save nothing.
        layout["eigenvalues" if h.preconditioner == "kl" else "factor"] = ((d,), working)
        if h.preconditioner == "shampoo":
            layout["root"] = ((d,), working)
    else:
        if not h.low_precision_state:
            layout["factor"] = ((d, d), working)
        if h.preconditioner == "shampoo":
            root = StoredMatrices.layout(d, h.state_dtype, "symmetric", working=working)
            layout.update(_prefixed("root", root, h))
        if h.keeps_basis:
            basis = StoredMatrices.layout(d, h.state_dtype, "orthogonal", working=working)
            layout.update(_prefixed("basis", basis, h))
        if h.low_precision_state or h.preconditioner == "kl":
            layout["eigenvalues"] = ((d,), working)
    layout.update(dict.fromkeys(("refreshed", "num_failed", "num_failed_in_a_row"), ((), torch.int64)))
    layout.update(dict.fromkeys(("condition", "residual"), ((), torch.float32)))
    return layout


def _prefixed(quantity: str, parts: Mapping[str, TensorSpec], h: Hyperparameters) -> dict[str, TensorSpec]:
    if not h.low_precision_state:
        return {quantity: parts["values"]}
    return {f"{quantity}.{part}": spec for part, spec in parts.items()}


def allocate(num_blocks: int, block: Sequence[int], h: Hyperparameters, like: Tensor) -> dict[str, Tensor]:
    """The tensors of `state_layout` for K = `num_blocks`, before the first step, on the device of `like`."""
    tensors = {
        name: torch.zeros((num_blocks, *shape), dtype=dtype, device="cpu" if name.startswith(HOST) else like.device)
        for name, (shape, dtype) in state_layout(block, h, like.dtype).items()
    }
    for side in assemble(tensors, block, h).sides:
        if isinstance(side.root, Tensor):
            side.root.fill_(1)
        for matrices in (side.root, side.basis):
            if isinstance(matrices, StoredMatrices):
                matrices.set_to_identity()
        if side.eigenvalues is not None and h.preconditioner == "kl":
            side.eigenvalues.fill_(1)
    if "leading_basis" in tensors:
        tensors["leading_basis"].copy_(_cosines(*tensors["leading_basis"].shape[1:]))
    return tensors


def _cosines(d: int, r: int) -> Tensor:
    """The first r vectors of the discrete cosine transform, orthonormal columns (d, r) float64: every entry has
    weight in them, so the iteration finds every direction that has a gradient."""
    positions, frequencies = (torch.arange(n, dtype=torch.float64, device="cpu") for n in (d, r))
    vectors = torch.cos(torch.outer(positions + 0.5, frequencies) * (math.pi / d))
    return torch.nn.functional.normalize(vectors, dim=0)


def assemble(tensors: Mapping[str, Tensor], block: Sequence[int], h: Hyperparameters) -> BlockState:
    """The state whose tensors have these names."""

    def of_side(number: int) -> Callable[[str], Tensor | None]:
        return lambda quantity: tensors.get(f"{quantity}{number}")

    def matrices(quantity: str, number: int, size: int, structure: Structure) -> StoredMatrices | None:
        whole = tensors.get(f"{quantity}{number}")
        if whole is not None:
            return StoredMatrices(size, "float32", structure, {"values": whole}, whole.dtype)
        prefix = f"{quantity}{number}."
        parts = {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
        if not parts:
            return None
        return StoredMatrices(size, h.state_dtype, structure, parts, tensors[f"eigenvalues{number}"].dtype)

    sides: list[Side] = []
    for number, (kind, d) in enumerate(zip(side_kinds(block, h), block, strict=False)):
        get = of_side(number)
        sides.append(
            Side(
                kind=kind,
                size=d,
                factor=get("factor"),
                root=get("root") if kind == "diagonal" else matrices("root", number, d, "symmetric"),
                basis=matrices("basis", number, d, "orthogonal"),
                eigenvalues=get("eigenvalues"),
                refreshed=get("refreshed"),
                num_failed=get("num_failed"),
                num_failed_in_a_row=get("num_failed_in_a_row"),
                condition=get("condition"),
                residual=get("residual"),
            )
        )
    return BlockState(
        sides=tuple(sides),
        first_moment=tensors.get("first_moment"),
        second_moment=tensors.get("second_moment"),
        momentum=tensors.get("momentum"),
        begun=tensors.get("begun"),
        leading=LeadingSubspace(
            tensors["leading_basis"], tensors["leading_covariance"], tensors["leading_second_moment"]
        )
        if "leading_basis" in tensors
        else None,
    )
