"""A job's recommendation and its evidence: plain values, stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from service.domain import Direction, FailureReason, Phase, TrialState
from service.evidence.parameter_groups import OwnSettings
from service.evidence.pareto_front import FrontPoint

EQUAL_WITHIN = 0.005
"""Relative difference of the objective below which search and baseline count as equal."""


class Verdict(StrEnum):
    """The recommended config against the baseline's best, by the objective."""

    BETTER = "better"
    EQUAL = "equal"
    WORSE = "worse"
    UNDECIDED = "undecided"
    """Trained with several seeds, they differ by no more than chance explains, or one of them failed."""
    NO_BASELINE = "no_baseline"


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial as it stands when its job ends."""

    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None
    config: Mapping[str, Any]
    """A `trainers.config.TrialConfig` as JSON."""
    value: float | None
    """Objective at the last measurement."""
    curve: Sequence[tuple[int, float, Mapping[str, float | None]]]
    """Step, training seconds and metrics of each measurement, by step; None where a metric was not finite."""
    confirms: int | None = None
    """The number of the trial whose config this one repeats with another seed."""
    forked_from: int | None = None
    """The number of the trial from whose checkpoint this one began; None: it began from nothing."""
    forked_at_step: int | None = None
    """That checkpoint's step."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """{parameter name: sampled value}"""

    @property
    def ending(self) -> str:
        """Its state, and in brackets why it failed."""
        return f"{self.state.value} ({self.reason.value})" if self.reason else self.state.value


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of a training whose hyperparameters changed on the way."""

    number: int
    """The trial that trained it."""
    first_step: int
    """Counted from 1."""
    last_step: int
    config: dict[str, Any]
    """The optimizer's arguments."""
    schedule: dict[str, Any]
    gradient_clip_norm: float | None


@dataclass(frozen=True, slots=True)
class Winner:
    """The trial whose config is recommended, or that stands for the baseline."""

    number: int
    value: float
    """Its objective; of a config that was confirmed, the mean over the new seeds."""
    config: dict[str, Any]
    """Its whole trial config."""
    metrics: dict[str, float | None]
    """All metrics of its own last measurement."""
    num_steps: int
    """Steps it trained."""
    seconds: float
    """Seconds it trained, without evaluation and checkpoints."""
    lineage: list[Stage] = field(default_factory=list)
    """Of a fork: the schedule of hyperparameters that led to its value, from the first step to the last. Empty: it was
    trained with its config from the start."""

    @property
    def optimizer(self) -> str:
        """The name of its optimizer."""
        return str(self.config["optimizer"]["name"])


@dataclass(frozen=True, slots=True)
class ReachedBaseline:
    """The point at which the recommended config was first as good as the baseline's best was in the end.

    Of confirmed configs, by their mean curves over the new seeds.
    """

    step: int
    seconds: float
    baseline_step: int
    """Step at which the baseline's best first had that value itself."""
    baseline_seconds: float
    step_ratio: float
    """`baseline_step / step`: above 1, the recommended config needs fewer steps."""
    seconds_ratio: float | None
    """`baseline_seconds / seconds`; None if no time was measured."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One confirmation trial."""

    seed: int
    number: int
    ending: str
    """`completed`, `failed (diverged)`, ..."""
    value: float | None
    """Its objective, if it completed."""

    @property
    def has_failed(self) -> bool:
        """True if it ended badly; one that was cancelled, or whose time was up, has only not been trained."""
        return self.ending.startswith(TrialState.FAILED) or (self.ending == TrialState.COMPLETED and self.value is None)


@dataclass(frozen=True, slots=True)
class ConfirmedConfig:
    """A config that was trained again with new seeds."""

    number: int
    """The trial of the search or the baseline that found it."""
    found_value: float
    """That trial's objective: the best of many, and so most likely a lucky one."""
    results: list[SeedResult]
    """By seed."""
    mean: float | None
    """Over the compared seeds; None: it takes no part in the comparison."""
    standard_deviation: float | None
    """Over the compared seeds, of the sample."""
    further_low: float | None = None
    """Lower end of the interval that holds its value with a further seed, with `ConfirmationResult.confidence`; None:
    it has no mean."""
    further_high: float | None = None

    @property
    def has_failed(self) -> bool:
        """True if a trial of it failed: then it takes no part in the comparison."""
        return any(result.has_failed for result in self.results)


@dataclass(frozen=True, slots=True)
class ConfirmationResult:
    """The best configs, and the baseline's best, trained again with the same new seeds."""

    seeds: list[int]
    """The compared seeds: those with which every config that takes part completed; fewer than two: none was."""
    candidates: list[ConfirmedConfig]
    """Of the search, the best mean first, those that take no part last."""
    baseline: ConfirmedConfig | None
    confidence: float
    """Of the interval: how often it holds the true difference, whichever candidate comes out best."""
    improvement_low: float | None
    """Lower end of the interval of `Evidence.improvement`; None: there was no comparison, or the mean is 0."""
    improvement_high: float | None

    @property
    def improvement(self) -> tuple[float, float] | None:
        """Both ends of the interval, or None."""
        if self.improvement_low is None or self.improvement_high is None:
            return None
        return self.improvement_low, self.improvement_high

    @property
    def configs(self) -> list[ConfirmedConfig]:
        """The candidates and the baseline's."""
        return self.candidates if self.baseline is None else [*self.candidates, self.baseline]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The reasons for a recommended config, and how far to trust them."""

    metric: str
    direction: Direction
    best: Winner
    baseline: Winner | None
    """None: the job had no baseline, or none of its trials completed."""
    verdict: Verdict
    equal_within: float
    """Relative difference that `verdict` calls equal."""
    improvement: float | None
    """Difference to the baseline's value as a share of it, positive if better; None without one, or if it is 0."""
    reached_baseline: ReachedBaseline | None
    """None: there is no baseline, or its value was never reached."""
    num_trials: dict[str, dict[str, int]]
    """Number of trials by phase and state; a failed one counts as `failed (reason)`."""
    seeds: list[int]
    """Seeds with which the compared trials were trained."""
    caveats: list[str]
    confirmation: ConfirmationResult | None = None
    """None: no config was trained again with new seeds."""
    front: list[FrontPoint] = field(default_factory=list)
    """With several objectives: the completed trials of search and baseline that no other one betters in all of them,
    sorted by the first."""
    verdict_caveats: list[str] = field(default_factory=list)
    """The caveats of the verdict: that a compared config did worse over the new seeds than when it was found,
    by more than the noise, or by so much that it matters."""


class PasteableConfig(BaseModel):
    """A trial's config as another training script needs it."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    workload: str
    """The name of the workload."""
    optimizer: str
    """`shampoo`, `adamw` or `sgd`."""
    config: dict[str, Any]
    """Exactly the keyword arguments of the optimizer, e.g. `Shampoo(groups, **config)`, where `groups` are the model's
    parameters in their `parameter_groups`, or `model.parameters()` if there are none."""
    schedule: dict[str, Any]
    """Learning-rate schedule: the fields of `trainers.config.ScheduleConfig` that it uses."""
    training: dict[str, Any]
    """The settings of the training beside that: `num_steps`, `batch_size`, `gradient_clip_norm`, `accumulation_steps`,
    `precision`, `averaging` and `compression`."""
    workload_options: dict[str, Any]
    parameter_groups: list[OwnSettings] = []
    """The settings that some parameters had in place of `config`, which alone does not train as was measured: which
    parameters, by rules, and their settings."""


class RecommendedConfig(PasteableConfig):
    """The config that a job recommends, with its evidence."""

    evidence: Evidence

    def to_json(self) -> dict[str, Any]:
        """The recommendation as JSON-able values."""
        return self.model_dump(mode="json")


_EVIDENCE = TypeAdapter(Evidence)


def evidence_from_json(content: Mapping[str, Any]) -> Evidence:
    """The evidence of a stored recommendation; what it lacks because it is older takes its default."""
    return _EVIDENCE.validate_python(content)


def recommendation_from_json(content: Mapping[str, Any]) -> RecommendedConfig:
    """A stored recommendation; what it lacks because it is older takes its default."""
    return RecommendedConfig.model_validate(content)
