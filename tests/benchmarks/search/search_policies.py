"""The policies that `search_quality` compares, by name: what a job runs, with one phase and no end."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from service.domain import Phase, PrunerName, SamplerName
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Policy
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import PhaseSearch, SampledSearch
from service.scheduler.policy.searching.pruners import make_pruner
from service.scheduler.policy.searching.samplers import make_sampler
from service.scheduler.policy.searching.search_prior import LENGTHS_IN_TABLES, KnownConfig
from service.scheduler.policy.sides import SidePlan
from tests.benchmarks.search.search_simulation import Problem

MIN_UNITS = 2
"""The units before which pruners stop nothing: at the first, most curves still lie together."""
MANY = 10**6
"""Trials: more than any budget allows."""

MakePolicy = Callable[[Problem, int], Policy]


def one_phase(problem: Problem, search: Callable[[], PhaseSearch], num_trials: int = MANY) -> JobPolicy:
    """A policy of one phase."""
    return JobPolicy([SidePlan(Phase.SEARCH, problem.space, num_trials, search)])


def auto(
    problem: Problem,
    seed: int,
    *,
    known: Sequence[KnownConfig] = (),
    lengths: Mapping[str, float] = LENGTHS_IN_TABLES,
    first_pause: float | None = None,
) -> Policy:
    """The `auto` search, perhaps with what is known before it, or with its first pause at another share of a trial."""

    def search() -> PhaseSearch:
        return AutoSearch(
            problem.space,
            direction=problem.direction,
            max_steps=problem.num_units,
            first_rung=None if first_pause is None else round(first_pause * problem.num_units),
            seed=seed,
            known=known,
            lengths=lengths,
        )

    return one_phase(problem, search)


def _sampled(sampler: SamplerName, pruner: PrunerName = "none") -> MakePolicy:
    def make(problem: Problem, seed: int) -> Policy:
        def search() -> PhaseSearch:
            return SampledSearch(
                make_sampler(
                    sampler,
                    problem.space,
                    directions=[problem.direction],
                    num_trials=MANY,
                    seed=str(random.Random(f"{seed}/{sampler}").getrandbits(32)),
                ),
                make_pruner(
                    pruner,
                    min_steps=MIN_UNITS,
                    max_steps=problem.num_units,
                    reduction_factor=3,
                    direction=problem.direction,
                ),
            )

        return one_phase(problem, search)

    return make


POLICIES: Mapping[str, MakePolicy] = {
    "auto": auto,
    "auto-40": partial(auto, first_pause=0.4),
    "random": _sampled("random"),
    "quasi": _sampled("quasi"),
    "tpe": _sampled("tpe"),
    "gp": _sampled("gp"),
    "cmaes": _sampled("cmaes"),
    "asha": _sampled("random", "asha"),
    "hyperband": _sampled("random", "hyperband"),
    "median": _sampled("random", "median"),
    "tpe-asha": _sampled("tpe", "asha"),
    "tpe-hyperband": _sampled("tpe", "hyperband"),
    "gp-median": _sampled("gp", "median"),
}
"""A name alone is a sampler with full trainings, or a pruner with random draws; `auto-40` pauses once, at 40%."""
