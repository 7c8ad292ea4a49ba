"""The kinds of factor that the sides of a block have: the rules for one-sided preconditioning and long sides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

from shampoo.hyperparameters import Hyperparameters

SideKind: TypeAlias = Literal["full", "diagonal", "identity"]

MAX_ASPECT = 32
"""A side this many times longer than the product of the others has no full factor.

Its statistics have the rank of the others, and the factor would be larger than the block by this ratio: a 1,000×16
block would carry 1,000×1,000 numbers.
"""


def side_kinds(block: Sequence[int], h: Hyperparameters) -> tuple[SideKind, ...]:
    """The kind of factor of each side of a block of this shape; () if the block steps plainly.

    full: d×d; diagonal: d numbers; identity: none. Members that work in an eigenbasis (soap) do not use a diagonal
    factor, because its eigenbasis is the identity; spectral has no factors.
    """
    if len(block) < 2 or h.preconditioner in ("spectral", "none"):
        return ()
    numel = math.prod(block)
    has_identity = h.one_sided or h.large_dim_method == "one_sided" or h.preconditioner == "soap"
    long: SideKind = "identity" if has_identity else "diagonal"
    shortest = min(range(len(block)), key=lambda side: block[side])
    kinds: list[SideKind] = []
    for side, d in enumerate(block):
        if h.one_sided and side != shortest:
            kinds.append("identity")
        elif d > h.max_preconditioner_dim or d * d > MAX_ASPECT * numel:
            kinds.append(long)
        else:
            kinds.append("full")
    return () if all(kind == "identity" for kind in kinds) else tuple(kinds)


def refresh_costs(block: Sequence[int], h: Hyperparameters) -> tuple[int, ...]:
    """Cost d³ of refreshing each side of a block, 0 for a side without a matrix."""
    return tuple(d**3 if kind == "full" else 0 for kind, d in zip(side_kinds(block, h), block, strict=False))


def is_plain(block: Sequence[int], h: Hyperparameters) -> bool:
    """True if a block of this shape has no preconditioner."""
    return not side_kinds(block, h) and not (h.preconditioner == "spectral" and len(block) >= 2)
