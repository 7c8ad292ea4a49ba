"""Plans of writing and reading by rank: the planners of `torch.distributed.checkpoint` on our files.

DCP decides which rank writes which piece of a tensor (a replicated one is written once, by the rank with the least to
write so far) and which pieces a rank has to read for the shards it has now. What it would do around that, a plan
exchanged twice per checkpoint, a pickle per tensor and one for the metadata, is done here with one exchange per
*change* of the plan and without pickles. DCP is imported only where it is used: that takes half as long as importing
torch, and a process that neither writes nor reads a checkpoint does not need it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from shampoo.distributed.block_rows import BlockRows
from trainers.checkpoints.errors import Damaged
from trainers.checkpoints.tensor_file import DTYPE_NAMES, DTYPES, Layout, lay_out, memory_of

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
    from torch.distributed.checkpoint.planner import LoadPlan, ReadItem, SavePlan, WriteItem


def file_name(rank: int) -> str:
    """The name of the file with the tensors that a rank writes."""
    return f"rank-{rank:05d}.safetensors"


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The pieces that one rank writes, and on rank 0 the places of all tensors."""

    pieces: tuple[MetadataIndex, ...]
    """Names and places of the pieces that it writes, in the order of the layout's slots."""
    layout: Layout
    tensors_json: str
    """The place of every tensor, as `read_metadata` takes it."""


def describe_tensors(tensors: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """A description of all that a plan depends on: if it equals that of an earlier state, so does this rank's plan."""
    return tuple((name, tensor.dtype, tensor.shape, _share(tensor)) for name, tensor in tensors.items())


def _share(tensor: Tensor) -> Any:
    """This rank's part of a tensor."""
    from torch.distributed.tensor import DTensor

    match tensor:
        case DTensor():
            return tensor.device_mesh, tensor.placements
        case BlockRows():
            return tensor.rows
        case _:
            return None


def local_plan(tensors: Mapping[str, Tensor]) -> SavePlan:
    """The pieces that this rank could write: all of its plain tensors, its shards of DTensors, and its `BlockRows`."""
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(dict(tensors))
    return planner.create_local_plan()


def write_plan(local_plans: Sequence[SavePlan], *, rank: int) -> WritePlan:
    """The plan of `rank`, given what each rank could write.

    Raises:
        ValueError: ranks have tensors of one name that do not go together, or of a dtype that cannot be written.
    """
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    _require_equal_pieces(local_plans)
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    plans, _ = planner.create_global_plan(list(local_plans))
    layouts = [lay_out([(_piece_name(item), *_piece(item)) for item in plan.items]) for plan in plans]
    places: dict[str, list[Any]] = {}
    for writer, (plan, layout) in enumerate(zip(plans, layouts, strict=True)):
        for item, slot in zip(plan.items, layout.slots, strict=True):
            assert item.tensor_data is not None
            start = len(layout.header) + slot.start
            chunk = item.tensor_data.chunk
            entry = places.setdefault(item.index.fqn, [DTYPE_NAMES[slot.dtype], list(item.tensor_data.size), []])
            entry[2].append([list(chunk.offsets), list(chunk.sizes), writer, start])
    pieces = tuple(item.index for item in plans[rank].items)
    return WritePlan(pieces, layouts[rank], json.dumps(places, separators=(",", ":")))


def _piece(item: WriteItem) -> tuple[torch.dtype, tuple[int, ...]]:
    assert item.tensor_data is not None
    return item.tensor_data.properties.dtype, tuple(item.tensor_data.chunk.sizes)


def _piece_name(item: WriteItem) -> str:
    """The name of a piece in the file: the tensor's, with the place of the piece if it is not the whole."""
    assert item.tensor_data is not None
    chunk = item.tensor_data.chunk
    if chunk.sizes == item.tensor_data.size:
        return item.index.fqn
    return f"{item.index.fqn}@{','.join(str(offset) for offset in chunk.offsets)}"


def _require_equal_pieces(local_plans: Sequence[SavePlan]) -> None:
    from torch.distributed.checkpoint.planner import WriteItemType

    # DCP takes pieces with the same name and offset for the same.
    seen: dict[str, tuple[Any, ...]] = {}
    for rank, plan in enumerate(local_plans):
        for item in plan.items:
            assert item.tensor_data is not None
            is_shard = item.type == WriteItemType.SHARD
            kind = (item.tensor_data.properties.dtype, tuple(item.tensor_data.size), "sharded" if is_shard else "plain")
            if seen.setdefault(item.index.fqn, kind) != kind:
                first = " ".join(str(part) for part in seen[item.index.fqn])
                here = " ".join(str(part) for part in kind)
                raise ValueError(
                    f"{item.index.fqn} is {first} on one rank and {here} on rank {rank}; "
                    "tensors that only some ranks have need names of their own, or PerRank"
                )


def stage(plan: WritePlan, tensors: Mapping[str, Tensor], data: Tensor) -> None:
    """Copies what this rank writes into `data`, (layout.num_bytes,) uint8 on the CPU; from CUDA without waiting."""
    from torch.distributed.checkpoint.utils import find_tensor_shard

    for index, slot in zip(plan.pieces, plan.layout.slots, strict=True):
        slot.of(data).copy_(find_tensor_shard(tensors[index.fqn], index), non_blocking=True)


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """The place of a piece of a tensor."""

    writer: int
    """The rank whose file has it."""
    start: int
    """Byte in that file."""
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredTensors:
    """The places of all tensors of a checkpoint."""

    metadata: Metadata
    pieces: dict[MetadataIndex, StoredPiece]


def read_metadata(places: Mapping[str, Any]) -> StoredTensors:
    """The places in a decoded `WritePlan.tensors_json`."""
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    pieces: dict[MetadataIndex, StoredPiece] = {}
    tensors: dict[str, TensorStorageMetadata] = {}
    for name, (dtype_name, size, chunks) in places.items():
        dtype = DTYPES[dtype_name]
        stored = [ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)) for offsets, sizes, _, _ in chunks]
        tensors[name] = TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(size), stored)
        for offsets, sizes, writer, start in chunks:
            pieces[MetadataIndex(name, offsets)] = StoredPiece(writer, start, dtype, tuple(sizes))
    return StoredTensors(Metadata(cast("dict[str, Any]", tensors)), pieces)


def read_tensors(
    open_file: Callable[[str], BufferedReader], stored: StoredTensors, targets: Mapping[str, Tensor]
) -> None:
    """Fills `targets` (by name, of the stored shape and dtype), opening and reading no more than they need.

    Raises:
        OSError, Damaged, StoreFailed: a file is missing or too short, or cannot be had.
    """
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(dict(targets), stored.metadata)
    plan: LoadPlan = planner.finish_plan(planner.create_local_plan())
    by_file: dict[int, list[ReadItem]] = {}
    for item in plan.items:
        by_file.setdefault(stored.pieces[item.storage_index].writer, []).append(item)
    for writer, items in sorted(by_file.items()):
        with open_file(file_name(writer)) as file:
            for item in items:
                piece = stored.pieces[item.storage_index]
                try:
                    source = _read_rows(file, piece, tuple(item.storage_offsets), tuple(item.lengths))
                except EOFError:
                    raise Damaged(f"{file_name(writer)} is too short") from None
                target = planner.resolve_tensor(item).detach()
                target.copy_(source)
                planner.commit_tensor(item, target)


def _read_rows(file: BufferedReader, piece: StoredPiece, offsets: tuple[int, ...], lengths: tuple[int, ...]) -> Tensor:
    """A box of a piece; only what is asked for of its first dimension is read. Raises: EOFError."""
    first, num_rows = (offsets[0], lengths[0]) if offsets else (0, 1)
    shape = (num_rows, *piece.shape[1:]) if piece.shape else ()
    row_bytes = math.prod(piece.shape[1:]) * piece.dtype.itemsize
    num_bytes = num_rows * row_bytes
    if num_bytes == 0:
        return torch.empty(lengths, dtype=piece.dtype)
    start = piece.start + first * row_bytes
    if start + num_bytes > os.fstat(file.fileno()).st_size:
        raise EOFError
    content = torch.empty(num_bytes, dtype=torch.uint8)
    file.seek(start)
    if file.readinto(memory_of(content)) != num_bytes:
        raise EOFError
    rows = content.view(piece.dtype).view(shape)
    for dim in range(1, len(lengths)):
        rows = rows.narrow(dim, offsets[dim], lengths[dim])
    return rows
