"""The steps at which the sampler `auto` pauses trials."""

from __future__ import annotations

PAUSE_SHARES = (0.15, 0.4)
"""Shares of the training at which a trial is paused. A first pause at 5% or 10% cost less and told too little."""

MIN_STEPS = 2
"""Least step of the first pause: a single step shows little."""


def pause_at(share: float, *, num_steps: int) -> int:
    """The step of a pause at a share of a training; it may lie beyond a very short one."""
    return max(MIN_STEPS, round(share * num_steps))


def first_pause(num_steps: int) -> int:
    """The step at which a trial is first paused."""
    return pause_at(PAUSE_SHARES[0], num_steps=num_steps)
