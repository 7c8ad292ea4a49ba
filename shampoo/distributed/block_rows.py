"""Some rows of a tensor whose other rows are on other ranks, as `torch.distributed.checkpoint` saves and loads them.

The ranks need not divide a tensor evenly, nor in order, so it is not a DTensor: this class has the three methods that
torch's planners call on any object. A checkpoint holds the whole tensor, in pieces; any ranks can load any rows of it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from shampoo.torch_internals import to_copy, without_storage

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
    from torch.distributed.checkpoint.planner import WriteItem

BLOCKS = "blocks."
"""Prefix of the names under which the state of a part says which blocks it covers."""


@dataclass(frozen=True, slots=True)
class RowRuns:
    """Rows of a tensor, as runs [first, last + 1) in order."""

    runs: tuple[tuple[int, int], ...]
    total: int
    """Rows of the whole tensor."""


class BlockRows(Tensor):
    """The rows of a tensor that this rank has: in shape, dtype and device the whole tensor, to be saved and loaded.

    It is a tensor, because the planners look for rows only in tensors.
    """

    local: Tensor
    """The rows themselves, (rows of this rank, ...)."""
    rows: RowRuns

    @staticmethod
    def __new__(cls, local: Tensor, rows: RowRuns) -> Self:
        shape = torch.Size([rows.total, *local.shape[1:]])
        whole = without_storage(cls, shape, local)
        whole.local, whole.rows = local, rows
        return whole

    def __init__(self, local: Tensor, rows: RowRuns) -> None:
        super().__init__()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # which torch declares as it is never called
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Copies for a checkpoint that is written in the background; nothing is computed.

        Raises:
            NotImplementedError: any other operation.
        """
        tensor = args[0]
        if func in (torch.ops.aten.new_empty.default, torch.ops.aten.empty_like.default):
            options = {name: x for name, x in (kwargs or {}).items() if name in ("dtype", "device")}
            return cls(torch.empty_like(tensor.local, **options), tensor.rows)
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default, to_copy):
            return cls(func(tensor.local, *args[1:], **(kwargs or {})), tensor.rows)
        raise NotImplementedError(f"{func} of rows of which other ranks have the rest")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"BlockRows({tuple(self.local.shape)} of {tuple(self.shape)}, runs={self.rows.runs})"

    @property
    def pieces(self) -> list[tuple[int, Tensor]]:
        """The first row of each run, and the run."""
        lengths = [stop - start for start, stop in self.rows.runs]
        at = itertools.accumulate(lengths, initial=0)
        return [
            (start, self.local[here : here + length])
            for (start, _), here, length in zip(self.rows.runs, at, lengths, strict=False)
        ]

    def __create_write_items__(self, fqn: str, _: object) -> list[WriteItem]:
        from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

        properties = TensorProperties.create_from_tensor(self.local)
        return [
            WriteItem(
                index=MetadataIndex(fqn, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk=chunk, properties=properties, size=self.shape),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        return [
            ChunkStorageMetadata(torch.Size([start, *(0 for _ in piece.shape[1:])]), piece.shape)
            for start, piece in self.pieces
        ]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        assert index.offset is not None
        return dict(self.pieces)[index.offset[0]]
