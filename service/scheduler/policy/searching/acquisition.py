"""Expected improvement, and a search for the new config with the largest."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from service.scheduler.policy.searching.curve_model import Posterior
from service.scheduler.policy.searching.encoding import Array, Encoding

NUM_UNIFORM = 300
"""Candidates drawn uniformly."""
NUM_LOCAL = 300
"""Candidates drawn around the best known configs."""
NUM_TOP = 5
"""Configs that count as the best. All three numbers by judgement: `auto` gained nothing from a finer search around the
best."""
REFINEMENTS = (0.08, 0.027)
"""Spreads of the two rounds around the best candidates."""
OUT_OF_REACH = 1e6
"""Subtracted from the score of a candidate that is too close to a known config."""


def log_expected_improvement(mean: Array, deviation: Array, incumbent: float) -> Array:
    """Log of E[max(0, y - incumbent)] for normal y, accurate far below the incumbent too."""
    z = (mean - incumbent) / deviation
    found = np.empty_like(z)
    is_far = z < -5
    near, far = z[~is_far], z[is_far]
    log_root = 0.5 * math.log(2 * math.pi)
    found[~is_far] = np.log(np.exp(-0.5 * near * near - log_root) + near * ndtr(near))
    # phi(z) + z Phi(z) -> phi(z) / z^2
    found[is_far] = -0.5 * far * far - log_root - 2 * np.log(-far)
    return found + np.log(deviation)


def propose(
    posterior: Posterior,
    encoding: Encoding,
    *,
    known: Array,
    means: Array,
    incumbent: float,
    resolution: float,
    is_tried: Callable[[Array], bool],
    rng: np.random.Generator,
    bonus: Callable[[Array], Array] | None = None,
    others: Array | None = None,
) -> Array:
    """The snapped vector with the highest expected improvement at the end of training that a random search finds.

    Candidates are uniform draws and perturbations of the configs with the best predictions, refined twice.

    Args:
        known: (n, dimensions), the configs in the posterior.
        means: (n,), their expected final values.
        incumbent: the value to improve on.
        resolution: the least distance from all known configs, in length scales, if any candidate has it.
        is_tried: True for a vector whose decoded config is a known one; it is only chosen if all others are known, too.
        bonus: gives for vectors (n, dimensions) the values (n,) that are added to their logarithms; None: nothing.
        others: (n, dimensions), further candidates; None: none.
    """

    def scored(vectors: Array) -> Array:
        scores = log_expected_improvement(*posterior.final(vectors), incumbent)
        if bonus is not None:
            scores += bonus(vectors)
        if resolution > 0:
            scores[posterior.distances(vectors, known).min(axis=1) <= resolution] -= OUT_OF_REACH
        return scores

    top = known[np.argsort(-means)[:NUM_TOP]]
    uniform = rng.random((NUM_UNIFORM, encoding.num_dimensions))
    further = [] if others is None else [others]
    candidates = encoding.snap(np.concatenate([uniform, _perturbed(top, encoding.is_categorical, rng), *further]))
    scores = scored(candidates)
    for spread in REFINEMENTS:
        leaders = candidates[np.argsort(-scores)[:6]].repeat(16, axis=0)
        moves = spread * rng.standard_normal(leaders.shape) * ~encoding.is_categorical
        refined = encoding.snap(_reflected(leaders + moves))
        candidates = np.concatenate([candidates, refined])
        scores = np.concatenate([scores, scored(refined)])
    from_the_best = candidates[np.argsort(-scores, kind="stable")]
    best: Array = next((candidate for candidate in from_the_best if not is_tried(candidate)), from_the_best[0])
    return best


def _perturbed(top: Array, is_categorical: Array, rng: np.random.Generator) -> Array:
    """Copies of the vectors with some coordinates moved, far or near; choices are drawn again."""
    found = top[rng.integers(len(top), size=NUM_LOCAL)]
    moves = rng.random(found.shape) < 0.4
    moves[np.arange(NUM_LOCAL), rng.integers(found.shape[1], size=NUM_LOCAL)] = True
    spread = np.exp(rng.uniform(math.log(0.02), math.log(0.3), size=(NUM_LOCAL, 1)))
    moved = _reflected(found + spread * rng.standard_normal(found.shape))
    moved = np.where(is_categorical, rng.random(found.shape), moved)
    return np.where(moves, moved, found)


def _reflected(positions: Array) -> Array:
    """Positions that left [0, 1], mirrored at its ends."""
    inside = np.abs(positions)
    return np.clip(np.where(inside > 1, 2 - inside, inside), 0.0, 1.0)
