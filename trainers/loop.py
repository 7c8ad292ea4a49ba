"""The training loop: one trial on one rank, as a generator of measurements."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import torch
from torch import Tensor

from trainers.checkpoints import (
    CheckpointMissing,
    CheckpointNotWritten,
    Checkpoints,
    random_state,
    seed_random,
    set_random_state,
)
from trainers.config import InvalidConfig, Measurement, TrialConfig
from trainers.curve import Curve
from trainers.divergence import alarm, check_finite, raise_diverged
from trainers.memory.peak import peak_bytes, reset_peak, state_bytes
from trainers.ranks.consumer import GivenUp
from trainers.ranks.context import (
    RankContext,
    gather_over_ranks,
    max_over_ranks,
    start_sum_over_ranks,
    sum_over_ranks,
    synchronise_buffers,
)
from trainers.schedule import set_learning_rates
from trainers.stopwatch import StepInterval, Stopwatch, extra_measurements, next_measurement
from trainers.trial import RunningTrial, build_trial
from trainers.workload.batches import BatchesEnded, check_has_examples, train_batches, with_tensors
from trainers.workload.description import LOOP_METRICS, MAX_METRIC_NAME, is_metric_name
from trainers.workload.protocol import CountsEvents, HasRemarks, HasTokens, Workload
from trainers.workload.training_loss import training_loss
from trainers.workload.validation_metrics import metric_shares, require_declared
from trainers.workloads.registry import describe, load


def train(config: TrialConfig, context: RankContext) -> Generator[Measurement, None, None]:
    """Trains one trial; each `next()` trains up to the next measurement and gives it.

    All ranks run it in step, inside a process group that they have joined before and that it leaves as it is: many
    trials can follow each other in one group. Pausing is not calling `next()`; stopping is closing the generator, on
    all ranks after the same measurement. Both leave no collective under way. Measurements are equal on all ranks.

    With a checkpoint directory, a checkpoint is taken at each measurement (or every `config.checkpoint_every` steps)
    and written while training goes on: it is on disk before the next one is taken, before the last measurement is
    given, and before a generator that is closed returns. A trial found in the directory goes on exactly where its
    newest checkpoint was: on the CPU, at equal world size, bit for bit (`seconds` is a clock and goes on counting). At
    another world size the random generators (dropout) are seeded anew. **The measurement of the checkpoint is given
    again first**, because the trial may have died before anyone heard of it; a consumer that already has that step
    ignores it. A trial that was complete gives its last measurement again and ends.

    A trial that is going to be left at `context.pause_step` is measured and checkpointed there, wherever that lies, and
    measured before it where it would not be often enough (`stopwatch.extra_measurements`). This changes nothing that
    comes after: neither weights nor batches nor random numbers. Nor does it change the measurements at the steps that
    are measured anyhow: these are of all steps since the one before, and their `best_` and `mean_of_last_` metrics and
    target leave out those in between.

    With `context.consumer`, the next measurement can be asked for before the last one has been dealt with. What is
    trained ahead of the consumer leaves no trace: before a checkpoint is taken, `consumer.wait()`.

    Random numbers are drawn from the global generators of torch, NumPy and Python, which this function seeds; between
    measurements it keeps its own state of them, so other trials may run in the process meanwhile.

    Raises:
        InvalidConfig: the config does not fit the workload, the optimizer or the world size.
        Diverged: on all ranks and before the optimizer's step, if in some step the loss of any rank is not finite or
            above `config.max_loss`; or if a metric is not finite. The group stays usable.
        BatchesEnded: the workload's batches do, which must be endless; the message names it and the step.
        CheckpointMismatch: the checkpoint directory belongs to another trial.
        CheckpointMissing: on all ranks; a trial that begins from another one's checkpoint does not find it.
        CheckpointNotWritten: on all ranks; e.g. the disk is full.
        GivenUp: on all ranks, in the same step or before a checkpoint: the consumer has given the trial up. The group
            stays usable.
    """
    _check_shares(config, context)
    workload = load(config.workload, config.workload_options, data_roots=context.data_roots)
    check_has_examples(workload)
    seed_random(config.seed)  # the same parameters on every rank
    reset_peak(context.device)
    trial = build_trial(config, workload, context)
    directions = describe(config.workload).metrics
    curve = Curve(summaries=config.summaries, target=config.target, directions=directions, num_steps=config.num_steps)
    step, seconds = 0, 0.0
    interval: StepInterval | None = None
    remarks: tuple[str, ...] = ()
    randomness = None

    checkpoints = None
    if context.checkpoint_directory is not None:
        num_kept = config.keep_checkpoints
        checkpoints = Checkpoints(context.checkpoint_directory, config=config, context=context, num_kept=num_kept)
        restored = checkpoints.load(trial.template())
        if restored is not None:
            trial.load_state_dict(restored.state)
            curve.load_state_dict(restored.progress)
            step, seconds = restored.measurement.step, restored.measurement.seconds
            remarks = restored.measurement.remarks
            begun = restored.progress.get("interval")
            interval = None if begun is None else StepInterval.of_state(begun)
            randomness = restored.random_state
            yield restored.measurement
    if step < context.begins_at_step:
        raise CheckpointMissing(
            f"the trial begins from another one's checkpoint of step {context.begins_at_step}, and there is none that "
            f"can be read in {context.checkpoint_directory}"
        )
    if randomness is None:
        seed_random(_rank_seed(config.seed, rank=context.rank, step=step))
        randomness = random_state(context)

    batches = train_batches(
        workload,
        batch_size=config.batch_size // config.accumulation_steps,
        seed=config.seed,
        rank=context.rank,
        world_size=context.world_size,
        start_step=step * config.accumulation_steps,
    )
    following = partial(next_measurement, config=config, num_train_examples=workload.num_train_examples)
    extras = extra_measurements(context.pause_step, following)
    with _finished_together(batches, checkpoints):
        while step < config.num_steps:
            set_random_state(randomness, context)
            trial.parallel.model.train()
            interval = interval or StepInterval(step)
            loss_sum, time_is_up = interval.loss_sum, False
            regular_step = following(step)
            last_step = min((extra for extra in extras if step < extra < regular_step), default=regular_step)
            stopwatch = Stopwatch(context.device, before=interval.seconds)
            while step < last_step:
                step += 1
                loss, time_is_up = _train_step(step, trial, workload, batches, stopwatch, config, context)
                loss_sum += loss
                if time_is_up:
                    break
            is_regular = step == regular_step or time_is_up
            elapsed, optimizer_seconds = stopwatch.stop()
            before_evaluation = None if is_regular else random_state(context)

            diagnostics = trial.diagnostics()
            validation = _evaluate(workload, trial, context)
            counted = workload.counts() if isinstance(workload, CountsEvents) else {}
            require_declared(directions, given=validation, counted=counted)
            own_remarks = _remarks(workload)
            (elapsed, optimizer_seconds, has_more), validated, counts = _over_ranks(
                (elapsed, optimizer_seconds, len(set(own_remarks) - set(remarks))), validation, counted, context
            )
            if has_more:
                gathered = gather_over_ranks(list(own_remarks), context)
                remarks = tuple(dict.fromkeys([*remarks, *(remark for of_rank in gathered for remark in of_rank)]))
            seconds += elapsed
            whole = StepInterval(
                interval.first_step,
                loss_sum,
                interval.seconds + elapsed,
                interval.optimizer_seconds + optimizer_seconds,
            )
            learned = {"train_loss": loss_sum / (step - whole.first_step), **validated}
            check_finite(step, learned)
            metrics = {
                **learned,
                **_speed(workload, config, num_steps=step - whole.first_step, seconds=whole.seconds),
                "optimizer_share": whole.optimizer_seconds / whole.seconds,
                **_memory(trial, context),
                **counts,
                **trial.precision.metrics(),
                **{name: value for name, value in diagnostics.items() if math.isfinite(value)},
            }
            sum_up = curve.add if is_regular else curve.look_at
            metrics.update(sum_up(step=step, seconds=seconds, metrics=metrics))
            epoch = step * config.batch_size / workload.num_train_examples
            measurement = Measurement(step=step, epoch=epoch, seconds=seconds, metrics=metrics, remarks=remarks)
            randomness = before_evaluation or random_state(context)
            interval = None if is_regular else whole
            if checkpoints is not None and (
                step == context.pause_step or _is_checkpointed(whole.first_step, step, config)
            ):
                if context.consumer is not None and not context.consumer.wait():
                    raise GivenUp
                checkpoints.save(
                    trial.state_dict(),
                    measurement=measurement,
                    random_state=randomness,
                    progress={**curve.state_dict(), "interval": None if interval is None else interval.state()},
                )
                if step == config.num_steps or (context.pause_step is not None and step >= context.pause_step):
                    checkpoints.wait()  # whoever hears of the end, or of the pause, finds it on disk
            yield measurement
    if context.on_trained is not None:
        with trial.evaluated_weights():
            context.on_trained(trial.parallel.model)


@contextmanager
def _finished_together(batches: Iterator[object], checkpoints: Checkpoints | None) -> Iterator[None]:
    """Ends what works beside the loop: readers of data always, writers of checkpoints when all ranks stop together."""
    try:
        yield
    except GeneratorExit:
        if checkpoints is not None:
            checkpoints.wait()
        raise
    except GivenUp:
        if checkpoints is not None:
            with suppress(CheckpointNotWritten):  # whoever gave the trial up may have removed its directory
                checkpoints.wait()
        raise
    finally:
        if isinstance(batches, Generator):
            batches.close()


def _train_step(
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
            losses.append(loss.detach())
            if is_last:  # before the backward pass, so that the host learns of it while the device still computes
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
    except StopIteration:  # which would end the generator of measurements without a word of whose batches they are
        raise BatchesEnded(
            f"the batches of {config.workload} end before step {step} of {config.num_steps}: they must be endless, "
            "with the next epoch after each"
        ) from None


def _signals(
    losses: Sequence[Tensor], stopwatch: Stopwatch, config: TrialConfig, context: RankContext
) -> Tensor | list[float]:
    """Numbers that ranks tell each other in each step: the loss and an alarm.

    And, where one of them can be so: whether rank 0's clock says to measure, and whether the consumer has given up.
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


def _check_shares(config: TrialConfig, context: RankContext) -> None:
    shares = context.world_size * config.accumulation_steps
    if config.batch_size % shares != 0:
        parts = f"the world size {context.world_size}"
        if config.accumulation_steps > 1:
            parts += f" times accumulation_steps {config.accumulation_steps}"
        raise InvalidConfig("batch_size", f"must be divisible by {parts}, got {config.batch_size}")


def _is_checkpointed(previous: int, step: int, config: TrialConfig) -> bool:
    """True if the measurement at `step`, after the one at `previous`, comes with a checkpoint."""
    every = config.checkpoint_every
    return every is None or step // every > previous // every or step == config.num_steps


def _evaluate(workload: Workload, trial: RunningTrial, context: RankContext) -> Mapping[str, tuple[float, float]]:
    """This rank's share of the validation metrics.

    Raises:
        ValueError: the workload does not give such.
    """
    model = trial.parallel.model
    synchronise_buffers(model, context)
    model.eval()
    with (
        torch.no_grad(),
        trial.evaluated_weights(),
        trial.parallel.for_evaluation() as whole,
        trial.precision.autocast(),
    ):
        shares = workload.evaluate(whole, rank=context.rank, world_size=context.world_size, device=context.device)
    return metric_shares(shares)


def _over_ranks(
    numbers: tuple[float, float, float],
    shares: Mapping[str, tuple[float, float]],
    counts: Mapping[str, int],
    context: RankContext,
) -> tuple[list[float], dict[str, float], dict[str, float]]:
    """Means of the numbers, metrics and summed counts, by one collective.

    Raises:
        ValueError: a metric has a name that none can have, or no weight, or a count has the name of a metric.
    """
    if doubled := counts.keys() & {*shares, *LOOP_METRICS}:
        raise ValueError(f"counts must not have the names of metrics, got {', '.join(sorted(doubled))}")
    for name in (*shares, *counts):
        if not is_metric_name(name):
            raise ValueError(
                f"a metric must have a name of 1 to {MAX_METRIC_NAME} printable characters, got {name!r:.80}"
            )
    names, counted = sorted(shares), sorted(counts)
    sums = sum_over_ranks(
        [*numbers, *(number for name in names for number in shares[name]), *(float(counts[name]) for name in counted)],
        context,
    )
    means = [total / context.world_size for total in sums[: len(numbers)]]
    parts = iter(sums[len(numbers) :])
    metrics: dict[str, float] = {}
    for name in names:
        total, weight = next(parts), next(parts)
        if weight <= 0:
            raise ValueError(f"metric {name!r} must have a weight > 0 over all ranks, got {weight}")
        metrics[name] = total / weight
    return means, metrics, dict(zip(counted, parts, strict=True))


def _remarks(workload: Workload) -> Sequence[str]:
    found = workload.remarks() if isinstance(workload, HasRemarks) else ()
    if isinstance(found, str) or not all(isinstance(remark, str) for remark in found):
        raise ValueError(f"remarks must be a sequence of texts, got {found!r:.80}")
    return found


def _speed(workload: Workload, config: TrialConfig, *, num_steps: int, seconds: float) -> dict[str, float]:
    examples_per_second = num_steps * config.batch_size / seconds
    found = {"step_seconds": seconds / num_steps, "examples_per_second": examples_per_second}
    if isinstance(workload, HasTokens):
        found["tokens_per_second"] = examples_per_second * workload.tokens_per_example
    return found


def _memory(trial: RunningTrial, context: RankContext) -> dict[str, float]:
    """Bytes of the rank that needs most."""
    peak, state = max_over_ranks([peak_bytes(context.device), state_bytes(trial.optimizer)], context)
    return {"peak_memory_bytes": peak, "optimizer_state_bytes": state}


def _rank_seed(seed: int, *, rank: int, step: int) -> int:
    """A seed of its own for each rank, so that ranks do not drop the same units, and none the one of the parameters."""
    return (seed + (rank + 1) * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03) % 2**63


def _to_device(tensor: Tensor, device: str) -> Tensor:
    # From memory that may be paged out, the host would wait for the copy and all that the device does before.
    if device.startswith("cuda") and tensor.device.type == "cpu" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
