"""The training loop: one trial on one rank, as a generator of measurements."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from trainers import checkpoint as checkpoints
from trainers.checkpoint import Checkpoint
from trainers.config import Diverged, InvalidConfig, Measurement, TrialConfig
from trainers.distributed import (
    RankContext,
    gather_over_ranks,
    replicate,
    start_sum_over_ranks,
    sum_over_ranks,
    synchronise_buffers,
)
from trainers.optimizers import build_optimizer, trainable_parameters
from trainers.schedule import build_schedule
from trainers.workload import Workload, load


def train(config: TrialConfig, context: RankContext) -> Iterator[Measurement]:
    """Trains one trial; each `next()` trains up to the next measurement and gives it.

    All ranks run it in step, inside a process group that they have joined before and that it leaves as it is: many
    trials can follow each other in one group. Pausing is not calling `next()`; stopping is closing the generator, on
    all ranks after the same measurement. Both leave no collective under way. Measurements are equal on all ranks.

    With a checkpoint directory, a checkpoint is written after each measurement (or every `config.checkpoint_every`
    steps) and before that measurement is given, and a trial found there goes on exactly where it was: on the CPU, at
    equal world size, bit for bit (`seconds` is a clock and goes on counting). At another world size the random
    generators (dropout) are seeded anew. **The measurement of the checkpoint is given again first**, because the trial
    may have died between writing it and anyone's hearing of it; a consumer that already has that step ignores it. A
    trial that was complete gives its last measurement again and ends.

    Random numbers are drawn from torch's global generators, which this function seeds; between measurements it keeps
    its own state of them, so other trials may run in the process meanwhile.

    Raises:
        InvalidConfig: the config does not fit the workload, the optimizer or the world size.
        Diverged: on all ranks and before the optimizer's step, if in some step the loss of any rank is not finite or
            above `config.max_loss`; or if a metric is not finite. The group stays usable.
        CheckpointMismatch: the checkpoint directory belongs to another trial.
        CheckpointNotWritten: on all ranks; e.g. the disk is full.
    """
    if config.batch_size % context.world_size != 0:
        raise InvalidConfig(
            "batch_size", f"must be divisible by the world size {context.world_size}, got {config.batch_size}"
        )
    workload = load(config.workload, config.workload_options)
    torch.manual_seed(config.seed)  # the same parameters on every rank
    model = workload.build_model().to(context.device)
    parameters = trainable_parameters(model)
    optimizer = build_optimizer(config.optimizer, parameters)
    schedule = build_schedule(optimizer, config.schedule, num_steps=config.num_steps)
    step, seconds = 0, 0.0

    restored = None
    if context.checkpoint_directory is not None:
        restored = checkpoints.load(context.checkpoint_directory, config=config, context=context)
    if restored is not None:
        model.load_state_dict(restored.model)
        optimizer.load_state_dict(restored.optimizer)
        schedule.load_state_dict(restored.schedule)
        step, seconds = restored.measurement.step, restored.measurement.seconds
    if restored is not None and len(restored.random_states) == context.world_size:
        random_state = restored.random_states[context.rank]
    else:
        torch.manual_seed(_rank_seed(config.seed, rank=context.rank, step=step))
        random_state = _random_state(context)
    if restored is not None:
        yield restored.measurement

    replica = replicate(model, context)
    batches = workload.train_batches(
        batch_size=config.batch_size,
        seed=config.seed,
        rank=context.rank,
        world_size=context.world_size,
        start_step=step,
    )
    while step < config.num_steps:
        _set_random_state(random_state, context)
        model.train()
        started = time.perf_counter()
        loss_sum = 0.0
        first_step = step
        while step < _next_measurement(first_step, config):
            step += 1
            loss = workload.loss(replica, _to_device(next(batches), context.device))
            reduction = start_sum_over_ranks(_loss_and_alarm(loss, config.max_loss), context)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            loss_sum += _mean_loss(step, reduction.wait(), config.max_loss, context.world_size)
            if config.gradient_clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, config.gradient_clip_norm)
            optimizer.step()
            schedule.step()
        if context.device.startswith("cuda"):
            torch.cuda.synchronize(context.device)
        elapsed = time.perf_counter() - started

        validation = _evaluate(workload, model, context)
        seconds += sum_over_ranks([elapsed], context)[0] / context.world_size
        measurement = Measurement(
            step=step,
            epoch=step * config.batch_size / workload.num_train_examples,
            seconds=seconds,
            metrics={"train_loss": loss_sum / (step - first_step), **validation},
        )
        _check_finite(measurement)
        random_state = _random_state(context)
        if context.checkpoint_directory is not None and _is_checkpointed(step, config):
            checkpoint = _checkpoint(measurement, model, optimizer, schedule, random_state, context)
            checkpoints.save(context.checkpoint_directory, checkpoint, config=config, context=context)
        yield measurement


def _next_measurement(step: int, config: TrialConfig) -> int:
    """The first step after `step` with a measurement."""
    assert config.evaluate_every is not None
    return min(step - step % config.evaluate_every + config.evaluate_every, config.num_steps)


def _is_checkpointed(step: int, config: TrialConfig) -> bool:
    every = config.checkpoint_every or config.evaluate_every
    assert every is not None
    return step % every == 0 or step == config.num_steps


def _loss_and_alarm(loss: Tensor, max_loss: float) -> Tensor:
    """The loss, and 1 if it is not finite or too large, else 0: (2,) float64."""
    value = loss.detach().double()
    alarm = ~(value.isfinite() & (value <= max_loss))
    return torch.stack((value, alarm.double()))


def _mean_loss(step: int, sums: list[float], max_loss: float, world_size: int) -> float:
    """The loss over the global batch, from the sums over ranks of `_loss_and_alarm`."""
    loss, num_alarms = sums[0] / world_size, round(sums[1])
    if num_alarms > 0:
        ranks = f"not finite or above {max_loss:g} on {num_alarms} of {world_size} ranks"
        raise Diverged(step, f"training loss {loss:g}, {ranks}")
    return loss


def _check_finite(measurement: Measurement) -> None:
    for name, value in measurement.metrics.items():
        if not math.isfinite(value):
            raise Diverged(measurement.step, f"{name} is {value}")


def _evaluate(workload: Workload, model: nn.Module, context: RankContext) -> dict[str, float]:
    """The validation metrics over all ranks."""
    synchronise_buffers(model, context)
    model.eval()
    with torch.no_grad():
        shares = workload.evaluate(model, rank=context.rank, world_size=context.world_size, device=context.device)
    names = sorted(shares)
    sums = sum_over_ranks([number for name in names for number in shares[name]], context)
    for name, weight in zip(names, sums[1::2], strict=True):
        if weight <= 0:
            raise ValueError(f"metric {name!r} must have a weight > 0 over all ranks, got {weight}")
    return {name: total / weight for name, total, weight in zip(names, sums[::2], sums[1::2], strict=True)}


def _checkpoint(
    measurement: Measurement,
    model: nn.Module,
    optimizer: Optimizer,
    schedule: LambdaLR,
    random_state: dict[str, Tensor],
    context: RankContext,
) -> Checkpoint:
    return Checkpoint(
        measurement=measurement,
        model=model.state_dict(),
        optimizer=optimizer.state_dict(),
        schedule=schedule.state_dict(),
        random_states=gather_over_ranks(random_state, context),
    )


def _rank_seed(seed: int, *, rank: int, step: int) -> int:
    """A seed of its own for each rank, so that ranks do not drop the same units, and none the one of the parameters."""
    return (seed + (rank + 1) * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03) % 2**63


def _random_state(context: RankContext) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if context.device.startswith("cuda"):
        state["cuda"] = torch.cuda.get_rng_state(context.device)
    return state


def _set_random_state(state: dict[str, Tensor], context: RankContext) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], context.device)


def _to_device(batch: object, device: str) -> object:
    """The batch with every tensor in it on the device."""
    match batch:
        case Tensor():
            return batch.to(device, non_blocking=True)
        case tuple() if hasattr(batch, "_make"):  # a named tuple
            return batch._make(_to_device(part, device) for part in batch)
        case tuple():
            return tuple(_to_device(part, device) for part in batch)
        case list():
            return [_to_device(part, device) for part in batch]
        case dict():
            return {key: _to_device(part, device) for key, part in batch.items()}
        case _:
            return batch
