"""The optimizer follows the textbook implementation in `reference`: with every pair of options through several
refreshes, and in float32 over 20 steps and more.

Deviations are relative to how far the reference has moved each tensor from its start, so they are free of lr.

float64: 1e-9. Both sides round at 1e-16. The root of a null eigenvalue, ε λmax, carries a relative error of about
1e-16/ε, here up to 1e-10 for ε = 1e-6; an eigenvector one of 1e-16 λmax over its gap; and all steps through the
weights-dependent gradient add up.
float32: see the test. Two things are ill-conditioned whatever the implementation, so settings here avoid them:

- An eigenbasis of a null space of two dimensions or more is arbitrary, and with soap and kl trajectories depend on it.
  No shape here lets a refresh see one (`settings.SHAPES`) or else preconditioning starts when factors have full rank.
- The bases of one gradient's two factors are its singular vectors, so that in soap's basis a matrix G = UΣVᵀ is Σ and,
  off the diagonal, rounding; Adam divides that by itself plus εg. In float32 its first step is then random signs there,
  and in float64 has an error of up to 1e-16 ‖G‖/εg. It concerns a start at the first step alone, where soap's matrices
  therefore have εg = 1e-3; tensors of higher order, whose unfoldings have different singular vectors, the default.

Options meet in pairs (`settings.pairwise`), each combination on one tensor of each order at once, so that buckets of
several parameters are stepped together.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shampoo.state.buckets
from tests.support.shampoo.deviations import (
    BASIS_SOLVERS,
    FLOAT32,
    GEOMETRY,
    OPTIONS,
    SECOND_STEP,
    Choices,
    combinations,
    deviation,
    num_steps_of,
)
from tests.support.shampoo.settings import SHAPES, pairwise, settings


@pytest.mark.parametrize(
    "config", [pytest.param(config, id=name) for member in OPTIONS for name, config in combinations(member)]
)
def test_every_pair_of_options_follows_the_reference_in_float64(config: dict[str, Any]) -> None:
    assert deviation(config, list(SHAPES.values()), torch.float64, num_steps_of(config)) < 1e-9


EACH_ORDER: dict[str, Choices] = {
    "order": {order: {"shape": SHAPES[order]} for order in SHAPES},
    "grafting": {method: {"grafting": method} for method in ("none", "sgd", "adagrad", "rmsprop", "adam")},
    "condition": {
        "full_rank": {"precondition_frequency": 20, "start_preconditioning_step": 20, "epsilon": 1e-6},
        "damped": {"precondition_frequency": 5, "start_preconditioning_step": 5, "epsilon": 1e-5},
    },
}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in pairwise(EACH_ORDER)])
def test_shampoo_of_each_order_follows_the_reference_in_float32(case: dict[str, Any]) -> None:
    config = {name: value for name, value in case.items() if name != "shape"}
    assert deviation(settings(**config), [case["shape"]], torch.float32, num_steps=25) < 2e-5


@pytest.mark.parametrize("member", FLOAT32)
def test_each_member_follows_the_reference_in_float32(member: str) -> None:
    choices, tolerance = FLOAT32[member]
    # With a period of 7: the refresh at the start, and two more of every unit.
    assert deviation(settings(**choices), list(SHAPES.values()), torch.float32, num_steps=20) < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-5)])
@pytest.mark.parametrize("solver", BASIS_SOLVERS)
def test_soap_follows_it_from_the_first_gradient(solver: str, dtype: torch.dtype, tolerance: float) -> None:
    shapes = [SHAPES[order] for order in ("order1", "order3", "order4")]
    assert deviation(settings(preconditioner="soap", solver=solver), shapes, dtype) < tolerance


@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral", "none"])
def test_a_convolution_follows_the_reference(preconditioner: str) -> None:
    config = settings(preconditioner=preconditioner, momentum=0.9)
    if preconditioner != "none":
        config["max_preconditioner_dim"] = 16
    if preconditioner == "soap":
        config.update(SECOND_STEP)  # in the first one rounding counts, as the top of the file says
    # 20×6×3×3 is merged to 20×54 and cut into 10×13 and 10×14.
    assert deviation(config, [(20, 6, 3, 3), (6,), (4, 5)], torch.float64) < 1e-9


# Refreshed in every step from the factors alone, kl does not depend on the basis of a null space.
KL_OF_ANY_RANK: Choices = {"kl": {"precondition_frequency": 1, "solver": "eigh64", "epsilon": 1e-3}}


@pytest.mark.parametrize("choices", [{}, {"large_dim_method": "diagonal"}, {"large_dim_method": "one_sided"}])
@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral"])
def test_extreme_aspects_follow_the_reference(preconditioner: str, choices: dict[str, Any]) -> None:
    # Blocks 75×2, 70×2 and 2×90 have a full factor on the short side alone, 2×30 on both.
    shapes = [(1, 500), (150, 2), (7, 1, 11), (2, 180), (70, 2), (2, 30)]
    config = settings(
        preconditioner=preconditioner, max_preconditioner_dim=100, **choices, **KL_OF_ANY_RANK.get(preconditioner, {})
    )
    if preconditioner == "soap":
        # Such a block has its turn below, when its factor has full rank.
        shapes, config = shapes[:-1], {**config, **SECOND_STEP}
    assert deviation(config, shapes, torch.float64, num_steps=4) < 1e-9


def test_soap_of_extreme_aspects_follows_the_reference() -> None:
    # 30 gradients give the factors of 60 full rank; the smallest eigenvalues are 1e-4 of the largest.
    config = settings(preconditioner="soap", max_preconditioner_dim=64)
    config.update(start_preconditioning_step=31, precondition_frequency=2)
    assert deviation(config, [(2, 60), (60, 2)], torch.float64, num_steps=36) < 1e-9


@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl", "spectral", "none"])
def test_parameters_of_one_bucket_at_steps_of_their_own_follow_the_reference(preconditioner: str) -> None:
    config = settings(preconditioner=preconditioner, **SECOND_STEP if preconditioner == "soap" else {})
    # Each is in every, every second and every third step, from steps 1, 3 and 6.
    scales = [
        [1.0 if step >= late and step % every == 0 else None for late, every in ((0, 1), (2, 2), (5, 3))]
        for step in range(40)
    ]
    assert deviation(config, [(8, 16), (16, 8), (8, 24)], torch.float64, scales=scales) < 1e-9


@pytest.mark.slow
@given(
    shapes=st.lists(
        st.lists(st.sampled_from([0, 1, 2, 3, 5, 7, 11, 40]), max_size=4)
        .map(tuple)
        .filter(lambda shape: math.prod(shape) <= 600),
        min_size=1,
        max_size=3,
    ),
    preconditioner=st.sampled_from(["shampoo", "soap", "kl", "spectral", "none"]),
    max_dim=st.integers(2, 16),
    method=st.sampled_from(["blocking", "diagonal", "one_sided"]),
)
def test_any_shapes_follow_the_reference(
    shapes: list[tuple[int, ...]], preconditioner: str, max_dim: int, method: str
) -> None:
    config = settings(preconditioner=preconditioner)
    if preconditioner != "none":
        config.update(max_preconditioner_dim=max_dim, large_dim_method=method)
    if preconditioner == "soap":
        # After eight gradients every factor of at most 16 has full rank beside another side of at least 2.
        config.update(start_preconditioning_step=8, precondition_frequency=2)
    config.update(KL_OF_ANY_RANK.get(preconditioner, {}))
    # Two eigenvalues may lie close together in an example, hence no 1e-9.
    assert deviation(config, [*shapes, (3, 4)], torch.float64, num_steps=10) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("period", [1, 3])
@pytest.mark.parametrize("geometry", ["blocks", "long_diagonal", "one_sided"])
def test_kl_of_gradients_that_come_to_life_follows_the_reference(geometry: str, period: int) -> None:
    # Each tensor's blocks in turn. The basis of the first gradient, whose null space is rounding, is not left in use.
    config = settings(preconditioner="kl", epsilon=1e-3, solver="eigh64", betas=(0.9, 0.95), lr=1e-3)
    config.update({**GEOMETRY[geometry], "precondition_frequency": period})
    shapes = [SHAPES["order2"], SHAPES["order2"], SHAPES["order3"]]
    scales = [[[1e-20, 0.1, 1.0][min(2, (step + 4 * number) // 8)] for number in range(3)] for step in range(28)]
    assert deviation(config, shapes, torch.float64, scales=scales) < 1e-9


def test_a_bucket_larger_than_one_chunk_follows_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    # 35 and 3 blocks of 8×8, of which four are a chunk: most of its borders lie inside the first parameter.
    monkeypatch.setitem(shampoo.state.buckets.CHUNK_BYTES, "cpu", 1)
    config = settings(precondition_frequency=2, epsilon=1e-4)
    assert deviation(config, [(40, 56), (24, 8)], torch.float64, num_steps=5) < 1e-9
