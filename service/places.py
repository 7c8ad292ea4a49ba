"""The places where a trial trained: the machines of its ranks, and which of their GPUs the ranks had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The part of a trial's place that is on one machine."""

    node: str
    """Its name for the network."""
    gpus: tuple[str, ...]
    """Indices of the GPUs that the trial's ranks had there, as Ray tells them; empty: they trained on the CPU."""

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "gpus": list(self.gpus)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """The place that `to_json` gave."""
        return cls(stored["node"], tuple(stored["gpus"]))

    def __str__(self) -> str:
        """The place in words: `node-a, GPUs 0 and 1`."""
        if not self.gpus:
            return f"{self.node}, CPU"
        *others, last = self.gpus
        return f"{self.node}, GPUs {', '.join(others)} and {last}" if others else f"{self.node}, GPU {last}"


def places_of(ranks: Iterable[NodePlace]) -> tuple[NodePlace, ...]:
    """The machines of all ranks, each once, in the order of the ranks."""
    found: dict[str, set[str]] = {}
    for rank in ranks:
        found.setdefault(rank.node, set()).update(rank.gpus)
    return tuple(NodePlace(node, tuple(sorted(gpus, key=_by_index))) for node, gpus in found.items())


def words_by_run(stored: Mapping[str, Sequence[Mapping[str, Any]]] | None) -> dict[int, str]:
    """Words on where a trial trained, by run: 1 is its first.

    Args:
        stored: as `Trial.places` has it.
    """
    return {
        int(run): "; ".join(str(NodePlace.from_json(place)) for place in places)
        for run, places in (stored or {}).items()
    }


def lines_of(words: Mapping[int, str]) -> list[str]:
    """A line for each change of place: `run 1: ...`, `runs 2 to 4: ...`; of a single place, its words alone."""
    spans: list[tuple[int, int, str]] = []
    for run, place in sorted(words.items()):
        if spans and spans[-1][1:] == (run - 1, place):
            spans[-1] = spans[-1][0], run, place
        else:
            spans.append((run, run, place))
    if len({place for _, _, place in spans}) == 1:
        return [spans[0][2]]
    return [
        f"run {first}: {place}" if first == last else f"runs {first} to {last}: {place}" for first, last, place in spans
    ]


def _by_index(gpu: str) -> tuple[int, str]:
    return len(gpu), gpu
