"""A trial's identity as it is kept and asked for: the fingerprint of its model, and the digest of its data.

Digests of what a rank has built (`trainers.identity`) and the workload's options together: two models of equal shapes
may still differ by an option. What a search varies counts with its default: it is no part of what is tuned.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from service.specification.planning import JobPlan
from trainers.identity.values import ModelShape, TrialIdentity, digest_of, fingerprint_of_workload
from trainers.workload.description import OptionRole


@dataclass(frozen=True, slots=True)
class StoredIdentity:
    """The identity of a trial: what it trained, on what, and where."""

    fingerprint: str
    """The model's."""
    data_digest: str | None
    """None: there is no telling."""
    environment: dict[str, Any]
    """A `trainers.identity.values.Environment` as JSON."""
    shape: ModelShape | None = None
    """The model's; None: it has no parameters."""


@dataclass(frozen=True, slots=True)
class ModelOfJob:
    """The model that a job is going to train."""

    fingerprint: str
    shape: ModelShape | None
    """None: it has no parameters."""


def stored_identity(plan: JobPlan, told: TrialIdentity) -> StoredIdentity:
    """The identity of a trial of the job, from what rank 0 told of it."""
    data_digest = None if told.data is None else digest_of([told.data, _options(plan, "data")])
    environment = dataclasses.asdict(told.environment)
    return StoredIdentity(fingerprint_of(plan, told.model), data_digest, environment, told.shape)


def fingerprint_of(plan: JobPlan, model: str) -> str:
    """The fingerprint of a model of the job.

    Args:
        model: its `trainers.identity.model.model_digest`.
    """
    return fingerprint_of_workload(plan.workload.name, model, _options(plan, "model"))


def _options(plan: JobPlan, role: OptionRole) -> dict[str, JsonValue]:
    given = plan.specification.workload.options
    return {
        name: given.get(name, option.default) for name, option in plan.workload.options.items() if option.role == role
    }
