"""Winners at the edge of the range that was searched, in words: which parameter, its value and bound, what to do."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces import Scalar, SearchSpace
from search_spaces.edges import Edge, edges


def edge_caveats(whose: str, space: SearchSpace, values: Mapping[str, Scalar]) -> list[str]:
    """Says in a sentence that a config has values at the edge of their ranges; nothing if it has none.

    Args:
        whose: what the config is, e.g. `The recommended config`.
        space: in which it was found.
        values: its own, by the name of the parameter.
    """
    found = edges(space, values)
    if not found:
        return []
    told = ", ".join(_told(edge) for edge in found)
    setting = " ".join(f"--set {edge.name}=..." for edge in found)
    return [
        f"{whose} lies at the edge of what was searched: {told}. Better values may lie beyond: widen the range in the "
        f"job's search space, or `try` such values ({setting})."
    ]


def _told(edge: Edge) -> str:
    return f"{edge.name} = {edge.value:.4g} by the {edge.side} bound {edge.bound:.4g}"
