"""The length of a job's trials as values: in steps, and in what all have in common where their steps differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces import Scalar
from service.domain import Side
from service.specification.trial_lengths.step_times import StepTimes


@dataclass(frozen=True, slots=True)
class TrialLength:
    """The length of a trial in what all trials of its job have in common, and in steps of its own."""

    whole: int
    """In common: training examples, or where trials take equally long the steps of the quickest."""
    num_steps: int
    per_step: float
    """The part of `whole` that one of these steps does."""

    @classmethod
    def of_examples(cls, num_examples: int, batch_size: int) -> TrialLength:
        """The whole number, at least 1, of batches that is nearest to so many examples."""
        return cls(num_examples, max(1, round(num_examples / batch_size)), batch_size)

    @classmethod
    def of_steps(cls, whole: int, num_steps: int) -> TrialLength:
        """So many steps, in the time of `whole` quicker ones."""
        return cls(whole, num_steps, whole / num_steps)

    def done_at(self, step: int) -> int:
        """The part of `whole` that is done after so many steps; after the last one all, whatever the rounding."""
        return self.whole if step >= self.num_steps else round(step * self.per_step)

    def step_at(self, done: int) -> int:
        """The first step after which so much is done."""
        return min(self.num_steps, math.ceil((done - 0.5) / self.per_step) if done else 0)


@dataclass(frozen=True, slots=True)
class Measurements:
    """The distance between a trial's measurements; without either, those go by epochs or seconds."""

    evaluate_every: int | None
    evaluate_every_examples: int | None


@dataclass(frozen=True, slots=True)
class JobLength:
    """The steps, the measurements and the batch of a job's trials, with the workload's defaults filled in."""

    num_steps: int
    """The steps of a trial; where they differ, of the longest."""
    batch_size: int
    """Batch size of a trial whose search space says none."""
    num_examples: int | None
    """Examples that every trial sees, where batch sizes differ; None: they do not."""
    evaluate_every: int | None
    """Steps between measurements, where they differ of the longest trial; None: others are counted."""
    evaluate_every_examples: int | None
    """Examples between measurements, likewise; None: others are counted."""
    smallest_batch: int
    """The batch of the trial with `num_steps`."""
    step_times: StepTimes | None = None
    """The time of a step of any config, where all trials take the time of `num_steps` of the quickest; None: they
    do not, or it is not measured yet."""

    @property
    def differs(self) -> bool:
        """True if trials may differ in their steps."""
        return self.num_examples is not None or self.step_times is not None

    @property
    def whole(self) -> int:
        """A whole trial, as a policy counts: in examples where trials have those in common, else in steps, where they
        differ those of the longest."""
        return self.num_examples or self.num_steps

    @property
    def measured_every(self) -> int | None:
        """The distance between measurements, in the unit of `whole`; None: those go by epochs or seconds, or are not of
        that unit."""
        return self.evaluate_every if self.num_examples is None else self.evaluate_every_examples

    def of_trial(self, side: Side, parameters: Mapping[str, Scalar], *, batch_size: int) -> TrialLength | None:
        """The length of a trial with these values and this batch size; None: it has `num_steps`, as all have."""
        if self.num_examples is not None:
            return TrialLength.of_examples(self.num_examples, batch_size)
        if self.step_times is None:
            return None
        share = self.step_times.least / self.step_times.of(side, parameters)
        return TrialLength.of_steps(self.num_steps, max(1, round(self.num_steps * share)))

    def of_stored(self, *, num_steps: int, batch_size: int) -> TrialLength | None:
        """The length of a trial that has been given these steps; None: it has `num_steps`, as all have."""
        if self.num_examples is not None:
            return TrialLength.of_examples(self.num_examples, batch_size)
        return None if self.step_times is None else TrialLength.of_steps(self.num_steps, num_steps)

    def measurements_of(self, trial: TrialLength | None, *, batch_size: int) -> Measurements:
        """The distance between a trial's measurements: all trials are measured at the same shares of their lengths."""
        if self.step_times is None or trial is None:
            return Measurements(self.evaluate_every, self.evaluate_every_examples)
        every = self.evaluate_every_examples
        if self.evaluate_every is not None:
            every = self.evaluate_every * batch_size
        if every is None:
            return Measurements(None, None)
        return Measurements(None, max(1, round(every * trial.num_steps / self.num_steps)))
