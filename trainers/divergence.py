"""The guard against divergence: an alarm in the step where it happens, on all ranks, with the parameter to blame."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from shampoo.distributed.shards import local_part
from trainers.config import MAX_METRIC, Diverged, is_usable
from trainers.ranks.context import RankContext, gather_over_ranks


def alarm(losses: Sequence[Tensor], max_loss: float) -> Tensor | list[float]:
    """The mean of this rank's losses, and 1 if one is not finite or too large, else 0.

    From losses on the CPU two numbers; from others (2,) float64 on their device, which is not waited for.
    """
    if losses[0].device.type == "cpu":  # where a handful of tiny tensors takes longer than a small model's layer
        values = [loss.item() for loss in losses]
        is_legal = all(math.isfinite(value) and value <= max_loss for value in values)
        return [sum(values) / len(values), float(not is_legal)]
    stacked = torch.stack([loss.detach().double() for loss in losses])
    are_legal = stacked.isfinite() & (stacked <= max_loss)
    return torch.stack((stacked.mean(), 1 - are_legal.all().double()))


def raise_diverged(
    step: int, loss: float, num_alarms: int, *, max_loss: float, model: nn.Module, context: RankContext
) -> None:
    """Raises what the ranks, of which some gave an alarm, find together; all of them call it after the backward pass.

    Blamed is the first parameter, in the model's order, that holds a value which is not finite; or else the first whose
    gradient does; or else, if everything is finite, the one with the largest gradient.

    Raises:
        Diverged: always, with the same text on every rank.
    """
    found = [blame for blame in gather_over_ranks(_blame(model), context) if blame is not None]
    cause, parameter = "", None
    if found:
        _, _, parameter, what = min(found)
        cause = f"; {parameter} {what}"
    ranks = f"not finite or above {max_loss:g} on {num_alarms} of {context.world_size} ranks"
    raise Diverged(step, f"training loss {loss:g}, {ranks}{cause}", parameter)


def check_metrics(step: int, metrics: Mapping[str, float]) -> None:
    """Checks what was measured at a step.

    Raises:
        Diverged: a metric is not finite, or larger than `MAX_METRIC`.
    """
    for name, value in metrics.items():
        if not is_usable(value):
            told = f", beyond {MAX_METRIC:g}" if math.isfinite(value) else ""
            if math.isnan(value):
                told = " (if it is undefined at times, let evaluate give a number there)"
            raise Diverged(step, f"{name} is {value:g}{told}")


def _blame(model: nn.Module) -> tuple[int, float, str, str] | None:
    """The worst parameter: how grave (0 the worst), its place among equally grave ones, its name, and the trouble."""
    largest: tuple[int, float, str, str] | None = None
    first_gradient: tuple[int, float, str, str] | None = None
    for index, (name, parameter) in enumerate(model.named_parameters()):
        weights = local_part(parameter.detach())
        if not bool(weights.isfinite().all()):
            return 0, float(index), name, "holds values that are not finite"
        if parameter.grad is None:
            continue
        gradient = local_part(parameter.grad)
        if not bool(gradient.isfinite().all()):
            first_gradient = first_gradient or (1, float(index), name, "has a gradient that is not finite")
            continue
        norm = float(gradient.norm())
        if largest is None or -norm < largest[1]:
            largest = 2, -norm, name, f"has the largest gradient, of norm {norm:.3g}"
    return first_gradient or largest
