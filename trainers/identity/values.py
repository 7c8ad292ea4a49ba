"""The identity of a trial as plain values, without torch: it travels from a rank to whoever keeps it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

DIGEST_LENGTH = 32
"""Hexadecimal digits of a digest: 128 bits, so that no two models meet in one, and people can copy it."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The place of a training: hardware and software."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str | None
    """The GPU as CUDA calls it; None on the CPU."""
    world_size: int
    """Ranks of the trial."""
    versions: Mapping[str, str]
    """`python`, `torch`, `shampoo-tuner`, the package that the workload is of, and libraries that were in use."""


@dataclass(frozen=True, slots=True)
class TrialIdentity:
    """A trial's model and data, as digests, and the place of its training."""

    model: str
    """Digest of the built model (`trainers.identity.model.model_digest`)."""
    data: str | None
    """Digest of what it reads (`trainers.identity.data.content_digest`); None: there is no telling."""
    environment: Environment


def digest_of(value: object) -> str:
    """The digest of a JSON-able value, the same in every process."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
