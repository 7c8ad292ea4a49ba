"""The policies that `search_quality` compares, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from service.scheduler.policy import Policy
from service.scheduler.pruner import Asha
from service.scheduler.searching.auto import AutoSearch
from service.scheduler.searching.optuna_search import OptunaSearch
from tests.benchmarks.search_simulation import Problem

MIN_UNITS = 2
"""Of pruners: at the first unit most curves still lie together."""

MakePolicy = Callable[[Problem, int], Policy]


def _auto(problem: Problem, seed: int) -> Policy:
    return AutoSearch(problem.space, direction=problem.direction, max_steps=problem.num_units, seed=seed)


def _optuna(sampler: str, pruner: str = "none") -> MakePolicy:
    def make(problem: Problem, seed: int) -> Policy:
        max_steps = problem.num_units
        asha = Asha(min_steps=MIN_UNITS, max_steps=max_steps, direction=problem.direction) if pruner == "asha" else None
        return OptunaSearch(
            problem.space,
            direction=problem.direction,
            max_steps=max_steps,
            sampler=sampler,
            pruner=asha or pruner,
            min_steps=MIN_UNITS,
            seed=seed,
        )

    return make


POLICIES: Mapping[str, MakePolicy] = {
    "auto": _auto,
    "random": _optuna("random"),
    "quasi": _optuna("quasi"),
    "tpe": _optuna("tpe"),
    "gp": _optuna("gp"),
    "cmaes": _optuna("cmaes"),
    "asha": _optuna("random", "asha"),
    "hyperband": _optuna("random", "hyperband"),
    "median": _optuna("random", "median"),
    "tpe-asha": _optuna("tpe", "asha"),
    "tpe-hyperband": _optuna("tpe", "hyperband"),
    "gp-median": _optuna("gp", "median"),
}
"""A name alone is a sampler with full trainings, or a pruner with random draws."""
