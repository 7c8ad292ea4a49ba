"""The training of one trial on one rank, as a generator of measurements."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

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
from trainers.divergence import check_metrics
from trainers.loop.metrics import evaluate, memory, over_ranks, remarks_of, speed
from trainers.loop.step import train_step
from trainers.memory.peak import reset_peak
from trainers.ranks.consumer import GivenUp
from trainers.ranks.context import RankContext, gather_over_ranks
from trainers.stopwatch import StepInterval, Stopwatch, extra_measurements, next_measurement
from trainers.trial import build_trial
from trainers.workload.batches import RankBatches, check_has_examples, train_batches
from trainers.workload.protocol import CountsEvents
from trainers.workload.validation_metrics import require_declared
from trainers.workloads.registry import describe, load


def train(config: TrialConfig, context: RankContext) -> Generator[Measurement, None, None]:
    """Trains one trial; each `next()` trains up to the next measurement and gives it.

    All ranks run it in step, inside a process group that they have joined before. It does not change the group, so many
    trials can follow each other in one group. To pause, do not call `next()`; to stop, close the generator on all ranks
    after the same measurement. Neither leaves a collective running. Measurements are equal on all ranks.

    With a checkpoint directory, a checkpoint is taken at each measurement (or every `config.checkpoint_every` steps)
    and written while training goes on: it is on disk before the next one is taken, before the last measurement is
    given, and before a generator that is closed returns. A trial found in the directory continues exactly from its
    newest checkpoint: on the CPU, at equal world size, bit for bit (`seconds` is a clock and keeps counting). At
    another world size the random generators (dropout) are seeded again. **The measurement of the checkpoint is given
    again first**, because the trial may have died before the consumer got it; a consumer that already has that step
    ignores it. A trial that was complete gives its last measurement again and ends.

    A trial that will be paused at `context.pause_step` is measured and checkpointed there, at any step, and measured
    before it if regular measurements would be too rare (`stopwatch.extra_measurements`). These extra measurements
    change nothing that comes after: neither weights nor batches nor random numbers. They do not change the regular
    measurements either: a regular one covers all steps since the previous regular one, and its `best_` and
    `mean_of_last_` metrics and target leave out the extra ones.

    With `context.consumer`, the next measurement can be requested before the last one has been processed. Steps that
    are trained ahead of the consumer leave no trace, because `consumer.wait()` is called before a checkpoint is taken.

    Random numbers are drawn from the global generators of torch, NumPy and Python, which this function seeds; between
    measurements it keeps its own copy of their state, so other trials may run in the process meanwhile.

    Raises:
        InvalidConfig: the config does not fit the workload, the optimizer or the world size.
        Diverged: on all ranks and before the optimizer's step, if in some step the loss of any rank is not finite or
            above `config.max_loss`; or if a metric is not finite or above `MAX_METRIC`. The group stays usable.
        BatchesEnded: the workload's batches ended, although they must be endless; the message names the workload and
            the step.
        CheckpointMismatch: the checkpoint directory belongs to another trial.
        CheckpointMissing: on all ranks; a trial that begins from another one's checkpoint does not find it.
        CheckpointNotWritten: on all ranks; e.g. the disk is full.
        GivenUp: on all ranks, in the same step or before a checkpoint, because the consumer has given up the trial. The
            group stays usable.
    """
    _check_shares(config, context)
    training = _Training(config, context)
    if (restored := training.restore()) is not None:
        yield restored
    training.begin()
    with training.ended_together():
        while training.step < config.num_steps:
            trained = training.train_interval()
            measurement = training.measure(trained)
            training.save(measurement, first_step=trained.interval.first_step)
            yield measurement
    training.hand_over()


@dataclass(frozen=True, slots=True)
class _Trained:
    """The steps up to a measurement, as this rank has seen them."""

    interval: StepInterval
    """All steps since the last regular measurement, with the time of the earlier steps."""
    seconds: float
    optimizer_seconds: float
    is_regular: bool
    """The measurement is a regular one, from the config: an extra one changes nothing that comes after."""
    randomness: dict[str, Any] | None
    """The random generators before an extra measurement."""


class _Training:
    """A trial in training, and its progress, which a checkpoint holds in addition to the trial's own state."""

    def __init__(self, config: TrialConfig, context: RankContext) -> None:
        """Builds the trial. Raises the errors about the config that `train` lists."""
        self._config, self._context = config, context
        self._workload = load(config.workload, config.workload_options, data_roots=context.data_roots)
        check_has_examples(self._workload)
        seed_random(config.seed)  # the same parameters on every rank
        reset_peak(context.device)
        self._trial = build_trial(config, self._workload, context)
        self._declared = describe(config.workload).metrics
        self._curve = Curve(
            summaries=config.summaries, target=config.target, directions=self._declared, num_steps=config.num_steps
        )
        self._checkpoints: Checkpoints | None = None
        if context.checkpoint_directory is not None:
            self._checkpoints = Checkpoints(
                context.checkpoint_directory, config=config, context=context, num_kept=config.keep_checkpoints
            )
        self.step, self._seconds = 0, 0.0
        self._interval: StepInterval | None = None
        """The steps since the last regular measurement; None: the last measurement is a regular one."""
        self._remarks: tuple[str, ...] = ()
        self._randomness: dict[str, Any] | None = None
        """The random generators after the last measurement."""

    def restore(self) -> Measurement | None:
        """Loads the newest checkpoint, and returns its measurement; None: there is none."""
        restored = None if self._checkpoints is None else self._checkpoints.load(self._trial.template())
        if restored is None:
            return None
        self._trial.load_state_dict(restored.state)
        self._curve.load_state_dict(restored.progress)
        self.step, self._seconds = restored.measurement.step, restored.measurement.seconds
        self._remarks = restored.measurement.remarks
        begun = restored.progress.get("interval")
        self._interval = None if begun is None else StepInterval.of_state(begun)
        self._randomness = restored.random_state
        return restored.measurement

    def begin(self) -> None:
        """Opens the batches, and seeds the random generators if no checkpoint had their state.

        Raises:
            CheckpointMissing: the trial begins from another one's checkpoint, which has not been found.
        """
        config, context = self._config, self._context
        if self.step < context.begins_at_step:
            raise CheckpointMissing(
                f"the trial begins from another one's checkpoint of step {context.begins_at_step}, and there is none "
                f"that can be read in {context.checkpoint_directory}"
            )
        if self._randomness is None:
            seed_random(_rank_seed(config.seed, rank=context.rank, step=self.step))
            self._randomness = random_state(context)
        batch_size = config.batch_size // config.accumulation_steps
        batches = train_batches(
            self._workload,
            batch_size=batch_size,
            seed=config.seed,
            rank=context.rank,
            world_size=context.world_size,
            start_step=self.step * config.accumulation_steps,
        )
        self._batches = RankBatches(batches, share=batch_size // context.world_size)
        num_examples = self._workload.num_train_examples
        self._following = partial(next_measurement, config=config, num_train_examples=num_examples)
        self._extras = extra_measurements(context.pause_step, self._following)

    @contextmanager
    def ended_together(self) -> Iterator[None]:
        """Ends the background work of the loop: readers of data always, writers of checkpoints if all ranks stop
        together."""
        try:
            yield
        except GeneratorExit:
            if self._checkpoints is not None:
                self._checkpoints.wait()
            raise
        except GivenUp:
            if self._checkpoints is not None:
                with suppress(CheckpointNotWritten):  # the one who gave up the trial may have removed its directory
                    self._checkpoints.wait()
            raise
        finally:
            self._batches.close()

    def train_interval(self) -> _Trained:
        """Trains up to the next measurement."""
        assert self._randomness is not None
        set_random_state(self._randomness, self._context)
        self._trial.parallel.model.train()
        interval = self._interval or StepInterval(self.step)
        loss_sum, time_is_up = interval.loss_sum, False
        regular_step = self._following(self.step)
        last_step = min((extra for extra in self._extras if self.step < extra < regular_step), default=regular_step)
        stopwatch = Stopwatch(self._context.device, before=interval.seconds)
        while self.step < last_step and not time_is_up:
            self.step += 1
            loss, time_is_up = train_step(
                self.step, self._trial, self._workload, self._batches, stopwatch, self._config, self._context
            )
            loss_sum += loss
        is_regular = self.step == regular_step or time_is_up
        seconds, optimizer_seconds = stopwatch.stop()
        randomness = None if is_regular else random_state(self._context)
        whole = StepInterval(interval.first_step, loss_sum, interval.seconds, interval.optimizer_seconds)
        return _Trained(whole, seconds, optimizer_seconds, is_regular, randomness)

    def measure(self, trained: _Trained) -> Measurement:
        """Measures the trial, the same on all ranks."""
        config, context, workload = self._config, self._context, self._workload
        diagnostics = self._trial.diagnostics()
        validation = evaluate(workload, self._trial, context)
        counted = workload.counts() if isinstance(workload, CountsEvents) else {}
        require_declared(self._declared, given=validation, counted=counted)
        own_remarks = [*self._batches.remarks, *remarks_of(workload, config)]
        (seconds, optimizer_seconds, has_more), validated, counts = over_ranks(
            (trained.seconds, trained.optimizer_seconds, len(set(own_remarks) - set(self._remarks))),
            validation,
            counted,
            context,
        )
        if has_more:
            gathered = gather_over_ranks(list(own_remarks), context)
            self._remarks = tuple(dict.fromkeys([*self._remarks, *(one for of_rank in gathered for one in of_rank)]))
        self._seconds += seconds
        whole = trained.interval.longer(seconds=seconds, optimizer_seconds=optimizer_seconds)
        num_steps = self.step - whole.first_step
        learned = {"train_loss": whole.loss_sum / num_steps, **validated}
        check_metrics(self.step, learned)
        metrics = {
            **learned,
            **speed(workload, config, num_steps=num_steps, seconds=whole.seconds),
            "optimizer_share": whole.optimizer_seconds / whole.seconds,
            **memory(self._trial, context),
            **counts,
            **self._trial.precision.metrics(),
            **{name: value for name, value in diagnostics.items() if math.isfinite(value)},
        }
        sum_up = self._curve.add if trained.is_regular else self._curve.look_at
        metrics.update(sum_up(step=self.step, seconds=self._seconds, metrics=metrics))
        epoch = self.step * config.batch_size / workload.num_train_examples
        self._randomness = trained.randomness or random_state(context)
        self._interval = None if trained.is_regular else whole
        return Measurement(step=self.step, epoch=epoch, seconds=self._seconds, metrics=metrics, remarks=self._remarks)

    def save(self, measurement: Measurement, *, first_step: int) -> None:
        """Takes the checkpoint of a measurement of the steps after `first_step`, if it comes with one.

        Raises:
            GivenUp: the consumer has given the trial up.
            CheckpointNotWritten: it, or the previous one, can't be written.
        """
        step, pause_step, consumer = self.step, self._context.pause_step, self._context.consumer
        if self._checkpoints is None:
            return
        if step != pause_step and not _is_checkpointed(first_step, step, self._config):
            return
        if consumer is not None and not consumer.wait():
            raise GivenUp
        self._checkpoints.save(
            self._trial.state_dict(),
            measurement=measurement,
            random_state=self._randomness,
            progress={
                **self._curve.state_dict(),
                "interval": None if self._interval is None else self._interval.state(),
            },
        )
        if step == self._config.num_steps or (pause_step is not None and step >= pause_step):
            self._checkpoints.wait()  # so it is on disk before the end, or the pause, is reported

    def hand_over(self) -> None:
        """Passes the trained model to the receiver that the context names."""
        if self._context.on_trained is not None:
            with self._trial.evaluated_weights():
                self._context.on_trained(self._trial.parallel.model)


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


def _rank_seed(seed: int, *, rank: int, step: int) -> int:
    """A separate seed for each rank, so that ranks do not drop the same units; none is the seed of the parameters."""
    return (seed + (rank + 1) * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03) % 2**63
