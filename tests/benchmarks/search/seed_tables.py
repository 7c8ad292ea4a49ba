"""Tables of real learning curves of several presets, each configuration trained with several seeds.

`make_seed_curves` made them; `recommendation_regret` and `family_cost` simulate jobs on them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces import Scalar, SearchSpace
from tests.benchmarks.search.curve_tables import DATA

SIDES = ("shampoo", "adamw")
"""The presets that `recommendation_regret` compares: the search's and the baseline's."""

Curve = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SeedRow:
    """One configuration, and its curve with each of the table's seeds."""

    side: str
    parameters: Mapping[str, Scalar]
    curves: tuple[Curve | None, ...]
    """The validation loss after each unit, by seed; None: the run diverged."""

    def to_json(self) -> dict[str, Any]:
        return {"side": self.side, "parameters": dict(self.parameters), "curves": self.curves}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SeedRow:
        curves = tuple(None if curve is None else tuple(curve) for curve in data["curves"])
        return cls(data["side"], data["parameters"], curves)


@dataclass(frozen=True, slots=True)
class SeedTable:
    """The curves of one workload."""

    spaces: Mapping[str, SearchSpace]
    """The space from which each side's configurations were drawn: the presets of that day."""
    rows: Sequence[SeedRow]


def write_seed_table(name: str, table: SeedTable) -> int:
    """Writes the table; its size in bytes."""
    spaces = {side: space.to_json() for side, space in table.spaces.items()}
    data = {"spaces": spaces, "rows": [row.to_json() for row in table.rows]}
    # No time stamp: the same rows give the same file.
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), compresslevel=9, mtime=0)
    (DATA / f"{name}.seeds.json.gz").write_bytes(packed)
    return len(packed)


def read_seed_table(name: str) -> SeedTable:
    """The table of that name.

    Raises:
        FileNotFoundError: there is none.
    """
    data = json.loads(gzip.decompress((DATA / f"{name}.seeds.json.gz").read_bytes()))
    spaces = {side: SearchSpace.from_json(space) for side, space in data["spaces"].items()}
    return SeedTable(spaces, [SeedRow.from_json(row) for row in data["rows"]])
