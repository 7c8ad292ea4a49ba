"""Samplers of Optuna's that learn from trials with one objective or several, set up for jobs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from service.optuna_internals import forget_suggestion_for_liar

MIN_SOURCE_TRIALS = 10
"""Fewest completed trials that CMA-ES begins from; with fewer it begins in the middle of the space."""


class TreeParzenSampler(TPESampler):
    """Optuna's TPE, whose liar counts running trials with the values that they have.

    By itself it counts them with all that it drew: unrounded, and with values for branches that are switched off. A
    study rebuilt from stored trials has none of those, and would suggest something else.
    """

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        found = super().sample_relative(study, trial, search_space)
        forget_suggestion_for_liar(study, trial)
        return found


def make_tpe(num_trials: int, seed: int) -> BaseSampler:
    """TPE for a phase of so many trials."""
    # Drawn at random before the model is trusted: a quarter of the budget, but 5 to 10 (Optuna's own 10 is half of a
    # small job). On the tests' toy curves 3, 5 and 10 do not differ beyond the noise; all beat random draws.
    num_startup_trials = min(10, max(5, num_trials // 4))
    with experimental():
        return TreeParzenSampler(
            n_startup_trials=num_startup_trials, multivariate=True, group=True, constant_liar=True, seed=seed
        )


def make_gp(seed: int) -> BaseSampler:
    """A Gaussian process on final values."""
    with experimental():
        return GPSampler(seed=seed, warn_independent_sampling=False)


def make_cmaes(study: Study, seed: int) -> BaseSampler:
    """CMA-ES, which keeps its distribution in the trials that it was asked for itself: it begins around the best tenth
    of those that the study has, or in the middle.

    Categorical parameters and those under conditions are drawn at random, as Optuna does.
    """
    completed = study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])
    with experimental():
        return CmaEsSampler(
            seed=seed,
            source_trials=completed if len(completed) >= MIN_SOURCE_TRIALS else None,
            warn_independent_sampling=False,
        )


@contextmanager
def experimental() -> Iterator[None]:
    """Arguments that Optuna calls experimental may be used without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
