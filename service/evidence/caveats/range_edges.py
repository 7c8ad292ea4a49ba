"""Winners at the edge of the range that was searched, in words: which parameter, its value and bound, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_spaces import Scalar, SearchSpace
from search_spaces.edges import Edge, edges
from service.domain import Phase, Side
from service.evidence.caveat_kinds import Caveat, CaveatKind


def edge_caveats(side: Side, space: SearchSpace, values: Mapping[str, Scalar], *, trial: int) -> list[Caveat]:
    """Says in a sentence that a winner has values at the edge of their ranges; nothing if it has none.

    Args:
        side: the search, whose winner is recommended, or a baseline.
        space: in which it was found.
        values: its own, by the name of the parameter.
        trial: its number.
    """
    found = edges(space, values)
    if not found:
        return []
    told = ", ".join(_told(edge) for edge in found)
    whose = "The recommended" if side == Phase.SEARCH else "The baseline's best"
    sentence = (
        f"{whose} config lies at the edge of what was searched: {told}. Better values may lie beyond: widen the range "
        f"in the job's search space, or `try` such values ({options_beyond(side, found)})."
    )
    return [Caveat(CaveatKind.AT_THE_EDGE, sentence, trial)]


def options_beyond(side: Side, found: Sequence[Edge]) -> str:
    """The options of the command `try` with which a side's values beyond these edges are tried."""
    options = ["--beyond-bounds", *([] if side == Phase.SEARCH else [f"--phase baseline --optimizer {side}"])]
    return " ".join([*options, *(f"--set {edge.name}=..." for edge in found)])


def _told(edge: Edge) -> str:
    return f"{edge.name} = {edge.value:.4g} by the {edge.side} bound {edge.bound:.4g}"
