"""The presets that tuned models compare, for a model that is to be tuned: which one's best trials were the best."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from service.transfer.pooled import PoolMember, added_noise
from service.transfer.situation import Situation, distance

MAX_ROUNDS = 100
"""Rounds in which the levels of presets and of models are found in turn, at most, by judgement: where every model was
tuned with the same presets, one is enough."""
SETTLED = 1e-9
"""Change of all levels in a round from which on no other one follows."""


@dataclass(frozen=True, slots=True, config=ConfigDict(use_attribute_docstrings=True))
class PresetPromise:
    """The best trials of a preset beside those of others."""

    preset: str
    """The preset's name."""
    loss_ratio: float | None
    """The best loss over that of the first preset, the geometric mean over models; null: no model compares them by a
    positive loss."""


@dataclass(frozen=True, slots=True, config=ConfigDict(use_attribute_docstrings=True))
class PresetsCompared:
    """The presets that tuned models near another one compare, by their best trials after equally many steps."""

    presets: Sequence[PresetPromise]
    """Two presets or more, the one first whose best trials were the best: by the logarithm of the loss, or if models
    have another objective, by deviations of all trials of a model."""
    num_models: int
    """The number of models that were tuned with several presets."""
    octaves: float
    """The distance of the nearest of them."""


def compared_presets(members: Sequence[PoolMember], target: Situation) -> PresetsCompared | None:
    """The presets, by how good the best trial of each was; None: no model was tuned with several.

    The level of a model and that of a preset are added, because not every model was tuned with every preset. Models
    that are farther from the target count less, by as much as their trials do. A preset with fewer trials than the
    others looks worse than it is: all have equally many in the shipped table, but not in a job over the family.
    """
    by_model: dict[tuple[str | None, str], list[PoolMember]] = defaultdict(list)
    for member in members:
        by_model[member.job_id, member.name].append(member)
    several = [tuned for tuned in by_model.values() if len(tuned) > 1 and any(map(_values, tuned))]
    if not several:
        return None
    octaves = [distance(tuned[0].situation, target).total for tuned in several]
    weights = [1 / (1 + added_noise(apart)) for apart in octaves]
    of_losses = [(_best(tuned), weight) for tuned, weight in zip(several, weights, strict=True) if _are_losses(tuned)]
    by_logarithm = _levels([best for best, _ in of_losses], [weight for _, weight in of_losses])
    levels = by_logarithm
    if len(of_losses) < len(several):
        levels = _levels([_best(tuned, in_deviations=True) for tuned in several], weights)
    names = sorted(levels, key=lambda name: -levels[name])
    first = by_logarithm.get(names[0])
    return PresetsCompared(
        [
            PresetPromise(
                name, None if first is None or name not in by_logarithm else math.exp(first - by_logarithm[name])
            )
            for name in names
        ],
        len(several),
        min(octaves),
    )


def _levels(best: Sequence[Mapping[str, float]], weights: Sequence[float]) -> dict[str, float]:
    """The level of each preset: with that of a model added, the best trials are as near to it as can be."""
    levels = {name: 0.0 for of_model in best for name in of_model}
    for _ in range(MAX_ROUNDS):
        sums, counted = dict.fromkeys(levels, 0.0), dict.fromkeys(levels, 0.0)
        for of_model, weight in zip(best, weights, strict=True):
            level = statistics.fmean(value - levels[name] for name, value in of_model.items())
            for name, value in of_model.items():
                sums[name] += weight * (value - level)
                counted[name] += weight
        before, levels = levels, {name: sums[name] / counted[name] for name in levels}
        if all(abs(levels[name] - before[name]) < SETTLED for name in levels):
            break
    return levels


def _best(tuned: Sequence[PoolMember], *, in_deviations: bool = False) -> dict[str, float]:
    """The best trial of each preset, larger is better: of losses the logarithm. A preset whose trials all diverged is
    as bad as the worst trial of all."""
    turn = _turned(tuned)
    turned = {member.preset: list(map(turn, _values(member))) for member in tuned}
    together = [value for values in turned.values() for value in values]
    unit = _deviation(together) if in_deviations else 1.0
    return {name: max(values, default=min(together)) / unit for name, values in turned.items()}


def _turned(tuned: Sequence[PoolMember]) -> Callable[[float], float]:
    """The function that makes larger values the better ones."""
    if _are_losses(tuned):
        return lambda value: -math.log(value)
    return (lambda value: -value) if tuned[0].is_minimised else (lambda value: value)


def _are_losses(tuned: Sequence[PoolMember]) -> bool:
    return tuned[0].is_minimised and all(value > 0 for member in tuned for value in _values(member))


def _values(member: PoolMember) -> list[float]:
    return [trial.value for trial in member.trials if trial.value is not None and math.isfinite(trial.value)]


def _deviation(values: Sequence[float]) -> float:
    """The deviation by the quartiles, so that a few trials that blew up do not widen it."""
    if len(values) < 2:
        return 1.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / 1.35 or statistics.pstdev(values) or 1.0
