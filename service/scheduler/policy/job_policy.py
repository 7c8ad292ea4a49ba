"""The policy of a job made from its plan, and what it is told of the trials that are stored."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from search_spaces import Scalar
from service.domain import Direction, Objective, Phase, SamplerName, Side, TrialState, side_of
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.in_examples import InExamples
from service.scheduler.policy.phases import JobPolicy
from service.scheduler.policy.protocol import Fork, Repeats, TrialHistory
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
from service.specification.length import TrialLength, batch_size_of, compares_whole_trials
from service.specification.planning import JobPlan
from service.store.models import Trial


def make_policy(plan: JobPlan) -> JobPolicy | InExamples:
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
    if plan.length.num_examples is None:
        return policy
    return InExamples(policy, partial(_length_of, plan))


def _length_of(plan: JobPlan, side: Side, parameters: Mapping[str, Scalar]) -> TrialLength:
    found = plan.length.of_trial(batch_size_of(plan.spaces[side], parameters, default=plan.length.batch_size))
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
    """Configs of models like the job's own, told when it was submitted."""
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


def fork_of(trial: Trial) -> Fork | None:
    """The checkpoint from which a stored trial begins; None: it begins from nothing."""
    if trial.forked_from is None:
        return None
    assert trial.forked_at_step is not None
    return Fork(trial.forked_from, trial.forked_at_step)


def history_of(trials: Sequence[Trial], objectives: Sequence[Objective]) -> list[TrialHistory]:
    """The stored trials of a job with these objectives as its policy is told of them."""
    by_number = {trial.number: trial for trial in trials}

    def value_of(objective: Objective, metrics: dict[str, Any]) -> float:
        value = metrics.get(objective.metric)
        return float("nan") if value is None else float(value)  # SQL keeps no NaN

    def side(trial: Trial) -> Side:
        found_by = trial if trial.confirms is None else by_number[trial.confirms]
        return side_of(found_by.phase, found_by.stored_config.optimizer)

    def repeats(trial: Trial) -> Repeats | None:
        if trial.confirms is None:
            return None
        return Repeats(trial.confirms, side(trial), trial.stored_config.seed)

    return [
        TrialHistory(
            number=trial.number,
            side=side(trial),
            parameters=trial.parameters,
            state=trial.state,
            reason=trial.reason,
            values=(
                tuple(value_of(objective, trial.metrics) for objective in objectives)
                if trial.state is TrialState.COMPLETED
                else ()
            ),
            curve=tuple(
                (measurement.step, value_of(objectives[0], measurement.metrics)) for measurement in trial.measurements
            ),
            repeats=repeats(trial),
            spared=trial.spared,
            proposed=trial.proposed,
            fork=fork_of(trial),
            seconds=tuple(measurement.seconds for measurement in trial.measurements),
        )
        for trial in trials
    ]
