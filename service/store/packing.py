"""The values of a measurement in one binary column: eight bytes each, in the order of the names they belong to."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterable, Sequence

_BYTES = 8
"""Bytes of a double (IEEE 754)."""


def pack(values: Iterable[float | None]) -> bytes:
    """The values one after the other; None, which stands for what is not finite, as NaN."""
    found = [math.nan if value is None else value for value in values]
    return struct.pack(f"<{len(found)}d", *found)


def unpack(packed: bytes) -> list[float | None]:
    """The values that were packed."""
    return [None if math.isnan(value) else value for (value,) in struct.iter_unpack("<d", packed)]


def value_at(packed: bytes, index: int) -> float | None:
    """One of the values that were packed."""
    (value,) = struct.unpack_from("<d", packed, index * _BYTES)
    return None if math.isnan(value) else value


def digest_of(names: Sequence[str]) -> str:
    """A digest that tells these names, in this order, from all others."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()
