"""The policy of a job made from its plan, and what it is told of the trials that are stored."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from service.domain import Direction, Objective, Side, TrialState, side_of
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.phases import JobPolicy, SidePlan
from service.scheduler.policy.protocol import Fork, Repeats, TrialHistory
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import PhaseSearch, SampledSearch
from service.scheduler.policy.searching.population import PopulationSearch
from service.scheduler.policy.searching.pruners import make_pruner
from service.scheduler.policy.searching.samplers import make_sampler
from service.specification.planning import JobPlan
from service.store.models import Trial


def make_policy(plan: JobPlan) -> JobPolicy:
    """The policy of a job."""
    return JobPolicy(
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
    )


def _confirmation(plan: JobPlan) -> Confirmation | None:
    sizes, seeds = plan.confirmation, plan.confirmation_seeds
    if sizes is None:
        return None
    return Confirmation(
        top_k=sizes.top_k,
        choosing=seeds[: sizes.num_choosing],
        comparing=seeds[sizes.num_choosing :],
        direction=plan.direction,
    )


def _directions(plan: JobPlan) -> tuple[Direction, ...]:
    return tuple(objective.direction for objective in plan.objectives)


def _make_search(plan: JobPlan, side: Side) -> PhaseSearch:
    sampler, pruner = plan.specification.sampler, plan.specification.pruner
    space, seed = plan.spaces[side], f"{sampler.seed}/{side}"
    if plan.sampler == "auto":
        return AutoSearch(
            space,
            direction=plan.direction,
            max_steps=plan.num_steps,
            first_rung=pruner.min_steps,
            pauses=plan.pruner != "none",
            seed=random.Random(seed).getrandbits(32),
        )
    sampled = make_sampler(
        plan.sampler,
        space,
        directions=_directions(plan),
        num_trials=plan.side_allotments[side],
        seed=seed,
    )
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
            min_steps=plan.min_pruning_steps,
            max_steps=plan.num_steps,
            reduction_factor=pruner.reduction_factor or 3,
            direction=plan.direction,
        ),
    )


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
        return side_of(found_by.phase, found_by.config["optimizer"]["name"])

    def repeats(trial: Trial) -> Repeats | None:
        if trial.confirms is None:
            return None
        return Repeats(trial.confirms, side(trial), trial.config["seed"])

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
        )
        for trial in trials
    ]
