"""Stacks of square matrices as the state holds them: unpacked, or packed in a lower precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from shampoo.hyperparameters import StateDtype
from shampoo.state.quantization import Structure, is_product_of_reflections, pack, packed_layout, unpack

TensorSpec = tuple[tuple[int, ...], torch.dtype]


@dataclass(frozen=True, slots=True)
class StoredMatrices:
    """K matrices of size d×d; slices share memory."""

    size: int
    dtype: StateDtype
    structure: Structure
    """The structure of the matrices; 4 bit uses it."""
    tensors: Mapping[str, Tensor]
    """Only "values": the unpacked matrices, in the working precision. "diagonal", in float32, is not packed: symmetric
    matrices are roots, whose diagonal dominates."""
    working: torch.dtype
    """Dtype of what is read."""

    @staticmethod
    def layout(size: int, dtype: StateDtype, structure: Structure, *, working: torch.dtype) -> dict[str, TensorSpec]:
        """Shapes, without K, and dtypes of the tensors that hold one matrix."""
        if dtype == "float32":
            return {"values": ((size, size), working)}
        apart: dict[str, TensorSpec] = {"diagonal": ((size,), torch.float32)} if structure == "symmetric" else {}
        return {**packed_layout(size, dtype, structure=structure), **apart}

    @property
    def _packed(self) -> dict[str, Tensor]:
        return {name: x for name, x in self.tensors.items() if name != "diagonal"}

    @property
    def reads_orthogonal(self) -> bool:
        """True if what is read is orthogonal to the rounding of float32."""
        return is_product_of_reflections(self.dtype, self.structure)

    def mapped(self, of: Callable[[Tensor], Tensor]) -> StoredMatrices:
        """The same with `of` each tensor in its place."""
        tensors = {name: of(x) for name, x in self.tensors.items()}
        return StoredMatrices(self.size, self.dtype, self.structure, tensors, self.working)

    def read(self) -> Tensor:
        """(K, d, d); the stored memory itself if it is not packed."""
        if self.dtype == "float32":
            return self.tensors["values"]
        X = unpack(self._packed, self.size, self.dtype, structure=self.structure)
        if "diagonal" in self.tensors:
            X.diagonal(dim1=-2, dim2=-1).copy_(self.tensors["diagonal"])
        return X.to(self.working)

    def write(self, X: Tensor) -> None:
        """Stores X (K, d, d)."""
        if self.dtype == "float32":
            self.tensors["values"].copy_(X)
            return
        X = X.float()
        if "diagonal" in self.tensors:
            self.tensors["diagonal"].copy_(X.diagonal(dim1=-2, dim2=-1))
            X = X.clone()
            X.diagonal(dim1=-2, dim2=-1).zero_()
        pack(X, self._packed, self.dtype, structure=self.structure)

    def set_to_identity(self) -> None:
        first = next(iter(self.tensors.values()))
        if first.is_meta:  # there is nothing to write, and torch cannot infer the shapes that packing computes
            return
        dtype = first.dtype if self.dtype == "float32" else torch.float32
        self.write(torch.eye(self.size, dtype=dtype, device=first.device).expand(first.shape[0], -1, -1))
