"""The file with a rank's tensors, in the safetensors format: a header in JSON, then nothing but the tensors' bytes.

https://github.com/huggingface/safetensors#format: 8 bytes with the length of the header, the header with dtype, shape
and byte range of each tensor, then the tensors in C order without gaps. Any reader of that format reads it, and
nothing in it can execute code.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

import torch
from torch import Tensor

from trainers.storage.full_disks import when_there_is_room

DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}

_CHUNK_BYTES = 1 << 24
"""Written and hashed at once: 16 MiB, so that no second copy of a large file is made in memory."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor in a file's data."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    """Bytes from the start of the data."""

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def of(self, data: Tensor) -> Tensor:
        """The tensor, as a view of the data: (num_bytes,) uint8."""
        return data[self.start : self.start + self.num_bytes].view(self.dtype).view(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """A file's header and the place of every tensor."""

    header: bytes
    slots: tuple[Slot, ...]
    num_bytes: int
    """Bytes of the data, after the header."""


def lay_out(
    tensors: Sequence[tuple[str, torch.dtype, tuple[int, ...]]], *, metadata: Mapping[str, str] | None = None
) -> Layout:
    """A layout for tensors of these names (unique), dtypes and shapes; slots in the order given.

    Args:
        metadata: texts for whoever reads the header; None: it has none.

    Raises:
        ValueError: a dtype has no place in the format.
    """
    for name, dtype, _ in tensors:
        if dtype not in DTYPE_NAMES:
            raise ValueError(f"{name} is {dtype}: it cannot be written (can be: {', '.join(DTYPES)})")
    # By falling size of their elements, all tensors are aligned without gaps, which the format forbids.
    starts = {}
    entries: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape in sorted(tensors, key=lambda tensor: -tensor[1].itemsize):
        start, end = end, end + math.prod(shape) * dtype.itemsize
        starts[name] = start
        entries[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    slots = tuple(Slot(dtype, shape, starts[name]) for name, dtype, shape in tensors)
    return Layout(len(header).to_bytes(8, "little") + header, slots, end)


def memory_of(data: Tensor) -> memoryview:
    """The memory of (n,) uint8 on the CPU, to be read and written; torch itself gives it by way of NumPy alone."""
    memory = (ctypes.c_ubyte * len(data)).from_address(data.data_ptr())
    memory.tensor = data  # type: ignore[attr-defined]  # kept as long as its memory is looked at
    return memoryview(memory).cast("B")


def file_content(header: bytes, data: Tensor) -> Iterator[bytes | memoryview]:
    """A file's content, in pieces. `data`: (n,) uint8 on the CPU."""
    yield header
    content = memory_of(data)
    for start in range(0, len(content), _CHUNK_BYTES):
        yield content[start : start + _CHUNK_BYTES]


def write_file(path: Path, content: Callable[[], Iterable[bytes | memoryview]]) -> str:
    """Writes a file and flushes it to disk; gives its SHA-256. `content` is called again when there was no room for it,
    for as long as a full disk is waited for.

    Raises:
        OSError: the disk refused.
    """

    def write() -> str:
        checksum = hashlib.sha256()
        try:
            with path.open("wb") as file:
                for chunk in content():
                    checksum.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                path.unlink()  # others, the database among them, need the room while this one waits for more
            raise
        return checksum.hexdigest()

    return when_there_is_room(write)


def checksum_of(file: BufferedReader) -> str:
    """The SHA-256 of a file, which it reads to its end."""
    return hashlib.file_digest(file, "sha256").hexdigest()
