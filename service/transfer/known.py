"""Tuned configs as assignments of a search space: what a new search begins with, and looks around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces import Scalar, SearchSpace
from search_spaces.fitting import fit
from service.evidence.types import EvidenceStatus
from service.transfer.candidates import Source, TransferCandidate, is_alike
from service.transfer.ranking import counted_octaves, is_near
from service.transfer.rules import moved
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
    """Known configs of a space, the nearest first and of one model the best: up to `MAX_KNOWN` different configs of
    its optimizer and members of the family, of near models alone (`ranking.is_near`), none of them refuted or what a
    search tries anyway: the defaults of one of the space's branches."""
    searched = {parameter.name for parameter in space.parameters}
    found: list[tuple[float, float, KnownOfSpace]] = []
    for candidate in candidates:
        if candidate.situation is None or candidate.source.status is EvidenceStatus.REFUTED:
            continue
        apart = distance(candidate.situation, target)
        config, _ = moved(candidate.config, candidate.situation, target)
        if not is_near(candidate, target) or not is_alike(space, config):
            continue
        given = {name: value for name, value in config.flat.items() if name in searched}
        fitted = fit(space, given, held=config.arguments)
        if fitted is not None:
            known = KnownOfSpace(*fitted, apart.total, candidate.source)
            found.append((counted_octaves(candidate, apart), candidate.source.badness, known))
    found.sort(key=lambda entry: entry[:2])
    different, tried = list[KnownOfSpace](), space.branch_defaults()
    for *_, known in found:
        if known.parameters not in tried:
            different.append(known)
            tried.append(known.parameters)
    return different[:MAX_KNOWN]
