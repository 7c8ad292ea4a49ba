"""The prior of a search: good configs of similar models, and how much to trust them.

The density is a mixture of Gaussians around these configs, which are wider the farther away the configs were tuned, and
the uniform density. Its logarithm is added to the score of a proposal, with a weight that falls with the number of
measurements, as in piBO (Hvarfner et al., arXiv:2204.11051). Once the model expects no more of these configs than of an
average one, the weight is 0.

Beside known configs, the model of the search also expects results to change along each parameter as fast as in tables
of trials, until they are contradicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces import Float, Integer, Scalar, SearchSpace
from service.scheduler.policy.searching.curve_model import KNOWN_LENGTHS, LENGTH_DEVIATION, KnownLengths
from service.scheduler.policy.searching.encoding import Array, Encoding

NUM_DESIGN = 6
"""Trials before the model is asked, the known configs among them: they say where to look."""
MAX_STARTS = 3
"""Known configs that are tried themselves."""
WEIGHT = 4.0
"""Weight of the logarithm of the density, which is divided by the number of measured trials."""
UNIFORM = 0.05
"""Share of the uniform density: the most that a proposal far from all known configs loses is its logarithm."""
LR_SPREAD = (0.08, 0.02)
"""Spread of the learning rate, as a share of its range on its scale: next to the model itself, and by octave of
distance."""
OTHER_SPREAD = (0.25, 0.03)
"""Spread of every other number, likewise."""
LENGTHS_IN_TABLES: dict[str, float] = {
    "lr": KNOWN_LENGTHS["lr"][0],
    "betas[0]": 4.8,
    "betas[1]": 13.0,
    "epsilon": 22.0,
    "momentum": 2.0,
    "precondition_frequency": 5.3,
    "schedule.warmup_fraction": 7.1,
    "weight_decay": 21.0,
}
"""Medians of the length scales in decades, by `python -m tests.benchmarks.search.parameter_lengths`: all but that of
the learning rate are longer than the usual ranges."""


@dataclass(frozen=True, slots=True)
class KnownConfig:
    """A config that was good for a model like this one."""

    parameters: Mapping[str, Scalar]
    """An assignment of the space."""
    distance: float
    """Octaves between the two models."""


class SearchPrior:
    """The density, and the configs to begin with."""

    def __init__(
        self,
        known: Sequence[KnownConfig],
        space: SearchSpace,
        encoding: Encoding,
        *,
        lengths: Mapping[str, float] = LENGTHS_IN_TABLES,
    ) -> None:
        """Takes at least one config, the nearest ones first, and length scales in decades by parameter."""
        self._lengths = lengths
        self._centres = np.array([encoding.encode(config.parameters) for config in known])
        self._spreads = np.array([_spreads(space, config.distance) for config in known])
        self._is_categorical = encoding.is_categorical

    @property
    def lengths(self) -> KnownLengths:
        """The length scales that a model expects beside these configs, with the deviation of one of which nothing is
        known: with those of the tables, 0.4 to 0.8, searches gain less.

        Without known configs it expects only that of the learning rate: with all of them such a search gains nothing on
        tables, and loses on tasks whose parameters only share the names.
        """
        return {name: (length, LENGTH_DEVIATION) for name, length in self._lengths.items()}

    @property
    def starts(self) -> list[Array]:
        """The vectors to begin with."""
        return list(self._centres[:MAX_STARTS])

    @property
    def centres(self) -> Array:
        """(known, dimensions)."""
        return self._centres

    def drawn(self, count: int, rng: np.random.Generator) -> Array:
        """(count, dimensions) around the known configs, as wide as their Gaussians; choices are theirs. Not snapped."""
        chosen = rng.integers(len(self._centres), size=count)
        moves = rng.standard_normal((count, self._centres.shape[1])) * self._spreads[chosen] * ~self._is_categorical
        found: Array = np.clip(self._centres[chosen] + moves, 0.0, 1.0)
        return found

    def log_density(self, vectors: Array) -> Array:
        """(n,) of vectors (n, dimensions): at most 0, at least the logarithm of `UNIFORM`."""
        apart = (vectors[:, None, :] - self._centres[None]) / self._spreads[None]
        gaussians = np.exp(-0.5 * (apart**2).mean(axis=2)).max(axis=1)
        found: Array = np.log(UNIFORM + (1 - UNIFORM) * gaussians)
        return found

    def weight(self, expected: Array, means: Array, *, num_measured: int) -> float:
        """The weight of the logarithm, added to that of the expected improvement; 0: the measurements contradict the
        prior.

        Args:
            expected: (known,), the final values that the model expects of the known configs, larger is better.
            means: (n,), those of the trials.
        """
        if expected.max() <= np.median(means):
            return 0.0
        return WEIGHT / max(1, num_measured)


def _spreads(space: SearchSpace, distance: float) -> list[float]:
    """The spread of each dimension; a choice has none to speak of."""
    found = []
    for indices in space.dimensions():
        parameter = space.parameters[indices[0]]
        alone, rate = LR_SPREAD if parameter.name == "lr" else OTHER_SPREAD
        found.append(min(0.5, alone + rate * distance) if isinstance(parameter, Float | Integer) else 1.0)
    return found
