"""Tuned configs as assignments of a search space: what a new search begins with, and looks around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces import Scalar, SearchSpace
from search_spaces.fitting import fit
from service.evidence.formats.family import grafting_of
from service.evidence.types import EvidenceStatus
from service.transfer.candidates import Source, TransferCandidate
from service.transfer.ranking import FARTHEST, counted_octaves
from service.transfer.rules import TunedConfig, moved
from service.transfer.situation import Situation, distance

MAX_KNOWN = 3
"""Configs that a search is told of."""


@dataclass(frozen=True, slots=True)
class KnownOfSpace:
    """A tuned model's config, moved, as an assignment of a space."""

    parameters: dict[str, Scalar]
    """A value for each parameter that is active with the others."""
    clipped: list[str]
    """Parameters whose values the space does not have: the nearest ones stand in their place."""
    distance: float
    """Octaves between the two models."""
    source: Source


def known_of(space: SearchSpace, candidates: Sequence[TransferCandidate], target: Situation) -> list[KnownOfSpace]:
    """Known configs of a space, the nearest first: up to `MAX_KNOWN` different configs of its optimizer and
    member of the family, none of them refuted, none farther than `FARTHEST`."""
    found: list[tuple[float, KnownOfSpace]] = []
    for candidate in candidates:
        if candidate.situation is None or candidate.source.status is EvidenceStatus.REFUTED:
            continue
        apart = distance(candidate.situation, target)
        counted = counted_octaves(candidate, apart)
        config, _ = moved(candidate.config, candidate.situation, target)
        if counted > FARTHEST or not _is_alike(space, config):
            continue
        given = {name: value for name, value in config.flat.items() if name in _searched(space)}
        fitted = fit(space, given, held=config.arguments)
        if fitted is not None:
            found.append((counted, KnownOfSpace(*fitted, apart.total, candidate.source)))
    found.sort(key=lambda entry: entry[0])
    different: list[KnownOfSpace] = []
    for _, known in found:
        if all(known.parameters != other.parameters for other in different):
            different.append(known)
    return different[:MAX_KNOWN]


def _searched(space: SearchSpace) -> set[str]:
    return {parameter.name for parameter in space.parameters}


def _is_alike(space: SearchSpace, config: TunedConfig) -> bool:
    """True if the space has the optimizer, and searches the config's member of Shampoo's family or is of it."""
    if space.optimizer != config.optimizer:
        return False
    if config.optimizer != "shampoo":
        return True
    searched, fixed = _searched(space), space.fixed
    member, grafting = _member(config.arguments)
    own_member, own_grafting = _member(fixed)
    if "preconditioner" not in searched and member != own_member:
        return False
    return "grafting" in searched or "preconditioner" in searched or grafting == own_grafting


def _member(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The member of the family and its grafting, with the optimizer's own defaults."""
    return str(arguments.get("preconditioner") or "shampoo"), grafting_of(arguments)
