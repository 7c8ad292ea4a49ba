"""The schedule of a parameter's steps t = 1, 2, ...: which statistics and refreshes are due, and the step's scalars.

With f the refresh period, s the first refresh and k the statistics period:

    statistics   at t = k, 2k, ...; for kl at every t; in low precision as a part of each refresh, apart from kl's
                 eigenvalues
    refresh      of every unit at t = s, and then of a unit with phase φ in [0, f) when (t − s) mod f = φ

A unit is one factor of one block. With `stagger_refresh` the phases spread the units of a group evenly over the period,
otherwise all are 0. The first refresh is of all units together: when roots came one after the other, f = 50 left a deep
autoencoder's loss a quarter higher. Before step s, steps are plain.
"""

from __future__ import annotations

from dataclasses import dataclass

from shampoo.hyperparameters import Hyperparameters


@dataclass(frozen=True, slots=True)
class StepScalars:
    """The scalars of a step, which depend only on hyperparameters and a parameter's step count."""

    update_statistics: bool
    has_started: bool
    """t has reached the first refresh; from then on, refreshed units stay in use whatever changes."""
    phase: int
    """The phase φ whose units are due."""
    factor_decay: float
    """Weight of the old factor in an update of the statistics."""
    factor_weight: float
    """Weight of G Gᵀ in it."""
    factor_correction: float
    """Sum of the weights in the factor; 1 for sums, without bias correction, and if the first sample counts fully."""
    sample_decay: float
    """Weight of the old factor at a refresh in low precision."""
    sample_weight: float
    """Weight of the step's own Gram matrix in it."""
    first_moment_correction: float
    """Sum of the weights in the direction F."""
    second_moment_correction: float
    """Sum of the weights in V; 1 unless the method is Adam's, and grafted or with bias correction."""


def step_scalars(h: Hyperparameters, t: int, *, has_factors: bool, begun: int | None = None) -> StepScalars:
    """The scalars of step t, for blocks with factors or for plain ones.

    `begun` is the step with which kl's statistics began; None: the first.

    Statistics taken every k steps decay by β^k, which keeps their horizon in steps. The correction of the direction
    F_t = β3·M_{t−1} + (1 − β3)·G_t is 1 − β3·β1^(t−1), which is Adam's 1 − β1^t for β3 = β1.
    """
    beta1 = h.betas[0]
    beta3 = beta1 if h.beta3 is None else h.beta3
    f, s, k = h.refresh_period, h.first_refresh, h.statistics_period
    is_kl = h.preconditioner == "kl"
    beta, low_precision, correct = h.factor_beta, h.low_precision_state, h.use_bias_correction
    decay = beta**k
    # These averages feed back into themselves, so their bias is avoided instead of being divided out.
    b = s if begun is None else begun
    old, new = _weights(h, k, num_updates=t - b + 1) if is_kl else (decay, _complement(decay))
    sample_old, sample_new = _weights(h, f, num_updates=(t - b + f - 1) // f + 1)
    method = (
        "adam" if h.preconditioner == "soap" and has_factors else h.grafting_method if has_factors else h.plain_method
    )
    return StepScalars(
        update_statistics=is_kl or (t % k == 0 and not low_precision),
        has_started=t >= s,
        phase=(t - s) % f,
        factor_decay=old,
        factor_weight=new,
        factor_correction=1 - decay ** (t // k) if correct and beta < 1 and not (is_kl or low_precision) else 1.0,
        sample_decay=sample_old,
        sample_weight=sample_new,
        first_moment_correction=1 - beta3 * beta1 ** (t - 1) if correct and beta1 > 0 else 1.0,
        second_moment_correction=1 - h.second_moment_beta**t if h.corrects_adam and method == "adam" else 1.0,
    )


def _weights(h: Hyperparameters, period: int, *, num_updates: int) -> tuple[float, float]:
    """Weights of the old average and the n-th sample: the first sample counts fully, and with bias correction the n-th
    counts as in a bias-corrected average of n samples."""
    decay = h.factor_beta**period
    if not h.use_bias_correction or h.factor_beta == 1 or num_updates < 1:
        return decay, _complement(decay)
    weight = 1 - decay**num_updates
    return decay * (1 - decay ** (num_updates - 1)) / weight, (1 - decay) / weight


def _complement(decay: float) -> float:
    return 1.0 if decay == 1 else 1 - decay
