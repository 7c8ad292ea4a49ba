"""Identities of trials as reported by a rank, from models that are really built."""

from __future__ import annotations

from service.domain import Phase
from service.specification.identity import StoredIdentity, stored_identity
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from trainers.identity.trial import identity_of
from trainers.workloads.registry import load


def built_identity(specification: JobSpecification) -> StoredIdentity:
    """The identity of the default trial of a job, on one CPU rank."""
    plan = plan_job(specification)
    config = plan.trial_config(Phase.SEARCH, plan.spaces[Phase.SEARCH].defaults())
    workload = load(config.workload, config.workload_options)
    return stored_identity(plan, identity_of(workload.build_model(), workload, config, device="cpu", world_size=1))
