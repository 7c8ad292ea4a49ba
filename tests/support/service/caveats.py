"""Caveats as sentences, for tests of their words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from service.evidence.caveat_kinds import Caveat


def sentences(caveats: Iterable[Caveat]) -> list[str]:
    return [caveat.sentence for caveat in caveats]


def sentences_of(stored: Iterable[Mapping[str, Any]]) -> list[str]:
    """The sentences of caveats in JSON."""
    return [caveat["sentence"] for caveat in stored]
