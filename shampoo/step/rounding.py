"""Stochastic rounding of float32 to bfloat16 and float16, which keeps the small updates of a parameter on average.

A float32 number lies between two bfloat16 numbers, at the fraction p of their distance, as its low 16 bits say. Adding
16 uniformly random bits to it carries into the upper half with probability p; cutting the lower half off then gives
the neighbour farther from zero with probability p and the nearer one otherwise, so the expectation is the number.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LARGEST = torch.finfo(torch.bfloat16).max


def rounding_noise(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Independent uniform 16-bit patterns, int16, of this shape, on the generator's device; advances the generator."""
    numel = shape.numel()
    # Four patterns from each draw: drawing is most of the work.
    drawn = torch.empty(-(-numel // 4), dtype=torch.int64, device=generator.device)
    drawn.random_(-(1 << 63), None, generator=generator)
    return drawn.view(torch.int16)[:numel].view(shape)


def stochastic_round_to_bfloat16_(target: Tensor, value: Tensor, noise: Tensor) -> Tensor:
    """Writes `value` rounded at random to one of its two neighbours in bfloat16; its expectation is `value`.

    Exact values stay as they are, signed zeros, infinities and NaN as well. Between bfloat16's largest number, 3.39e38,
    and float32's, the result is bfloat16's largest: a finite value does not become infinite.

    Args:
        target: bfloat16, written in place and returned.
        value: float32 of the same shape.
        noise: int16 or int32 of that shape, whose low 16 bits are used, as `rounding_noise` draws them.

    Raises:
        ValueError: other dtypes or shapes.
    """
    if target.dtype != torch.bfloat16 or value.dtype != torch.float32 or noise.dtype not in (torch.int16, torch.int32):
        raise ValueError(
            "needs a bfloat16 target, a float32 value and int16 or int32 noise, "
            f"got {target.dtype}, {value.dtype}, {noise.dtype}"
        )
    if not target.shape == value.shape == noise.shape:
        raise ValueError(
            "target, value and noise must have one shape, "
            f"got {tuple(target.shape)}, {tuple(value.shape)}, {tuple(noise.shape)}"
        )
    # The sign is a bit of its own, so adding to the integer moves negative numbers away from zero too.
    bits = noise.to(torch.int32, copy=True).bitwise_and_(0xFFFF).add_(value.view(torch.int32)).bitwise_and_(-0x10000)
    rounded = bits.view(torch.float32).clamp_(-_LARGEST, _LARGEST)
    # The addition turns some NaN into infinities or zeros, and the clamp infinities into finite numbers.
    return target.copy_(torch.where(value.isfinite(), rounded, value))


def stochastic_round_to_float16_(target: Tensor, value: Tensor, noise: Tensor) -> None:
    """Writes float32 `value` rounded at random to one of its two neighbours in float16; finite values stay finite.

    The expectation is `value`; for subnormal numbers, below 2^−14, to 2^−13 of their neighbours' distance, 2^−24.
    `noise` is as `stochastic_round_to_bfloat16_` takes it; its low 13 bits are used.
    """
    mantissa, _ = torch.frexp(value)
    is_normal = value.abs() >= 2.0**-14
    # In units of the neighbours' distance. Quotients of powers of two are exact everywhere, powers of 2 need not be.
    scaled = torch.where(is_normal, mantissa * 2.0**11, value * 2.0**24)
    distance = torch.where(is_normal, value / scaled, 2.0**-24)
    # A normal number has 13 bits more than float16 keeps: the sum is exact.
    share = (noise.to(torch.int32) & 0x1FFF).to(value.dtype) * 2.0**-13
    largest = torch.finfo(torch.float16).max
    rounded = scaled.add_(share).floor_().mul_(distance).clamp_(-largest, largest)
    target.copy_(torch.where(value.isfinite(), rounded, value))
