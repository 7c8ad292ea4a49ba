"""The plan of a job: its specification with every default filled in and every field checked. Its run follows it, and
nothing here runs or stores anything."""

from __future__ import annotations

from service.specification.planning.own_workload import workload_of
from service.specification.planning.plan import JobPlan, confirmation_seeds
from service.specification.planning.plan_job import check_names, check_population_is_measured, plan_job
from service.specification.planning.proposals import check_proposal, proposed_side

__all__ = [
    "JobPlan",
    "check_names",
    "check_population_is_measured",
    "check_proposal",
    "confirmation_seeds",
    "plan_job",
    "proposed_side",
    "workload_of",
]
