"""The presets that tuned models near a job's compare, before it is submitted."""

from __future__ import annotations

from service.domain import Phase
from service.specification.planning import JobPlan
from service.store.session import Session
from service.transfer.pooled import table_members
from service.transfer.promise import PresetsCompared, compared_presets
from service.transfer.ranking import is_near_shipped
from service.transfer.situation import FAMILY_MEMBERS
from service.use_cases.untuned.members import own_members
from service.use_cases.untuned.transferring import situation_of
from trainers.identity.values import ModelShape


def presets_near(session: Session, plan: JobPlan, shape: ModelShape, *, project: str) -> PresetsCompared | None:
    """The presets of Shampoo's family by the tuned models of a project and of the shipped table, which has AdamW beside
    them; None: the job searches another optimizer, or no tuned model near its own compares presets.

    Args:
        shape: the shape of the model that the job would train.
    """
    if plan.spaces[Phase.SEARCH.value].optimizer != "shampoo":
        return None
    target = situation_of(plan, shape)
    members = list(own_members(session, target, FAMILY_MEMBERS, project=project).members)
    if is_near_shipped(target):
        members += [member for name in (*FAMILY_MEMBERS, "adamw") for member in table_members(name)]
    return compared_presets(members, target)
