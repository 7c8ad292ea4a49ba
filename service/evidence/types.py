"""A job's recommendation and its evidence: plain values, stored as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from service.domain import Currency, Direction, Phase, Side, TrialState
from service.evidence.branches import Branches
from service.evidence.caveat_kinds import StoredCaveat
from service.evidence.finished_trial import WrittenEnding
from service.evidence.pareto_front import FrontPoint
from service.evidence.transfers import TransferResult
from trainers.stored_config import StoredConfig

EQUAL_WITHIN = 0.005
"""Relative difference of the objective below which search and baseline count as equal."""
MIN_TRIED = 8
"""Trials of a side, completed or pruned, below which its best is a matter of luck: with so many the best lies in the
best quarter of the space with probability 1 - 0.75^8 = 90% even where the search draws at random; with five 76%."""


class Verdict(StrEnum):
    """The recommended config against the baseline's best, by the objective; where its status is `provisional`, by two
    values of one seed each."""

    BETTER = "better"
    EQUAL = "equal"
    WORSE = "worse"
    UNDECIDED = "undecided"
    """Trained with several seeds, they differ by no more than chance explains, or one of them failed; or both missed
    the target whose time is the objective; or a side had fewer than `MIN_TRIED` trials."""
    NO_BASELINE = "no_baseline"


class EvidenceStatus(StrEnum):
    """The standing of a recommended config after it was trained again with new seeds. The verdict compares it with the
    baseline; this says whether the config held its value."""

    PROVISIONAL = "provisional"
    """It was not trained again, or with too few seeds: what is known of it is the luckiest value of a search."""
    CONFIRMED = "confirmed"
    """It completed with every new seed, and is none of `REFUTED`."""
    REFUTED = "refuted"
    """With new seeds it failed, or lost to the baseline, or fell behind the value that it was found with by more than
    the noise without beating the baseline all the same."""

    @property
    def rank(self) -> int:
        """Its place among all of them, from 0: the best confirmed one."""
        return (EvidenceStatus.CONFIRMED, EvidenceStatus.PROVISIONAL, EvidenceStatus.REFUTED).index(self)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of a training whose hyperparameters changed on the way."""

    number: int
    """The trial that trained it."""
    first_step: int
    """Counted from 1."""
    last_step: int
    """The last step of the stretch."""
    config: dict[str, Any]
    """The optimizer's arguments."""
    schedule: dict[str, Any]
    """The schedule of the learning rate in the stage."""
    gradient_clip_norm: float | None
    """Norm above which gradients are scaled down in the stage; null: they are not."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The trial whose config is recommended, or that stands for the baseline."""

    number: int
    """The number of the trial."""
    value: float
    """The objective of the trial; of a config that was confirmed, the mean over the new seeds."""
    config: dict[str, Any]
    """The whole config of the trial."""
    metrics: dict[str, float | None]
    """All metrics of its own last measurement."""
    num_steps: int
    """Steps it trained."""
    seconds: float
    """Seconds it trained, without evaluation and checkpoints."""
    lineage: list[Stage] = field(default_factory=list)
    """The lineage of a fork: the schedule of hyperparameters that led to its value, from the first step to the last.
    Empty: it was trained with its config from the start."""

    @property
    def optimizer(self) -> str:
        """The name of its optimizer."""
        return self.stored_config.optimizer

    @property
    def stored_config(self) -> StoredConfig:
        """`config` as readers have it; read anew each time."""
        return StoredConfig.of(self.config)


@dataclass(frozen=True, slots=True)
class BaselineBest:
    """The best config of one baseline; the best of all baselines is `Evidence.baseline`."""

    optimizer: str
    """The optimizer that the baseline tunes."""
    number: int | None
    """The trial that found its best config; None: none completed."""
    value: float | None
    """The config's mean over the choosing seeds, or without these the value that the trial reached."""
    num_new_seeds: int
    """New seeds that `value` is the mean of; 0: it is the value of one trial, with one seed."""
    num_tried: int
    """Trials of the baseline that completed or were pruned."""


@dataclass(frozen=True, slots=True)
class ReachedBaseline:
    """The point at which the recommended config was first as good as the baseline's best was in the end.

    For confirmed configs, steps and seconds are the means over the compared seeds, each seed's curve against the
    baseline's value with that seed.
    """

    step: float
    """The step at which the recommended config reached it."""
    seconds: float
    """The seconds of training until then."""
    baseline_step: float
    """Step at which the baseline's best first had that value itself."""
    baseline_seconds: float
    """The seconds of training that the baseline took for it."""
    step_ratio: float
    """`baseline_step / step`: above 1, the recommended config needs fewer steps. Of confirmed configs the geometric
    mean over the seeds."""
    seconds_ratio: float | None
    """`baseline_seconds / seconds`; None if no time was measured."""
    step_ratio_low: float | None = None
    """Lower end of its interval over the seeds, with `ConfirmationResult.confidence`; None: one seed."""
    step_ratio_high: float | None = None
    """The upper end of that interval."""
    seconds_ratio_low: float | None = None
    """The lower end of the interval of `seconds_ratio`."""
    seconds_ratio_high: float | None = None
    """The upper end of that interval."""
    examples_ratio: float | None = None
    """`step_ratio` in training examples: another one where the two differ in their batch sizes. None: not counted when
    it was made."""
    examples_ratio_low: float | None = None
    """The lower end of the interval of that ratio."""
    examples_ratio_high: float | None = None
    """The upper end of that interval."""
    is_first_measurement: bool = False
    """True if, with one of the seeds at least, `step` is the first one at which both were measured: it may have been as
    good earlier, so that the ratios are the least that they can be."""


@dataclass(frozen=True, slots=True)
class CurrencyComparison:
    """The recommended config against the baseline's best, where both had spent equally much of a currency.

    Numbers are None where a trial had measured nothing when the other one ended, or counted no such currency.
    """

    currency: Currency
    """Both have spent equally much of this."""
    verdict: Verdict
    """The difference in a word."""
    spent: float | None = None
    """The amount spent at the comparison; like the values the mean over the compared seeds."""
    value: float | None = None
    """The recommended config's."""
    baseline_value: float | None = None
    """The baseline's, with as much spent."""
    improvement: float | None = None
    """The improvement, as `Evidence.improvement`."""
    improvement_low: float | None = None
    """Lower end of its interval over the seeds, with `ConfirmationResult.confidence`; None: one seed, or there is no
    `improvement`."""
    improvement_high: float | None = None
    """The upper end of that interval."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One confirmation trial."""

    seed: int
    """The new seed."""
    number: int
    """The number of the trial."""
    ending: WrittenEnding
    """`completed`, `failed (diverged)`, ..."""
    value: float | None
    """The objective of the trial, if it completed."""

    @property
    def has_failed(self) -> bool:
        """True if it ended badly; one that was cancelled, or whose time was up, has only not been trained."""
        state = self.ending.state
        return state is TrialState.FAILED or (state is TrialState.COMPLETED and self.value is None)


@dataclass(frozen=True, slots=True)
class ConfirmedConfig:
    """A config that was trained again with new seeds."""

    number: int
    """The trial of the search or the baseline that found it."""
    found_value: float
    """The objective of the trial that found it: the best of many, and so most likely a lucky one."""
    results: list[SeedResult]
    """The results by seed."""
    mean: float | None
    """The mean over the compared seeds; None: it takes no part in the comparison."""
    standard_deviation: float | None
    """The standard deviation over the compared seeds, of the sample."""
    further_low: float | None = None
    """Lower end of the interval that holds its value with a further seed, with `ConfirmationResult.confidence`, as
    computed: it may lie below what the metric can be. None: it has no mean."""
    further_high: float | None = None
    """The upper end of that interval."""
    choosing_mean: float | None = None
    """The mean over the seeds that chose; None: there were none, or it did not complete them all."""
    probability_best: float | None = None
    """The probability that in truth, over all seeds, it is the best of its side's configs that were trained again;
    None: it failed, it is the only one, or too few seeds tell."""

    @property
    def has_failed(self) -> bool:
        """True if a trial of it failed: then it takes no part in the comparison."""
        return any(result.has_failed for result in self.results)

    def was_lucky(self, direction: Direction) -> bool:
        """True if the value that it was found with lies beyond what its new seeds say, and by more than is equal.

        "More than the noise" is beyond the better end of the interval of a further seed: it was no ordinary seed of
        this config. That interval is the config's own, as spreads differ between configs, and so it is wide for few
        seeds: 2.8 standard deviations to either side with six, 5.0 with three, 16 with two.
        """
        end = self.further_low if direction is Direction.MINIMIZE else self.further_high
        if self.mean is None or end is None or not direction.is_better(self.found_value, than=end):
            return False
        return abs(self.mean - self.found_value) > EQUAL_WITHIN * abs(self.found_value)


@dataclass(frozen=True, slots=True)
class ConfirmationResult:
    """The best configs of search and baselines, trained again with the same new seeds: some choose one config of the
    search and one of all baselines, the others compare the two."""

    seeds: list[int]
    """The compared seeds: those with which both chosen configs completed; fewer than two: none was compared."""
    candidates: list[ConfirmedConfig]
    """The candidates of the search, the chosen one first, those that failed last."""
    baseline: ConfirmedConfig | None
    """The chosen config of all baselines."""
    confidence: float
    """The confidence of the interval: how often it holds the true difference."""
    improvement_low: float | None
    """Lower end of the interval of `Evidence.improvement`; None: that is None, or there was no comparison."""
    improvement_high: float | None
    """The upper end of that interval."""
    choosing_seeds: list[int] = field(default_factory=list)
    """The seeds that chose, which do not compare."""
    baseline_others: list[ConfirmedConfig] = field(default_factory=list)
    """The baselines' other configs, in the order of `candidates`."""
    is_settled: bool = False
    """True if the comparison stopped early, as the seeds contradicted each other beyond remedy."""

    @property
    def improvement(self) -> tuple[float, float] | None:
        """Both ends of the interval, or None."""
        if self.improvement_low is None or self.improvement_high is None:
            return None
        return self.improvement_low, self.improvement_high

    @property
    def configs(self) -> list[ConfirmedConfig]:
        """The candidates and the baselines'."""
        return [*self.candidates, *([] if self.baseline is None else [self.baseline]), *self.baseline_others]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another config of the search that did no worse with new seeds than the recommended one, up to the noise."""

    number: int
    """The trial that found it."""
    mean: float
    """The mean over the seeds that chose."""
    recommended_mean: float
    """The recommended config's, over the same seeds."""
    speaks_for_it: list[str]
    """The advantages over the recommended config, for a person."""
    speaks_for_recommended: list[str]
    """The advantages of the recommended config over it, for a person."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The cost of a job beside what its recommended config saves."""

    device_hours: float
    """The device-hours of all trials of the job: training seconds times ranks."""
    saved_device_hours: float
    """The device-hours saved by one training to the value of the baseline's best, in place of the baseline's own."""
    saved_share: float
    """The saving as a share of the baseline's training time."""
    num_runs: int
    """Trainings of this length after which what was saved is as much as the job took."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The reasons for a recommended config, and how far to trust them."""

    metric: str
    """The metric of the first objective."""
    direction: Direction
    """The direction in which the metric is better."""
    best: Winner
    """The config that is recommended."""
    baseline: Winner | None
    """The best of all baselines; None: the job had none, or none of their trials completed."""
    verdict: Verdict
    """The comparison with the best of the baselines, in a word."""
    equal_within: float
    """Relative difference that `verdict` calls equal."""
    improvement: float | None
    """Difference to the baseline's value as a share of it, positive if better, both at equal spending of `currency`;
    None without one, if it is 0, or if a compared trial missed the target whose time is the objective."""
    reached_baseline: ReachedBaseline | None
    """The point at which the baseline's value was reached. None: there is no baseline, or its value was never
    reached."""
    num_trials: dict[str, dict[str, int]]
    """Number of trials by phase and state; a failed one counts as `failed (reason)`."""
    seeds: list[int]
    """Seeds with which the compared trials were trained."""
    caveats: list[StoredCaveat]
    """Limits of the evidence, for a person."""
    confirmation: ConfirmationResult | None = None
    """The confirmation with new seeds. None: no config was trained again with new seeds."""
    front: list[FrontPoint] = field(default_factory=list)
    """With several objectives: the completed trials of search and baseline that no other one betters in all of them,
    sorted by the first."""
    verdict_caveats: list[StoredCaveat] = field(default_factory=list)
    """The caveats of the verdict: that a compared config missed the target whose time is the objective, or did worse
    over the new seeds than when it was found, by more than the noise, or by so much that it matters."""
    status: EvidenceStatus = EvidenceStatus.PROVISIONAL
    """The status of the recommendation: whether it held with new seeds."""
    alternatives: list[Alternative] = field(default_factory=list)
    """Configs that confirmed alike."""
    search_interval: tuple[float, float] | None = None
    """The interval of `improvement` that covers, beside seeds, the luck of a search of this size; None: unknown."""
    currency: Currency = Currency.STEPS
    """The currency that the two had spent equally much of where the verdict compares them."""
    comparisons: list[CurrencyComparison] = field(default_factory=list)
    """The comparison in this currency and in two others, its own first. Empty: the two were not compared."""
    baselines: list[BaselineBest] = field(default_factory=list)
    """The best of each baseline, in the order in which they began. Empty: the job had none, or ended when there could
    be but one."""
    side_seconds: dict[Side, float] = field(default_factory=dict)
    """Seconds that the trials of search and of each baseline trained, without those of the confirmation. Empty: the job
    ended before these were kept."""
    transfers: list[TransferResult] = field(default_factory=list)
    """The results of configs that were moved from other tuned models, with which the search began."""
    branches: Branches | None = None
    """The branches of the search's space, by the first parameter whose choices open others; None: it has none."""

    break_even: BreakEven | None = None
    """The point from which the job will have paid off; None: its config saves no training time that new seeds
    tell, or the job ended before this was kept."""

    @property
    def num_tried(self) -> dict[str, int]:
        """Trials of search and baselines that completed or were pruned."""
        states = (TrialState.COMPLETED, TrialState.PRUNED)
        return {
            phase: sum(self.num_trials.get(phase, {}).get(state, 0) for state in states)
            for phase in (Phase.SEARCH, Phase.BASELINE)
        }

    @property
    def has_few_trials(self) -> bool:
        """True if a side had fewer than `MIN_TRIED` trials: then what it found is a matter of luck."""
        of_baselines = [best.num_tried for best in self.baselines] or [self.num_tried[Phase.BASELINE]]
        return min(self.num_tried[Phase.SEARCH], *of_baselines) < MIN_TRIED
