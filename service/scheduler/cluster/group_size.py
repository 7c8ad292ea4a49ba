"""The size of a rank group: the number of ranks of a trial, and the resources that each takes from the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The number of ranks of a trial, and the resources of each."""

    world_size: int
    cpus_per_rank: float
    gpus_per_rank: float
    memory_per_rank: int = 0
    """Bytes."""
    custom_per_rank: Mapping[str, float] = field(default_factory=dict)

    @property
    def rank_bundle(self) -> dict[str, float]:
        """The resources that a rank takes from the cluster, by Ray's names."""
        amounts = {
            "CPU": self.cpus_per_rank,
            "GPU": self.gpus_per_rank,
            "memory": float(self.memory_per_rank),
            **self.custom_per_rank,
        }
        return {name: amount for name, amount in amounts.items() if amount}

    @property
    def threads_per_rank(self) -> int:
        return max(1, int(self.cpus_per_rank))
