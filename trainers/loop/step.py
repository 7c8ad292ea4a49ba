"""One step of a trial: batches, losses and backward passes, signals between ranks, and the optimizer's step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from trainers.config import TrialConfig
from trainers.divergence import alarm, raise_diverged
from trainers.ranks.consumer import GivenUp
from trainers.ranks.context import RankContext, start_sum_over_ranks
from trainers.schedule import set_learning_rates
from trainers.stopwatch import Stopwatch
from trainers.trial import RunningTrial
from trainers.workload.batches import BatchesEnded, with_tensors
from trainers.workload.protocol import Workload
from trainers.workload.training_loss import training_loss


def train_step(
    step: int,
    trial: RunningTrial,
    workload: Workload,
    batches: Iterator[object],
    stopwatch: Stopwatch,
    config: TrialConfig,
    context: RankContext,
) -> tuple[float, bool]:
    """Trains step `step` (the first is 1): its loss over the global batch, and whether it is time to measure.

    Raises:
        Diverged: before the optimizer's step.
        GivenUp: likewise.
        BatchesEnded: there is no batch.
    """
    parallel, precision, optimizer = trial.parallel, trial.precision, trial.optimizer
    set_learning_rates(optimizer, config.schedule, step=step - 1, num_steps=config.num_steps)
    optimizer.zero_grad(set_to_none=True)
    losses: list[Tensor] = []
    for index in range(config.accumulation_steps):
        is_last = index + 1 == config.accumulation_steps
        with parallel.accumulating(is_last=is_last):
            batch = with_tensors(_next_batch(batches, step, config), partial(_to_device, device=context.device))
            with precision.autocast():
                loss = training_loss(workload, parallel.forward, batch)
            trial.require_frozen()
            losses.append(loss.detach())
            if is_last:  # before the backward pass, so that the host learns the result while the device still computes
                reduction = start_sum_over_ranks(_signals(losses, stopwatch, config, context), context)
            precision.backward(loss if config.accumulation_steps == 1 else loss / config.accumulation_steps)
    total, num_alarms, *told = reduction.wait()
    time_is_up, given_up = told or (0.0, 0.0)
    if given_up:
        raise GivenUp
    mean = total / context.world_size
    if num_alarms > 0:
        raise_diverged(step, mean, round(num_alarms), max_loss=config.max_loss, model=parallel.model, context=context)
    precision.unscale(optimizer)
    if config.gradient_clip_norm is not None:
        parallel.clip_gradients(config.gradient_clip_norm)
    with stopwatch.optimizer():
        precision.step(optimizer)
    return mean, time_is_up > 0


def _next_batch(batches: Iterator[object], step: int, config: TrialConfig) -> object:
    try:
        return next(batches)
    except StopIteration:  # which would end the generator of measurements without an error that names the workload
        raise BatchesEnded(
            f"the batches of {config.workload} end before step {step} of {config.num_steps}: they must be endless, "
            "with the next epoch after each"
        ) from None


def _signals(
    losses: Sequence[Tensor], stopwatch: Stopwatch, config: TrialConfig, context: RankContext
) -> Tensor | list[float]:
    """Numbers that ranks tell each other in each step: the loss and an alarm.

    If they are possible in this trial, there are two more: whether rank 0's clock says to measure, and whether the
    consumer has given up.
    """
    signals = alarm(losses, config.max_loss)
    seconds, consumer = config.evaluate_every_seconds, context.consumer
    if seconds is None and consumer is None:
        return signals
    time_is_up = seconds is not None and context.rank == 0 and stopwatch.elapsed >= seconds
    given_up = consumer is not None and consumer.has_given_up()
    if isinstance(signals, list):
        return [*signals, float(time_is_up), float(given_up)]
    # Filled on the device: no copy to wait for.
    return torch.cat((signals, signals.new_full((1,), time_is_up), signals.new_full((1,), given_up)))


def _to_device(tensor: Tensor, device: str) -> Tensor:
    # With pageable memory, the host would wait for the copy and for everything that the device does before it.
    if device.startswith("cuda") and tensor.device.type == "cpu" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
