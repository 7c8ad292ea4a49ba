"""Stochastic rounding to bfloat16: which numbers appear, and how often."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from shampoo.step.rounding import rounding_noise, stochastic_round_to_bfloat16_

LARGEST = torch.finfo(torch.bfloat16).max


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _noise(value: Tensor, seed: int = 0) -> Tensor:
    return rounding_noise(value.shape, _generator(seed))


def _rounded(value: Tensor, seed: int = 0) -> Tensor:
    target = torch.empty_like(value, dtype=torch.bfloat16)
    return stochastic_round_to_bfloat16_(target, value, _noise(value, seed)).float()


def _neighbours(value: Tensor) -> tuple[Tensor, Tensor]:
    """The largest bfloat16 number not above each finite value, and the smallest not below, as float32."""
    nearest = value.bfloat16()
    up, down = torch.tensor(math.inf).bfloat16(), torch.tensor(-math.inf).bfloat16()
    below = torch.where(nearest.float() > value, torch.nextafter(nearest, down), nearest)
    above = torch.where(nearest.float() < value, torch.nextafter(nearest, up), nearest)
    return below.float(), above.float()


def _numbers_of_all_sizes(num: int) -> Tensor:
    """Both signs, every exponent of float32, subnormals included."""
    magnitude = 2.0 ** (torch.rand(num, generator=_generator(1), dtype=torch.float64) * 276 - 149)
    sign = torch.randint(2, (num,), generator=_generator(2)) * 2 - 1
    return (magnitude * sign).clamp(-LARGEST, LARGEST).float()


def test_only_the_two_neighbours_appear() -> None:
    value = _numbers_of_all_sizes(100_000)
    rounded = _rounded(value)
    below, above = _neighbours(value)
    assert ((rounded == below) | (rounded == above)).all()
    # Both do, among so many.
    assert (rounded == below).any()
    assert (rounded == above).any()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [1.0, 1e-39, 3e38])
@pytest.mark.parametrize("share", [0.001, 0.25, 0.5, 0.9])
def test_the_mean_is_the_number(sign: int, size: float, share: float) -> None:
    below, above = _neighbours(torch.tensor([size * 1.0001]))
    value = (below + (above - below) * share).mul(sign).expand(400_000)
    exact = float((value[0].abs().double() - below.double()) / (above.double() - below.double()))
    drawn = (_rounded(value).abs() == above).double().mean()
    # Five standard deviations of the mean of independent draws.
    assert abs(float(drawn) - exact) < 5 * math.sqrt(exact * (1 - exact) / 400_000)


def test_every_noise_pattern_together_gives_the_number_exactly() -> None:
    noise = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    for number in (1 + 3 * 2.0**-9, -math.pi, 1.2345e-30):
        value = torch.full((1 << 16,), number)
        target = torch.empty(1 << 16, dtype=torch.bfloat16)
        stochastic_round_to_bfloat16_(target, value, noise)
        assert float(target.double().mean()) == float(value[0])


def test_many_small_updates_are_not_lost() -> None:
    # To nearest, a weight of 1 would never move by 1e-4: half the distance to its neighbours is larger.
    weight, generator = torch.ones(2000).bfloat16(), _generator()
    for _ in range(200):
        stochastic_round_to_bfloat16_(weight, weight.float() - 1e-4, rounding_noise(weight.shape, generator))
    # The variance of one rounding is below 1e-4 times the distance of the neighbours, 2⁻⁸ below 1.
    deviation = math.sqrt(200 * 1e-4 * 2**-8 / 2000)
    assert abs(float(weight.double().mean()) - 0.98) < 5 * deviation


def test_numbers_that_bfloat16_has_stay_as_they_are() -> None:
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.bfloat16)
    rounded = torch.empty_like(every)
    stochastic_round_to_bfloat16_(rounded, every.float(), _noise(every))
    assert torch.equal(rounded.isnan(), every.isnan())
    known = ~every.isnan()
    assert torch.equal(rounded.view(torch.int16)[known], every.view(torch.int16)[known])  # signs of zeros too


def test_no_noise_turns_nan_or_infinity_into_something_else() -> None:
    # NaN whose payload is in the bits cut off, or which the addition would carry into the sign.
    patterns = [0x7F800001, 0x7FFFFFFF, -0x7FFFFF, -1, 0x7F800000, -0x800000]
    bits = torch.tensor(patterns, dtype=torch.int64).to(torch.int32)
    value = bits.view(torch.float32)
    for pattern in (0, 1, 0x7FFF, -1):
        target = torch.zeros(6, dtype=torch.bfloat16)
        noise = torch.full((6,), pattern, dtype=torch.int16)
        stochastic_round_to_bfloat16_(target, value, noise)
        assert target[:4].isnan().all()
        assert target[4:].tolist() == [math.inf, -math.inf]


def test_finite_numbers_beyond_the_largest_bfloat16_stay_finite() -> None:
    value = torch.tensor([3.4e38, -3.4e38]).repeat(1000)
    assert (_rounded(value).abs() == LARGEST).all()


def test_the_generator_alone_decides() -> None:
    value = torch.randn(1001, generator=_generator(5))
    before = torch.get_rng_state()
    first, second, other = _rounded(value, 3), _rounded(value, 3), _rounded(value, 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    # The generator advances: what it gives next is other noise.
    generator = _generator(3)
    assert torch.equal(rounding_noise(value.shape, generator), _noise(value, 3))
    assert not torch.equal(rounding_noise(value.shape, generator), _noise(value, 3))


def test_of_wider_noise_the_low_16_bits_count() -> None:
    value = torch.randn(1000, generator=_generator(5))
    narrow = _noise(value)
    wide = narrow.to(torch.int32) + (torch.arange(1000, dtype=torch.int32) - 500) * (1 << 16)
    targets = [torch.empty(1000, dtype=torch.bfloat16) for _ in range(2)]
    for target, noise in zip(targets, (narrow, wide), strict=True):
        before = noise.clone()
        stochastic_round_to_bfloat16_(target, value, noise)
        assert torch.equal(noise, before)
    assert torch.equal(*targets)


def test_the_bits_of_the_noise_are_uniform_and_independent() -> None:
    noise = rounding_noise(torch.Size((1 << 18,)), _generator())
    bits = (noise.unsqueeze(1).to(torch.int32) >> torch.arange(16)) & 1
    centred = bits.double() * 2 - 1
    # 2¹⁸ draws: the standard deviation of each mean and correlation is 2⁻⁹. Six of them for the 136 there are here.
    assert centred.mean(0).abs().max() < 6 * 2**-9
    assert ((centred.T @ centred) / 2**18 - torch.eye(16)).abs().max() < 6 * 2**-9
    # Neighbours are halves of one draw.
    assert ((centred[:-1].T @ centred[1:]) / 2**18).abs().max() < 6 * 2**-9


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 3, 4)])
def test_shapes(shape: tuple[int, ...]) -> None:
    value = torch.randn(shape, generator=_generator())
    target = torch.empty(shape, dtype=torch.bfloat16)
    assert stochastic_round_to_bfloat16_(target, value, _noise(value)) is target
    below, above = _neighbours(value)
    assert ((target.float() == below) | (target.float() == above)).all()


def test_strided_tensors_are_written_and_the_value_is_left_alone() -> None:
    value = torch.randn(6, 4, generator=_generator()).T
    before = value.clone()
    target = torch.zeros(4, 12, dtype=torch.bfloat16)
    stochastic_round_to_bfloat16_(target[:, ::2], value, _noise(value))
    below, above = _neighbours(value)
    assert ((target[:, ::2].float() == below) | (target[:, ::2].float() == above)).all()
    assert (target[:, 1::2] == 0).all()
    assert torch.equal(value, before)


def test_what_does_not_fit_is_refused() -> None:
    target, value, noise = torch.zeros(3).bfloat16(), torch.zeros(3), torch.zeros(3, dtype=torch.int16)
    with pytest.raises(ValueError, match=r"got torch.float32, torch.float32, torch.int16"):
        stochastic_round_to_bfloat16_(target.float(), value, noise)
    with pytest.raises(ValueError, match=r"got torch.bfloat16, torch.float64, torch.int16"):
        stochastic_round_to_bfloat16_(target, value.double(), noise)
    with pytest.raises(ValueError, match=r"got torch.bfloat16, torch.float32, torch.float32"):
        stochastic_round_to_bfloat16_(target, value, value)
    with pytest.raises(ValueError, match=r"must have one shape, got \(3,\), \(2,\), \(2,\)"):
        stochastic_round_to_bfloat16_(target, value[:2], noise[:2])
