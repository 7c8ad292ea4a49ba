"""The policy of a job, made from its plan."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial

from search_spaces import Scalar
from service.domain import Direction, Phase, SamplerName, Side
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.in_common import InCommon
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.auto_study import AutoStudySearch
from service.scheduler.policy.searching.phase_search import PhaseSearch, SampledSearch
from service.scheduler.policy.searching.population import PopulationSearch
from service.scheduler.policy.searching.pruners import make_pruner
from service.scheduler.policy.searching.samplers import adopt_sampler, make_sampler
from service.scheduler.policy.searching.sampling.user_sampler import import_sampler
from service.scheduler.policy.searching.search_prior import KnownConfig
from service.scheduler.policy.searching.study import SearchStudy
from service.scheduler.policy.sides import SidePlan
from service.specification.imported import LEARNING_SAMPLERS
from service.specification.job import MovedConfig, SamplerReference
from service.specification.length import batch_size_of, compares_whole_trials
from service.specification.planning import JobPlan
from service.specification.trial_lengths.trial_length import TrialLength


def make_policy(plan: JobPlan) -> JobPolicy | InCommon:
    """The policy of a job.

    Raises:
        InvalidInput: the user's own sampler cannot be imported.
    """
    policy = JobPolicy(
        [
            SidePlan(
                side,
                space,
                plan.side_allotments[side],
                search=partial(_make_search, plan, side),
                pinned=plan.pinned[side],
                patience=plan.specification.budget.patience,
                directions=_directions(plan),
            )
            for side, space in plan.spaces.items()
        ],
        confirmation=_confirmation(plan),
        by_time=plan.specification.budget.limits_time,
    )
    if not plan.length.differs:
        return policy
    return InCommon(policy, partial(_length_of, plan))


def _length_of(plan: JobPlan, side: Side, parameters: Mapping[str, Scalar]) -> TrialLength:
    batch_size = batch_size_of(plan.spaces[side], parameters, default=plan.length.batch_size)
    found = plan.length.of_trial(side, parameters, batch_size=batch_size)
    assert found is not None
    return found


def _confirmation(plan: JobPlan) -> Confirmation | None:
    sizes, seeds = plan.confirmation, plan.confirmation_seeds
    if sizes is None:
        return None
    return Confirmation(
        top_k=sizes.top_k,
        choosing=seeds[: sizes.num_choosing],
        comparing=seeds[sizes.num_choosing :],
        direction=plan.direction,
        stops_early=compares_whole_trials(plan.specification, plan.spaces),
        spaces=plan.spaces,
    )


def _directions(plan: JobPlan) -> tuple[Direction, ...]:
    return tuple(objective.direction for objective in plan.objectives)


def _make_search(plan: JobPlan, side: Side) -> PhaseSearch:
    sampler, pruner = plan.specification.sampler, plan.specification.pruner
    space, seed = plan.spaces[side], f"{sampler.seed}/{side}"
    if plan.sampler == "auto":
        search = AutoSearch(
            space,
            direction=plan.direction,
            max_steps=plan.length.whole,
            first_rung=pruner.min_steps,
            pauses=plan.pruner != "none",
            seed=random.Random(seed).getrandbits(32),
            known=_known(plan, side),
        )
        return AutoStudySearch(search, space, plan.direction)
    sampled = _study(plan, side, plan.sampler, seed)
    if plan.population is not None:
        return PopulationSearch(
            sampled,
            space,
            direction=plan.direction,
            population=plan.population.sizes[side],
            interval=plan.population.interval,
            max_steps=plan.num_steps,
            seed=seed,
        )
    assert plan.pruner != "auto"
    return SampledSearch(
        sampled,
        make_pruner(
            plan.pruner,
            min_steps=plan.first_judged_at,
            max_steps=plan.length.whole,
            reduction_factor=pruner.reduction_factor or 3,
            direction=plan.direction,
        ),
    )


def _known(plan: JobPlan, side: Side) -> list[KnownConfig]:
    """Configs of models like the job's own, stored when it was submitted."""
    space, pinned = plan.spaces[side], dict(zip(plan.spaces, plan.specification.pinned_of_sides, strict=True))
    return [
        KnownConfig(space.check(dict(entry.parameters)), entry.distance)
        for entry in pinned[side]
        if isinstance(entry, MovedConfig)
    ]


def _study(plan: JobPlan, side: Side, sampler: SamplerName | SamplerReference, seed: str) -> SearchStudy:
    space, directions = plan.spaces[side], _directions(plan)
    if isinstance(sampler, SamplerReference):
        kind = import_sampler(sampler.root)
        study = adopt_sampler(kind, plan.specification.sampler.options, space, directions=directions, seed=seed)
    else:
        study = make_sampler(sampler, space, directions=directions, num_trials=plan.side_allotments[side], seed=seed)
    if side == Phase.SEARCH and (isinstance(sampler, SamplerReference) or sampler in LEARNING_SAMPLERS):
        for point in plan.imported:
            study.inform(point.parameters, point.value)
    return study
