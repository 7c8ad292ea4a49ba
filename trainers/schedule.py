"""The learning-rate schedule: a pure function of the step, and its application to an optimizer."""

from __future__ import annotations

import math

from torch.optim import Optimizer

from trainers.config import DEFAULT_DECAY_FRACTION, ScheduleConfig


def factor(step: int, *, config: ScheduleConfig, num_steps: int) -> float:
    """The factor of the base learning rate in step `step` (the first is 0).

    The warm-up is the line from 0 just before the first step to 1 at the first step after it; the decay then falls to
    0 just after the horizon's last step. So no step within the horizon is spent at a learning rate of 0. At least one
    step of the horizon is left to the decay.
    """
    num_steps = max(1, round(config.horizon * num_steps))
    num_warmup_steps = min(round(config.warmup_fraction * num_steps), num_steps - 1)
    if step < num_warmup_steps:
        return (step + 1) / (num_warmup_steps + 1)
    progress = min((step - num_warmup_steps) / (num_steps - num_warmup_steps), 1.0)
    match config.decay:
        case "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            return 1 - progress
        case "constant":
            return 1.0
        case "wsd":
            fraction = DEFAULT_DECAY_FRACTION if config.decay_fraction is None else config.decay_fraction
            num_decay_steps = min(max(1, round(fraction * num_steps)), num_steps - num_warmup_steps)
            return min(max((num_steps - step) / num_decay_steps, 0.0), 1.0)


def set_learning_rates(optimizer: Optimizer, config: ScheduleConfig, *, step: int, num_steps: int) -> None:
    """Gives each parameter group its learning rate for step `step` (the first is 0).

    A group's base learning rate is kept beside it as `initial_lr`, as torch's own schedulers do. Those are not used:
    they count their own steps, and warn when float16's scaler leaves the optimizer's first step out.
    """
    for group in optimizer.param_groups:
        base = group.setdefault("initial_lr", group["lr"])
        group["lr"] = base * factor(step, config=config, num_steps=num_steps)
