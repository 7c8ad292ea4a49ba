"""The values that a constructor argument accepts, as far as a search may set it.

These bounds say what the constructor accepts, not what is sensible: the presets' ranges do that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from search_spaces.parameters import Scalar

LARGEST_INTEGER = 1_000_000
"""Bound of all that is counted (steps, ranks, snapshots): constructors have none, and what is larger is a slip."""
LARGEST_FACTOR = 1e12
"""Bound of the other numbers that an optimizer takes, likewise. What it multiplies by in a step, such as `lr` times
`weight_decay`, is a float32 with three of them: beyond, torch raises an error where training should diverge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """The values that one argument accepts."""

    kind: Literal["float", "integer", "boolean", "choice", "pair"]
    """`pair`: two floats, reached as `name[0]` and `name[1]`, or fixed whole as a list."""
    elements: tuple[Argument, ...] = ()
    """The elements of a pair."""
    low: float = -math.inf
    high: float = LARGEST_FACTOR
    open_low: bool = False
    """True if `low` itself is refused."""
    open_high: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False
    """True if None is accepted."""
    default: Scalar | tuple[float, float] = None
