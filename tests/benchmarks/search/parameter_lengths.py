"""The length scales of `auto`'s model along each parameter, from tables of trials.

    python -m tests.benchmarks.search.parameter_lengths                        # of all tables
    python -m tests.benchmarks.search.parameter_lengths --without stdlib-gpt   # of those of other workloads than this

The logarithm of a length scale, in decades of the parameter, is taken as normal over tables, and its mean and standard
deviation are those that make the tables likeliest: expectation maximisation, with Laplace's approximation of what one
table says. It is asked as a search would: of some tens of random configs with their values at the first rung, of a
third of them the end. The tables are the shipped curves and `service.transfer`'s trials, of which only ends are known.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces import Scalar, SearchSpace, preset
from service.scheduler.policy.searching.curve_model import (
    LENGTH,
    LENGTH_DEVIATION,
    CurveModel,
    KnownLengths,
    Rows,
)
from service.scheduler.policy.searching.encoding import Array, Encoding
from service.scheduler.policy.searching.rungs import Rungs
from service.scheduler.policy.searching.scaling import Scale
from service.transfer.candidates import shipped_members
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.curve_tables import read_table
from tests.benchmarks.search.seed_tables import read_seed_table

CURVE_TABLES = {"digits-convnet": "digits-convnet", "stdlib-gpt": "stdlib-gpt"}
SEED_TABLES = {
    "digits-convnet": "digits-convnet",
    "digits-mlp": "digits-mlp",
    "digits-convnet-family": "digits-convnet",
    "digits-mlp-family": "digits-mlp",
}
"""Workloads of the tables, by name."""
NUM_CONFIGS = 40
"""Configs that are drawn of a table."""
FINISHED_SHARE = 1 / 3
"""Share of the configs whose end is known: half of these are the best at the first rung, half are drawn."""
NUM_ROUNDS = 6
"""Rounds of expectation maximisation."""
NUM_DRAWS = 2
"""Draws of configs in a round, where a table has many."""
TRIALS_WEIGHT = 0.3
"""Weight of a table without curves, whose few configs a search has chosen, and of which many are of one workload."""
VAGUE_WEIGHT = 2.0
"""Tables that the length scale of an unknown parameter counts as."""
MIN_DEVIATION = 0.3
"""Least standard deviation: the next model differs from those of the tables."""
STEP = 1e-3
"""Step of the differences that give curvatures."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The trials of one table."""

    name: str
    workload: str
    space: SearchSpace
    parameters: Sequence[Mapping[str, Scalar]]
    first: Array
    """(n,) the loss at the first rung; NaN where that is not known."""
    final: Array
    """(n,) the loss at the end; NaN where it diverged."""

    @property
    def has_curves(self) -> bool:
        return bool(np.isfinite(self.first).any())


@dataclass(frozen=True, slots=True)
class _Told:
    """A length scale as one draw from a table tells it."""

    mean: float
    """The mean of its logarithm, in decades."""
    variance: float
    decades: float
    """The decades of the parameter's range in this table."""
    weight: float


def tables() -> Iterator[Observed]:
    """All tables there are."""
    for name, workload in CURVE_TABLES.items():
        table = read_table(name)
        cut = [(*row.curve, math.nan) if row.diverged else row.curve for row in table.rows]
        yield _of_curves(name, workload, table.space, [row.parameters for row in table.rows], cut)
    for name, workload in SEED_TABLES.items():
        seeds = read_seed_table(name)
        for side, space in seeds.spaces.items():
            rows = [row for row in seeds.rows if row.side == side]
            curves = [row.curves[0] or (math.nan,) for row in rows]
            yield _of_curves(f"{name}, {side}", workload, space, [row.parameters for row in rows], curves)
    for member in shipped_members():
        final = np.array([math.nan if trial.value is None else trial.value for trial in member.trials])
        parameters = [trial.parameters for trial in member.trials]
        name = f"{member.name}, {member.preset}"
        yield Observed(name, member.workload, preset(member.preset), parameters, np.full(len(final), math.nan), final)


def _of_curves(
    name: str,
    workload: str,
    space: SearchSpace,
    parameters: Sequence[Mapping[str, Scalar]],
    curves: Sequence[Sequence[float]],
) -> Observed:
    num_units = max(len(curve) for curve in curves)
    rung = Rungs(max_steps=num_units, first=None, pauses=True).first
    first = np.array([curve[rung - 1] if len(curve) >= rung else math.nan for curve in curves])
    final = np.array([curve[-1] if len(curve) == num_units else math.nan for curve in curves])
    return Observed(name, workload, space, parameters, first, final)


def learnt(observed: Sequence[Observed], *, num_rounds: int = NUM_ROUNDS, seed: int = 0) -> KnownLengths:
    """The length scales that explain the tables best."""
    rng = np.random.default_rng(seed)
    encodings = [Encoding(one.space) for one in observed]
    lengths: KnownLengths = {}
    for _ in range(num_rounds):
        told: dict[str, list[_Told]] = defaultdict(list)
        for one, encoding in zip(observed, encodings, strict=True):
            for _ in range(NUM_DRAWS if one.has_curves else 1):
                for name, found in _told(one, encoding, lengths, rng):
                    told[name].append(found)
        lengths = {name: _maximised(found) for name, found in sorted(told.items())}
    return lengths


def _told(
    one: Observed, encoding: Encoding, lengths: KnownLengths, rng: np.random.Generator
) -> Iterator[tuple[str, _Told]]:
    """The length scales of one draw from a table, by parameter."""
    chosen = rng.choice(len(one.final), min(NUM_CONFIGS, len(one.final)), replace=False)
    vectors = encoding.snap(np.array([encoding.encode(one.parameters[index]) for index in chosen]))
    mode, variance = _laplace(CurveModel(encoding, lengths), encoding, vectors, _rows(one, chosen, rng))
    for dimension, (name, decades) in enumerate(zip(encoding.names, encoding.decades, strict=True)):
        if decades > 0 and np.ptp(vectors[:, dimension]) > 0:
            weight = 1.0 if one.has_curves else TRIALS_WEIGHT
            yield name, _Told(mode[dimension] + math.log(decades), variance[dimension], decades, weight)


def _rows(one: Observed, chosen: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> Rows:
    """The rows that a search would have of these configs."""
    first, final = one.first[chosen], one.final[chosen]
    has_first = np.isfinite(first)
    ended = ~has_first
    if one.has_curves:
        count = round(FINISHED_SHARE * len(chosen))
        order = np.argsort(first)
        ended[order[: count // 2]] = True
        ended[rng.choice(order[count // 2 :], count - count // 2, replace=False)] = True
    at_first, at_end = np.flatnonzero(has_first), np.flatnonzero(ended)
    values = np.concatenate([first[at_first], final[at_end]])
    return Rows(
        np.concatenate([at_first, at_end]),
        np.repeat([1.0, 0.0], [len(at_first), len(at_end)]),
        Scale(values, is_minimised=True)(values),
    )


def _laplace(model: CurveModel, encoding: Encoding, vectors: Array, rows: Rows) -> tuple[Array, Array]:
    """The hyperparameters' mode, and their variances by the curvature of the log posterior there."""
    for _ in range(3):  # a fit has few iterations, and goes on where the last one ended
        model.fit(vectors, rows)
    mode, features = model._theta, encoding.features(vectors)
    squares = encoding.squares(features)

    def gradient(theta: Array) -> Array:
        return model._loss(theta, features, squares, rows)[1]

    slopes = [gradient(mode + STEP * unit) - gradient(mode - STEP * unit) for unit in np.eye(len(mode))]
    curvature = np.array(slopes) / (2 * STEP)
    values, axes = np.linalg.eigh((curvature + curvature.T) / 2)
    prior = np.square(model._prior_sd)
    # Where the mode is not quite reached, a curvature may be negative: no variance is larger than the prior's.
    variance = np.square(axes) @ (1 / np.maximum(values, 0.5 / prior.max()))
    return mode, np.minimum(variance, prior)


def _maximised(told: Sequence[_Told]) -> tuple[float, float]:
    """The median, and the standard deviation of the logarithm, that make these length scales likeliest."""
    means, variances, decades, weights = np.array([(one.mean, one.variance, one.decades, one.weight) for one in told]).T
    total = weights.sum() + VAGUE_WEIGHT
    middle = (weights @ means + VAGUE_WEIGHT * np.log(LENGTH * decades).mean()) / total
    spread = weights @ (variances + np.square(means - middle)) + VAGUE_WEIGHT * LENGTH_DEVIATION**2
    return math.exp(middle), max(MIN_DEVIATION, math.sqrt(spread / total))


def main(arguments: list[str] | None = None) -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", help="the workload whose tables are left out")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws of configs")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args(arguments)
    observed = [one for one in tables() if one.workload != given.without]
    lengths = learnt(observed, seed=given.seed)
    rows: list[list[Cell]] = [[name, *known] for name, known in lengths.items()]
    report(
        "parameter_lengths",
        columns=["parameter", "length scale (decades)", "deviation of its logarithm"],
        rows=rows,
        figures={"lengths": dict(lengths), "without": given.without, "num_tables": len(observed)},
        ratios={},
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
