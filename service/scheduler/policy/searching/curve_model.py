"""A Gaussian process over configurations and the progress of their training: predicts the end of an unfinished curve.

The value of config x at a share t of its training, with d(t) = ln t / ln t1 the distance to its end (0 at the end, 1 at
the first rung t1), is modelled as

    y(x, t) = m + s(t) (f(x) + u(x)) + d(t) (g(x) + c + e(x)) + noise,      s(t) = exp(b d(t))

- m: a constant; f: the part of the final value that is a smooth function of the config; u: the part of this config
  alone (its seed, a landscape finer than the data), which shows early as well as at the end;
- s: how much wider or narrower values spread early;
- g: a smooth gap between early and final values. It learns, say, that large learning rates look bad early: a decaying
  schedule makes curves cross, and where they cross is a smooth function of the config;
- c: the gap that all configs share; e: the gap of this config alone, which is known only from its own end.

f and g have Matern-5/2 kernels with a length scale per parameter. Hyperparameters are maxima a posteriori. Everything
enters as observed: no value is imputed. With one rung and the end this is co-kriging of two fidelities (Kennedy and
O'Hagan, 2000) with the gap placed on the early side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.spatial.distance import cdist

from service.scheduler.policy.searching.encoding import Array, Encoding

CONSTANT_VARIANCE = 4.0
"""Prior variance of m; targets are standardised, so this is vague."""
LENGTH = 1.5
"""Length scale of f along a parameter, expected before anything is measured: two choices' values correlate by 0.84."""
LENGTH_DEVIATION = 0.8
"""Standard deviation of its logarithm."""
BRANCH_LENGTH = 0.6
"""Length scale of f along a parameter whose choices activate others: values of two choices correlate by 0.43. Members
of a family are separate methods with separate ranges. On the table `digits-convnet-family`, 0.4 gains as much as 0.6,
and 1.0 a third of that."""
MAX_FIT_ITERATIONS = 25
"""Most iterations of L-BFGS, by judgement: each fit begins where the previous one ended, and the limit bounds the cost
of a decision."""
KnownLengths: TypeAlias = Mapping[str, tuple[float, float]]
"""Medians of the length scales of f along parameters of these names, in decades (on the reverse scale, of the distance
from 1), and the standard deviations of their logarithms."""
KNOWN_LENGTHS: KnownLengths = {"lr": (1.1, 0.4)}
"""The length scale in tables of trials, by `python -m tests.benchmarks.search.parameter_lengths`, rounded: a third of
the usual range, while `LENGTH` expects one and a half (without the workload of either shipped curve table it is also
1.0 to 1.1). It gains little: see "How good a policy is" in `service/INSIDE.md`. The length scales of all other
parameters are long in the tables (20 decades for `epsilon`). A model that expects these, too, predicts configs better
(after eight trials of `stdlib_gpt`, its rank correlation with unseen ends is 0.65 instead of 0.38). But it adds 0.08 ±
0.03 to the regret at five on the synthetic tasks, where names mean nothing; if it also learns the deviations below,
0.10 ± 0.04. An additional sum of one-dimensional kernels predicts no better."""
SQRT5 = 5.0**0.5
"""√5 of the Matérn kernel with ν = 5/2."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Observations of configs at points of their training."""

    config: np.ndarray[Any, np.dtype[np.int64]]
    """(n,) the index of the config."""
    distance: Array
    """(n,) d(t)."""
    target: Array
    """(n,) standardised, larger is better."""

    def extended(self, config: Any, distance: Array, target: Array) -> Rows:
        """These rows and others."""
        return Rows(
            np.concatenate([self.config, config]),
            np.concatenate([self.distance, distance]),
            np.concatenate([self.target, target]),
        )


class CurveModel:
    """The model of one search; keeps its hyperparameters from fit to fit."""

    def __init__(
        self,
        encoding: Encoding,
        known: KnownLengths | None = None,
        *,
        hyperparameters: Sequence[float] | None = None,
    ) -> None:
        """Prepares a model without observations.

        Args:
            encoding: of the space.
            known: known length scales, used if the parameter's scale is logarithmic; None: none.
            hyperparameters: those from a fit of the same space; None: their prior means.
        """
        self._encoding = encoding
        dims = encoding.num_dimensions
        lengths = np.where(encoding.is_branching, BRANCH_LENGTH, LENGTH)
        deviations = np.full(dims, LENGTH_DEVIATION)
        for dimension, (name, decades) in enumerate(zip(encoding.names, encoding.decades, strict=True)):
            if known is not None and name in known and decades > 0:
                length, deviations[dimension] = known[name]
                lengths[dimension] = length / decades
        # log length scales of f and g; log standard deviations of f, u, g, c, e, noise; b.
        self._prior_mean = np.concatenate(
            [
                np.log(lengths),
                np.zeros(dims),
                np.log([1.0, 0.15, 0.4, 0.7, 0.15, 0.07]),
                [0.0],
            ]
        )
        self._prior_sd = np.concatenate([deviations, np.full(dims, 0.7), [1.0, 0.7, 0.7, 0.7, 0.7, 0.7], [0.4]])
        self._theta = self._prior_mean.copy() if hyperparameters is None else np.array(hyperparameters)
        assert self._theta.shape == self._prior_mean.shape, "hyperparameters of another space"

    @property
    def hyperparameters(self) -> list[float]:
        """The current hyperparameters, all as logarithms except the last."""
        found: list[float] = self._theta.tolist()
        return found

    def fit(self, configs: Array, rows: Rows) -> None:
        """Finds the hyperparameters that explain the rows best, starting from the current ones."""
        self.fit_together([(configs, rows)])

    def fit_together(self, searches: Sequence[tuple[Array, Rows]]) -> None:
        """Finds the hyperparameters that explain several searches of the space best, starting from the current ones.

        Args:
            searches: the configs and rows of each; the values of each search follow a separate function.
        """
        # Loading it takes a quarter of the time of a process that only conditions, such as one that answers a question.
        from scipy.optimize import minimize

        first, *others = (
            (features := self._encoding.features(configs), self._encoding.squares(features), rows)
            for configs, rows in searches
        )

        def loss(theta: Array) -> tuple[float, Array]:
            total, gradient = self._loss(theta, *first)
            for other in others:
                of_other, its_gradient = self._unlikelihood(theta, *other)
                total, gradient = total + of_other, gradient + its_gradient
            return total, gradient

        found = minimize(
            loss,
            self._theta,
            jac=True,
            method="L-BFGS-B",
            bounds=[(mean - 4 * sd, mean + 4 * sd) for mean, sd in zip(self._prior_mean, self._prior_sd, strict=True)],
            options={"maxiter": MAX_FIT_ITERATIONS},
        )
        if np.isfinite(found.fun):
            self._theta = found.x

    def condition(self, configs: Array, rows: Rows, *, added_noise: Array | None = None) -> Posterior:
        """The posterior given the rows, with the current hyperparameters.

        Args:
            added_noise: (n,), variance of each row's noise in addition to the common one; None: none.
        """
        return Posterior(self._encoding, self._theta, configs, rows, added_noise=added_noise)

    def _loss(self, theta: Array, features: Array, squares: Array, rows: Rows) -> tuple[float, Array]:
        """Negative log posterior of the hyperparameters, and its gradient."""
        deviation = (theta - self._prior_mean) / self._prior_sd
        loss, gradient = self._unlikelihood(theta, features, squares, rows)
        return loss + float(0.5 * deviation @ deviation), gradient + deviation / self._prior_sd

    def _unlikelihood(self, theta: Array, features: Array, squares: Array, rows: Rows) -> tuple[float, Array]:
        """Negative log likelihood of the hyperparameters, and its gradient."""
        parts = _Kernel(theta, self._encoding.parameter_of_feature, features)
        covariance = parts.covariance(rows)
        factor = _factor(covariance)
        alpha = cho_solve((factor, True), rows.target)
        loss = 0.5 * rows.target @ alpha + np.log(np.diag(factor)).sum()
        inverse = cho_solve((factor, True), np.eye(len(alpha)))
        weight = 0.5 * (inverse - np.outer(alpha, alpha))  # d loss / d covariance
        return float(loss), parts.gradient(rows, squares, weight)


class Posterior:
    """The model given observations."""

    def __init__(
        self, encoding: Encoding, theta: Array, configs: Array, rows: Rows, *, added_noise: Array | None = None
    ) -> None:
        self._encoding, self._rows = encoding, rows
        self._kernel = _Kernel(theta, encoding.parameter_of_feature, encoding.features(configs))
        covariance = self._kernel.covariance(rows)
        if added_noise is not None:
            covariance[np.diag_indices_from(covariance)] += added_noise
        self._factor = _factor(covariance)
        self._alpha = cho_solve((self._factor, True), rows.target)

    def final(self, vectors: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the final values (without noise) of snapped vectors (n, dimensions)."""
        return self._moments(self._kernel.cross(self._encoding.features(vectors), self._rows))

    def expected(self, vectors: Array) -> Array:
        """Only the mean of `final`, which costs far less if there are many rows."""
        mean: Array = self._kernel.cross(self._encoding.features(vectors), self._rows) @ self._alpha
        return mean

    def weights(self, vector: Array) -> Array:
        """The weight of each row's target in the mean of `final` at one snapped vector."""
        cross = self._kernel.cross(self._encoding.features(vector[None]), self._rows)
        found: Array = cho_solve((self._factor, True), cross[0])
        return found

    def difference(self, vector: Array, other: Array) -> tuple[float, float]:
        """Mean and standard deviation of the difference of f, the smooth function of the config, between one snapped
        vector and another; the parts of single configs are left out."""
        features = self._encoding.features(np.stack([vector, other]))
        first, second = self._kernel.cross(features, self._rows)
        cross = first - second
        solved = solve_triangular(self._factor, cross, lower=True)
        variance = self._kernel.prior_variance_of_difference(features) - solved @ solved
        return float(cross @ self._alpha), float(np.sqrt(max(variance, 1e-10)))

    def shift_by_rung(self, vector: Array) -> float:
        """Standard deviation of the change in a new config's expected final value when its first rung is observed."""
        features = self._encoding.features(vector[None])
        final, rung = self._kernel.cross(features, self._rows), self._kernel.cross_rung(features, self._rows)
        solved = cho_solve((self._factor, True), rung[0])
        covariance = self._kernel.prior_covariance_with_rung - final[0] @ solved
        variance = self._kernel.prior_variance_of_rung - rung[0] @ solved
        return float(abs(covariance) / np.sqrt(max(variance, 1e-10)))

    def distances(self, vectors: Array, known: Array) -> Array:
        """Distances of snapped vectors in units of the length scales of f: (vectors, known)."""
        found: Array = cdist(
            self._kernel.scaled(self._encoding.features(vectors)), self._kernel.scaled(self._encoding.features(known))
        )
        return found

    def final_of_known(self) -> tuple[Array, Array]:
        """Mean and standard deviation of the final values of the configs that were measured."""
        return self._moments(self._kernel.known(self._rows))

    def errors_left_out(self, rows: Sequence[int]) -> Array:
        """(rows,) the difference between the target of each row and the prediction from all other rows."""
        units = np.eye(len(self._alpha))[:, rows]
        found: Array = self._alpha[rows] / np.square(solve_triangular(self._factor, units, lower=True)).sum(axis=0)
        return found

    def believed(self, config: Array, distance: Array) -> Array:
        """Mean of known configs at distances from their end, as assumed values for running trials."""
        mean: Array = self._kernel.between(config, distance, self._rows) @ self._alpha
        return mean

    def _moments(self, cross: Array) -> tuple[Array, Array]:
        mean = cross @ self._alpha
        solved = solve_triangular(self._factor, cross.T, lower=True)
        variance = self._kernel.prior_variance - (solved * solved).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-10))


class _Kernel:
    """The covariance for one value of the hyperparameters, on configs whose features are given."""

    def __init__(self, theta: Array, parameter_of_feature: Any, features: Array) -> None:
        dims = (len(theta) - 7) // 2
        self._weights1, self._weights2 = np.exp(-2 * theta[:dims]), np.exp(-2 * theta[dims : 2 * dims])
        self._a, self._u, self._g, self._c, self._e, self._noise = np.exp(2 * theta[2 * dims : 2 * dims + 6])
        self._slope = theta[2 * dims + 6]
        self._roots1 = np.sqrt(self._weights1)[parameter_of_feature]
        self._roots2 = np.sqrt(self._weights2)[parameter_of_feature]
        self._scaled2 = features * self._roots2
        self._scaled1 = features * self._roots1
        self._f, self._df = _matern(self._scaled1, self._scaled1)
        self._gap, self._dgap = _matern(self._scaled2, self._scaled2)

    @property
    def prior_variance(self) -> float:
        return float(self._a + self._u + CONSTANT_VARIANCE)

    def prior_variance_of_difference(self, features: Array) -> float:
        """The prior variance of f's difference between the two configs with these features (2, columns)."""
        alike, _ = _matern(self.scaled(features[:1]), self.scaled(features[1:]))
        return float(2 * self._a * (1 - alike[0, 0]))

    def scaled(self, features: Array) -> Array:
        """Features in units of the length scales of f."""
        found: Array = features * self._roots1
        return found

    def covariance(self, rows: Rows) -> Array:
        found = self.between(rows.config, rows.distance, rows)
        found[np.diag_indices_from(found)] += self._noise + 1e-8
        return found

    def between(self, config: Any, distance: Array, rows: Rows) -> Array:
        """Covariance without noise of points with rows."""
        at = np.ix_(config, rows.config)
        spread = np.exp(self._slope * distance)[:, None] * np.exp(self._slope * rows.distance)
        is_same = config[:, None] == rows.config
        gap = self._g * self._gap[at] + self._c + self._e * is_same
        quality = self._a * self._f[at] + self._u * is_same
        found: Array = CONSTANT_VARIANCE + spread * quality + np.outer(distance, rows.distance) * gap
        return found

    def cross(self, features: Array, rows: Rows) -> Array:
        """Covariance of other configs' final values with the rows."""
        found, _ = _matern(features * self._roots1, self._scaled1)
        return self._with_spread(self._a * found[:, rows.config], rows)

    @property
    def prior_covariance_with_rung(self) -> float:
        return float(CONSTANT_VARIANCE + (self._a + self._u) * np.exp(self._slope))

    @property
    def prior_variance_of_rung(self) -> float:
        gap = self._g + self._c + self._e
        return float(CONSTANT_VARIANCE + (self._a + self._u) * np.exp(2 * self._slope) + gap + self._noise)

    def cross_rung(self, features: Array, rows: Rows) -> Array:
        """Covariance of other configs' values at the first rung with the rows."""
        near, _ = _matern(features * self._roots1, self._scaled1)
        gap, _ = _matern(features * self._roots2, self._scaled2)
        spread = np.exp(self._slope * (1 + rows.distance))
        final: Array = CONSTANT_VARIANCE + self._a * near[:, rows.config] * spread
        found: Array = final + (self._g * gap[:, rows.config] + self._c) * rows.distance
        return found

    def known(self, rows: Rows) -> Array:
        is_same = np.arange(len(self._f))[:, None] == rows.config
        return self._with_spread(self._a * self._f[:, rows.config] + self._u * is_same, rows)

    def _with_spread(self, quality: Array, rows: Rows) -> Array:
        found: Array = CONSTANT_VARIANCE + quality * np.exp(self._slope * rows.distance)
        return found

    def gradient(self, rows: Rows, squares: Array, weight: Array) -> Array:
        """The gradient by the hyperparameters of a loss whose derivative by the covariance is `weight`.

        squares: (parameters, n, n), squared differences of the configs.
        """
        spread = np.exp(self._slope * rows.distance)
        distances = np.outer(rows.distance, rows.distance)
        at = np.ix_(rows.config, rows.config)
        same = rows.config[:, None] == rows.config
        spread_weight = weight * np.outer(spread, spread)
        by_f, by_u = spread_weight * self._a * self._f[at], spread_weight * self._u * same
        gap_weight = weight * distances
        lengths1 = _by_lengths(self._onto_configs(spread_weight * self._a, rows) * self._df, squares, self._weights1)
        lengths2 = _by_lengths(self._onto_configs(gap_weight * self._g, rows) * self._dgap, squares, self._weights2)
        deviations = 2 * np.array(
            [
                by_f.sum(),
                by_u.sum(),
                (gap_weight * self._g * self._gap[at]).sum(),
                gap_weight.sum() * self._c,
                (gap_weight * same).sum() * self._e,
                np.trace(weight) * self._noise,
            ]
        )
        slope = 2 * ((by_f + by_u).sum(axis=1) @ rows.distance)
        return np.concatenate([lengths1, lengths2, deviations, [slope]])

    def _onto_configs(self, weight: Array, rows: Rows) -> Array:
        """Sums a matrix over the rows of each config."""
        which = np.zeros((len(rows.config), self._f.shape[0]))
        which[np.arange(len(rows.config)), rows.config] = 1.0
        found: Array = which.T @ weight @ which
        return found


def _by_lengths(weight: Array, squares: Array, inverse_squares: Array) -> Array:
    """Chain rule from squared distances to log length scales: d r^2 / d log l = -2 D / l^2."""
    found: Array = squares.reshape(len(squares), -1) @ weight.ravel()
    return -2 * found * inverse_squares


def _matern(left: Array, right: Array) -> tuple[Array, Array]:
    """Matern-5/2 correlation of scaled points, and its derivative by the squared distance."""
    scaled = SQRT5 * cdist(left, right)
    decay = np.exp(-scaled)
    return (1 + scaled + scaled * scaled / 3) * decay, -(5 / 6) * (1 + scaled) * decay


def _factor(covariance: Array) -> Array:
    """The lower Cholesky factor, with as much jitter as it needs."""
    jitter = 0.0
    while True:
        try:
            factor: Array = cholesky(covariance + jitter * np.eye(len(covariance)), lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            jitter = max(1e-8, 10 * jitter)
            if jitter > 1:
                raise
        else:
            return factor
