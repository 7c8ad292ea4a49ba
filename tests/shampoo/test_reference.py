"""The specification itself: properties of the textbook implementation that its own formulas do not state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.shampoo.reference import members as reference_members
from tests.support.shampoo.reference.shampoo import ReferenceShampoo, resolved
from tests.support.shampoo.settings import SHAPES, gradients_like, parameters, settings, train

NEVER = 10**6


def _weights(config: dict[str, Any], shapes: Sequence[tuple[int, ...]], num_steps: int) -> list[Tensor]:
    params = parameters(shapes)
    reference = ReferenceShampoo(params, config)
    for step in range(num_steps):
        reference.step(gradients_like(params, step=step))
        for param, weight in zip(params, reference.weights, strict=True):
            param.data.copy_(weight)
    return reference.weights


@pytest.mark.parametrize("member", ["shampoo", "soap", "none"])
def test_before_its_start_it_is_adamw(member: str) -> None:
    config = settings(preconditioner=member, weight_decay=0.1)
    if member != "none":
        config["start_preconditioning_step"] = NEVER
    expected = parameters(list(SHAPES.values()))
    train(torch.optim.AdamW(expected, lr=0.01, weight_decay=0.1, foreach=False), expected, range(30))
    for weight, param in zip(_weights(config, list(SHAPES.values()), 30), expected, strict=True):
        torch.testing.assert_close(weight, param.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("preconditioner", ["shampoo", "soap", "kl"])
@pytest.mark.parametrize("solver", ["eigh64", "qr"])
def test_signs_and_order_of_eigenvectors_do_not_matter(
    preconditioner: str, solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(preconditioner=preconditioner, solver=solver, precondition_frequency=2)
    expected = _weights(config, list(SHAPES.values()), 20)
    generator = torch.Generator().manual_seed(0)
    original = reference_members.next_basis

    def shuffled(A: Tensor, Q: Tensor, **how: Any) -> Tensor:
        Q = original(A, Q, **how)
        signs = torch.randint(0, 2, (len(Q),), generator=generator, dtype=Q.dtype) * 2 - 1
        return (Q * signs)[:, torch.randperm(len(Q), generator=generator)]

    monkeypatch.setattr(reference_members, "next_basis", shuffled)
    for weight, other in zip(_weights(config, list(SHAPES.values()), 20), expected, strict=True):
        torch.testing.assert_close(weight, other, rtol=1e-9, atol=1e-9)


def test_steps_of_subspace_iteration_reach_the_eigenbasis() -> None:
    X = torch.randn(6, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A = torch.diag(torch.logspace(-2, 2, 6, dtype=torch.float64).sqrt()) @ X
    A = A @ A.T
    Q = torch.eye(6, dtype=torch.float64)
    shares = []
    for _ in range(15):
        Q = reference_members.next_basis(A, Q, first=False, solver="qr")
        B = Q.T @ A @ Q
        shares.append((B - torch.diag(torch.diag(B))).norm() / B.norm())
    assert shares[0] > 1e-3
    assert shares[-1] < 1e-9


@pytest.mark.slow
def test_kl_factors_approach_the_covariance_of_a_kronecker_stream() -> None:
    # g = vec(A^½ Z B^½) has covariance A ⊗ B. Averaged over about 1,000 gradients each factor knows its
    # entries to about (1,000·4)^(−½), 2 %, and its norm to twice that.
    generator = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(4, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    A, B = X @ X.T, Y @ Y.T
    half_A, half_B = torch.linalg.cholesky(A), torch.linalg.cholesky(B)
    config = settings(preconditioner="kl", betas=(0.0, 0.998), precondition_frequency=50)
    weight = torch.zeros(4, 4, dtype=torch.float64)
    reference = ReferenceShampoo([weight], config)
    for _ in range(2500):
        reference.step([half_A @ torch.randn(4, 4, generator=generator, dtype=torch.float64) @ half_B.T])
    (block,) = reference.parameters[0].blocks
    assert isinstance(block, reference_members.KlBlock)
    expected = torch.kron(A, B)
    assert (torch.kron(*block.S) - expected).norm() / expected.norm() < 0.1
    # And the averaged eigenvalues go with the factor's basis.
    for S, Q, values in zip(block.S, block.Q, block.values, strict=True):
        torch.testing.assert_close(Q @ torch.diag(values) @ Q.T, S, rtol=0, atol=0.1 * S.norm().item())


@pytest.mark.parametrize("seed", range(3))
def test_factors_to_the_power_of_a_half_are_the_nearer_to_the_covariance(seed: int) -> None:
    # "A New Perspective on Shampoo's Preconditioner" (arXiv 2406.17748): the root of the covariance of the gradient is
    # nearer to L^½ ⊗ R^½ (exponent_override=0.5) than to Shampoo's L^¼ ⊗ R^¼; in squares, L ⊗ R than L^½ ⊗ R^½. And
    # L ⊗ R is one step of the power iteration that ends at the best Kronecker product.
    generator = torch.Generator().manual_seed(seed)
    mixers = [torch.randn(3, d, d, generator=generator, dtype=torch.float64).matrix_exp() for d in (5, 4)]
    weight = torch.zeros(5, 4, dtype=torch.float64)
    reference = ReferenceShampoo([weight], settings(betas=(0.0, 1.0), grafting="none"))
    gradients = []
    for _ in range(400):
        Z = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)
        # A sum of three matrix normals: the covariance is no Kronecker product.
        gradients.append((mixers[0] @ Z @ mixers[1]).sum(dim=0))
        reference.step([gradients[-1]])
    (block,) = reference.parameters[0].blocks
    assert isinstance(block, reference_members.ShampooBlock)
    L, R = block.A
    stacked = torch.stack(gradients).flatten(start_dim=1)
    covariance = stacked.T @ stacked

    def cosine(left: Tensor, right: Tensor) -> float:
        return torch.nn.functional.cosine_similarity(torch.kron(left, right).flatten(), covariance.flatten(), 0).item()

    def root(A: Tensor) -> Tensor:
        values, Q = torch.linalg.eigh(A)
        return torch.mm(Q * values.clamp(min=0).sqrt(), Q.T)

    # The best one in Frobenius norm is the leading singular pair of the covariance rearranged as (5·5, 4·4).
    rearranged = covariance.reshape(5, 4, 5, 4).permute(0, 2, 1, 3).reshape(25, 16)
    U, _, Vh = torch.linalg.svd(rearranged)
    best = abs(cosine(U[:, 0].reshape(5, 5), Vh[0].reshape(4, 4)))
    assert cosine(root(L), root(R)) < cosine(L, R) <= best + 1e-12
    assert cosine(L, R) > 0.95 * best


def test_kl_starts_at_the_scale_of_the_gradient() -> None:
    # The first square gradient U Σ Vᵀ: S_1 = U Σ² Uᵀ/d and S_2 = GᵀS_1⁻¹G/d = I, so the step is √d U Vᵀ.
    (gradient,) = gradients_like(parameters([(8, 8)]), step=0)
    config = settings(preconditioner="kl", betas=(0.0, 0.9), epsilon=1e-14, lr=1.0)
    reference = ReferenceShampoo([torch.zeros(8, 8, dtype=torch.float64)], config)
    reference.step([gradient])
    U, _, Vh = torch.linalg.svd(gradient)
    torch.testing.assert_close(-reference.weights[0], 8**0.5 * U @ Vh, rtol=0, atol=1e-8)


def test_soap_keeps_the_sum_of_its_second_moment_when_the_basis_turns() -> None:
    config = settings(preconditioner="soap", betas=(0.0, 0.999), precondition_frequency=4, stagger_refresh=False)
    config["start_preconditioning_step"] = 1
    params = parameters([(6, 6)])
    reference = ReferenceShampoo(params, config)
    sums = []
    bases = []
    for step in range(5):
        (gradient,) = gradients_like(params, step=step)
        reference.step([gradient])
        (block,) = reference.parameters[0].blocks
        assert isinstance(block, reference_members.SoapBlock)
        sums.append((block.V.sum().item(), gradient.square().sum().item()))
        bases.append(block.Q[0])
    # From the basis of the first step to that of the fifth.
    assert torch.equal(bases[3], bases[0])
    assert not torch.allclose(bases[4], bases[3], atol=0.1)
    (before, _), (after, added) = sums[-2:]
    assert after == pytest.approx(0.999 * before + 0.001 * added, rel=1e-12)


def test_all_units_are_refreshed_at_the_start_and_then_by_turns() -> None:
    config = settings(max_preconditioner_dim=4, precondition_frequency=8, start_preconditioning_step=3)
    reference = ReferenceShampoo([torch.zeros(8, 8, dtype=torch.float64)], config)
    blocks = reference.parameters[0].blocks
    due = [[block.is_due(unit, t) for block in blocks for unit in block.units] for t in range(1, 20)]
    assert not any(map(any, due[:2]))
    assert all(due[2])
    # 8 units in a period of 8: after the start two in every other step, in storage order.
    for t in range(4, 20):
        assert due[t - 1] == [(t - 3) % 8 == u // 2 * 2 for u in range(8)]
    # By default the start is the first step with statistics, for soap the one after.
    assert resolved(settings(statistics_frequency=3))["start_preconditioning_step"] == 3
    assert resolved(settings(preconditioner="soap"))["start_preconditioning_step"] == 2


def test_newton_schulz_keeps_the_singular_vectors_and_brings_the_values_near_one() -> None:
    for shape in [(12, 5), (5, 12), (7, 7)]:
        X = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        U, values, Vh = torch.linalg.svd(X, full_matrices=False)
        polar = U.T @ reference_members.newton_schulz(X) @ Vh.T
        # Jordan's coefficients reach (0.68, 1.13) from singular values over 0.005 of the norm.
        assert (values / values.norm()).min() > 0.005
        assert torch.diag(polar).min() > 0.65
        assert torch.diag(polar).max() < 1.2
        assert (polar - torch.diag(torch.diag(polar))).abs().max() < 1e-12


def test_a_period_shares_out_the_refreshes() -> None:
    # 12 equal blocks with two equal units each: of 24 units in a period of 8, not 3 at each step but 4 at six of them.
    config = settings(preconditioner="shampoo", max_preconditioner_dim=4, precondition_frequency=8)
    reference = ReferenceShampoo([torch.zeros(12, 16, dtype=torch.float64)], config)
    phases = [unit.phase for block in reference.parameters[0].blocks for unit in block.units]
    assert phases == [phase for phase in (0, 1, 2, 4, 5, 6) for _ in range(4)]
    # Diagonal factors cost nothing: they are refreshed beside the full ones that they lie between.
    config = settings(max_preconditioner_dim=4, large_dim_method="diagonal", precondition_frequency=2)
    shapes = [(4, 9), (4, 9), (9, 4), (9, 4), (9, 9)]
    reference = ReferenceShampoo([torch.zeros(shape) for shape in shapes], config)
    phases = [unit.phase for p in reference.parameters for unit in p.blocks[0].units]
    assert phases == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]


def test_equal_blocks_lie_together_whatever_parameter_they_belong_to() -> None:
    config = settings(max_preconditioner_dim=4, precondition_frequency=4)
    # Blocks 4×4, 4×4 | 3×4 | 4×4: those of the last parameter come before the second's.
    reference = ReferenceShampoo([torch.zeros(4, 8), torch.zeros(3, 4), torch.zeros(4, 4)], config)
    phases = [[unit.phase for block in p.blocks for unit in block.units] for p in reference.parameters]
    assert phases == [[0, 0, 1, 1], [3, 3], [2, 2]]
