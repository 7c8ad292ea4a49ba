"""The importance of parameters by Optuna's PED-ANOVA, its uncertainty, and whether chance alone would show as much.

PED-ANOVA (arXiv:2304.10255; with conditions arXiv:2601.20800) asks how a parameter's values among the best trials
differ from those among all. It gets the standing of each trial instead of its value, so a single huge loss means no
more than a large one. Its result grows with the number of parameters and shrinks with the number of trials, so it is
compared with its result when the standings are dealt to the trials at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import create_trial

from service.evidence.insights import Importance
from service.scheduler.insights.compared import EndedTrial, Standings
from service.scheduler.policy.searching.sampling.dimensions import Dimensions

MIN_BEST = 6
"""Trials that count as the best, at least: Optuna asks for five or more."""
BEST_SHARE = 0.25
"""Share of the trials that count as the best, by judgement: a tenth, as in Optuna, would be a handful."""
MIN_HAVING = 4
"""Least number of trials with a parameter, and without it if there are any: Optuna needs two in half of the trials."""
NUM_DEALS = 39
"""Number of random deals of the standings to the trials."""
NUM_RESAMPLES = 20
"""Draws of half of the trials."""
CHANCE = 0.05
"""Share of the sides in which a parameter seems important although none is."""
INTERVAL = (0.1, 0.9)


def importances(trials: Sequence[EndedTrial], standing: Standings, dimensions: Dimensions) -> dict[str, Importance]:
    """The importance of each parameter by its name in `dimensions`; those that no trial had are left out."""
    study = _Study(trials, dimensions)
    rng = np.random.default_rng(0)
    found = study.raw(standing)
    if not found:
        return {}
    names = list(found)
    dealt = np.array([study.values(names, rng.permutation(standing)) for _ in range(NUM_DEALS)])
    mean, raw = dealt.mean(axis=0), np.array([found[name] for name in names])
    beyond = _beyond_chance(raw, dealt)
    shares = _shares(raw - mean, beyond)
    # With half of the trials, chance has twice the effect, and differences are larger by the root of two.
    halves = np.array([study.values(names, study.half(standing, rng)) for _ in range(NUM_RESAMPLES)])
    resampled = np.array([_shares(half - 2 * mean, np.full(len(names), True)) for half in halves])
    low, middle, high = np.quantile(resampled, [INTERVAL[0], 0.5, INTERVAL[1]], axis=0)
    return {
        name: Importance(
            share=float(shares[index]),
            low=float(np.clip(shares[index] + (low - middle)[index] / np.sqrt(2), 0, shares[index])),
            high=float(np.clip(shares[index] + (high - middle)[index] / np.sqrt(2), shares[index], 1)),
            is_beyond_chance=bool(beyond[index]),
        )
        for index, name in enumerate(names)
    }


def _beyond_chance(raw: NDArray[np.float64], dealt: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The parameters that seem more important than chance would make any of them: many parameters are many chances.

    Each has its own unit, computed from the found importance and the dealt ones together. With a unit from the deals
    alone, a found importance would stand out 12 times in 100 when nothing matters, instead of 5.

    Args:
        raw: the importance that was found for each parameter.
        dealt: (deals, parameters): the same, with standings dealt to the trials at random.
    """
    alike = np.vstack([raw, dealt])
    units = (alike - alike.mean(axis=0)) / (alike.std(axis=0) + 1e-12)
    limit = float(np.quantile(units[1:].max(axis=1), 1 - CHANCE, method="higher"))
    found: NDArray[np.bool_] = units[0] > limit
    return found


def _shares(excess: NDArray[np.float64], counts: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The share of each in the sum, 0 for those that do not count."""
    kept = np.where(counts, np.maximum(excess, 0.0), 0.0)
    whole = kept.sum()
    found: NDArray[np.float64] = kept / whole if whole else kept
    return found


class _Study:
    """The trials in a separate Optuna study, whose values are set for each question."""

    def __init__(self, trials: Sequence[EndedTrial], dimensions: Dimensions) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(direction="maximize")
        for trial in trials:
            known = dimensions.encoded(trial.parameters)
            distributions = {name: dimensions.distributions[name] for name in known}
            self._study.add_trial(create_trial(value=0.0, params=known, distributions=distributions))
        self._trials = self._study.get_trials(deepcopy=False)
        self._having: dict[frozenset[str], list[int]] = {}
        """The trials that had the same parameters, by these parameters."""
        for index, frozen in enumerate(self._trials):
            self._having.setdefault(frozenset(frozen.distributions), []).append(index)
        self._names = [name for name in dimensions.distributions if self._is_to_ask(name, dimensions)]

    def _is_to_ask(self, name: str, dimensions: Dimensions) -> bool:
        """True if a parameter has more than one value, and enough trials had it, and all or enough others did not."""
        count = sum(len(trials) for names, trials in self._having.items() if name in names)
        others = len(self._trials) - count
        return not dimensions.distributions[name].single() and count >= MIN_HAVING and not 0 < others < MIN_HAVING

    def half(self, standing: Standings, rng: np.random.Generator) -> Standings:
        """The standings of half of the trials, half of each group with the same parameters; the standings of the others
        are not finite, which leaves them out."""
        found = standing.copy()
        for trials in self._having.values():
            found[rng.permutation(trials)[: len(trials) // 2]] = np.inf
        return found

    def raw(self, standing: Standings) -> Mapping[str, float]:
        """Optuna's importance of each parameter if the trials have this standing; a trial whose standing is not finite
        is left out."""
        counted = standing[np.isfinite(standing)]
        num_better = int((counted > counted.min()).sum()) if len(counted) else 0
        if not num_better:
            return dict.fromkeys(self._names, 0.0)
        wanted = max(MIN_BEST, round(BEST_SHARE * len(counted)))
        # If most trials have diverged, those that have not are the best ones. Optuna rounds up.
        num_best = min(wanted, num_better, len(counted) - 1)
        for trial, value in zip(self._trials, standing, strict=True):
            trial.values = [float(value)]
        evaluator = PedAnovaImportanceEvaluator(target_quantile=(num_best - 0.5) / len(counted))
        return evaluator.evaluate(self._study, self._names) if self._names else {}

    def values(self, names: Sequence[str], standing: Standings) -> list[float]:
        found = self.raw(standing)
        return [found[name] for name in names]
