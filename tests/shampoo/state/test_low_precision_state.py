"""State in bfloat16, 8 and 4 bit follows its recurrence exactly where its rounding does: for diagonal gradients, whose
eigenbases are permutations and as such stored without error.

Statistics and refresh are one there. When the factor A = QΛQᵀ of a side is due, for the n-th time, with d = β^f,

    A ← d(1 − d^(n−1))/(1 − dⁿ) A + (1 − d)/(1 − dⁿ) Gram;   without bias correction d and 1 − d, but A = Gram for n = 1

kl's eigenvalues Λ take the diagonal of the sample in every other step as well, and before the refresh: the same with
d = β and n = t. For G = diag(g) all is elementwise: Gram is g², shampoo's step g (ã_1 ã_2)^(−1/4), ã = a + ε max a,
kl's g (ã_1 ã_2)^(−1/2) with Gram = g²/ã of the other side, over the size. soap's is Adam's in any permuted basis.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from shampoo import Shampoo
from tests.support.shampoo.settings import settings

SIZE, PERIOD, BETA2, EPSILON = 8, 4, 0.9, 1e-4


def _gradients(num_steps: int) -> Tensor:
    """Diagonals, (num_steps, SIZE) float32, whose entries change places in size from step to step."""
    generator = torch.Generator().manual_seed(3)
    sizes = torch.rand(num_steps, SIZE, generator=generator) * 4 - 2
    signs = torch.randint(0, 2, (num_steps, SIZE), generator=generator) * 2 - 1
    return sizes.exp() * signs


def _averaged(a: Tensor, sample: Tensor, *, t: int, period: int, corrected: bool) -> Tensor:
    """The average at step t of samples taken every period from step 1 on."""
    d, n = BETA2**period, -(-(t - 1) // period) + 1
    if n == 1:
        return sample
    old, new = (d * (1 - d ** (n - 1)) / (1 - d**n), (1 - d) / (1 - d**n)) if corrected else (d, 1 - d)
    return old * a + new * sample


def _expected_steps(member: str, gradients: Tensor, phases: list[int], *, corrected: bool) -> Tensor:
    """Diagonals of the directions, (num_steps, SIZE) float64."""
    factors = [torch.zeros(SIZE, dtype=torch.float64) for _ in phases]
    second_moment, steps = torch.zeros(SIZE, dtype=torch.float64), []

    def damped(a: Tensor) -> Tensor:
        return a + EPSILON * a.max() if a.max() > 0 else torch.ones_like(a)

    def gram(g: Tensor, side: int) -> Tensor:
        return g**2 / (SIZE * damped(factors[1 - side])) if member == "kl" else g**2

    for t, g in enumerate(gradients.double(), start=1):
        if member == "kl" and t > 1:
            samples = [gram(g, side) for side in (0, 1)]
            for side, sample in enumerate(samples):
                factors[side] = _averaged(factors[side], sample, t=t, period=1, corrected=corrected)
        for side, phase in enumerate(phases):
            if t == 1 or (t - 1) % PERIOD == phase:
                sample = gram(g, side)
                factors[side] = _averaged(factors[side], sample, t=t, period=PERIOD, corrected=corrected)
        second_moment = BETA2 * second_moment + (1 - BETA2) * g**2
        if member == "soap":
            steps.append(g / ((second_moment / (1 - BETA2**t if corrected else 1)).sqrt() + 1e-8))
        else:
            exponent = 1 / 2 if member == "kl" else 1 / 4
            steps.append(g * (damped(factors[0]) * damped(factors[1])) ** -exponent)
    return torch.stack(steps)


@pytest.mark.parametrize("corrected", [True, False], ids=["corrected", "uncorrected"])
@pytest.mark.parametrize("stagger", [True, False], ids=["staggered", "at_once"])
@pytest.mark.parametrize("state_dtype", ["bfloat16", "int8", "int4"])
@pytest.mark.parametrize("member", ["shampoo", "soap", "kl"])
def test_diagonal_gradients_follow_the_recurrence(
    member: str, state_dtype: str, stagger: bool, corrected: bool
) -> None:
    config: dict[str, Any] = settings(
        lr=1.0,
        preconditioner=member,
        betas=(0.0, BETA2),
        precondition_frequency=PERIOD,
        stagger_refresh=stagger,
        use_bias_correction=corrected,
        state_dtype=state_dtype,
    )
    if member == "shampoo":
        config["grafting"] = "none"
    if member != "soap":
        config["epsilon"] = EPSILON
    gradients = _gradients(18)
    # Five large units, in three stretches of the period: that of the middle matrix's rows ends the first, and that of
    # its columns begins the second.
    expected = _expected_steps(member, gradients, [0, PERIOD // 3] if stagger else [0, 0], corrected=corrected)
    params = [torch.nn.Parameter(torch.zeros(SIZE, width)) for width in (2, SIZE, SIZE)]
    param = params[1]
    optimizer = Shampoo(params, **config)
    for g, step in zip(gradients, expected, strict=True):
        for each in params:
            each.data.zero_()
            each.grad = torch.diag(g)[:, : each.shape[1]]
        optimizer.step()
        # float32 rounds at 6e-8, and eigenvalues are computed from what was rounded up to five times before.
        torch.testing.assert_close(-param.detach().double(), torch.diag(step), rtol=1e-5, atol=1e-6)
