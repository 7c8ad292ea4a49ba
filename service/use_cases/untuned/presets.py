"""The presets that tuned models near a job's compare: told before it is submitted, and when it has ended."""

from __future__ import annotations

from collections.abc import Sequence

from search_spaces import SearchSpace, preset
from service.domain import Currency, Phase
from service.evidence.health.cards import BetterPreset
from service.specification.length import currency_of
from service.specification.phases import spaces_of
from service.specification.planning import JobPlan
from service.store.models import Job
from service.store.repositories import RecommendationRepository
from service.store.session import Session
from service.transfer.candidates import is_alike, member_of
from service.transfer.pooled import PoolMember, table_members
from service.transfer.promise import PresetsCompared, compared_presets
from service.transfer.ranking import is_near_shipped
from service.transfer.rules import TunedConfig
from service.transfer.situation import FAMILY_MEMBERS, FamilyMember, Situation
from service.use_cases.untuned.members import own_members
from service.use_cases.untuned.transferring import situation_of, with_situations
from trainers.identity.values import ModelShape

JOBS_LOOKED_AT = 50
"""The number of a model's newest recommendations among which those of another preset are looked for."""


def presets_near(session: Session, plan: JobPlan, shape: ModelShape, *, project: str) -> PresetsCompared | None:
    """The presets of Shampoo's family by the tuned models of a project and of the shipped table, which has AdamW beside
    them; None: the job searches another optimizer, or no tuned model near its own compares presets.

    Args:
        shape: the shape of the model that the job would train.
    """
    if plan.spaces[Phase.SEARCH.value].optimizer != "shampoo":
        return None
    target = situation_of(plan, shape)
    own = own_members(session, target, FAMILY_MEMBERS, project=project).members
    return compared_presets([*_of_table(target, (*FAMILY_MEMBERS, "adamw")), *own], target)


def better_preset(session: Session, job: Job) -> BetterPreset | None:
    """The preset that did best on the shipped table's models near that of a job with a recommendation, if the job
    searched another one, compared at equal steps, and its model has no recommendation of that preset."""
    spaces = spaces_of(job.specification)
    searched, currency = _searched(spaces[Phase.SEARCH.value]), currency_of(job.specification, spaces)
    row = RecommendationRepository(session).of_job(job.id)
    if searched is None or row is None or row.fingerprint is None or currency is Currency.SECONDS:
        return None
    target = next((situation for _, situation in with_situations(session, [row])), None)
    compared = None if target is None else compared_presets(_of_table(target, FAMILY_MEMBERS), target)
    if compared is None:
        return None
    first = compared.presets[0]
    ratio = next((one.loss_ratio for one in compared.presets if one.preset == searched), None)
    of_model = RecommendationRepository(session).of_fingerprint(
        row.fingerprint, project=row.project, limit=JOBS_LOOKED_AT
    )
    tried = {member_of(TunedConfig(one.recommended.optimizer, one.recommended.config, {})) for one in of_model}
    if first.loss_ratio is None or ratio is None or first.preset in tried:
        return None
    return BetterPreset(first.preset, searched, first.loss_ratio / ratio, compared.num_models, compared.octaves)


def _of_table(target: Situation, presets: Sequence[str]) -> list[PoolMember]:
    return [member for name in presets for member in table_members(name)] if is_near_shipped(target) else []


def _searched(space: SearchSpace) -> FamilyMember | None:
    """The member of the family that a space searches; None: another optimizer, another grafting, or several."""
    if space.optimizer != "shampoo" or {"preconditioner", "grafting"} & {one.name for one in space.parameters}:
        return None
    config = TunedConfig(space.optimizer, space.fixed, {})
    return next((name for name in FAMILY_MEMBERS if is_alike(preset(name), config)), None)
