"""A finding about a job, and what findings are made of: plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain
from dataclasses import field
from enum import StrEnum

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, Side, TrialState
from service.evidence.finished_trial import final_value
from service.evidence.insights import SideInsights
from service.evidence.types import Evidence


class HealthKind(StrEnum):
    """The kind of finding."""

    BASELINE_NOT_REPRODUCED = "baseline_not_reproduced"
    """The baseline's best config failed with new seeds, or fell behind the value that it was found with."""
    BASELINE_UNDERTUNED = "baseline_undertuned"
    """A baseline had too few trials to show what it can do, or fewer than the search in less time."""
    NOISY_METRIC = "noisy_metric"
    """Seeds change the objective about as much as configs do."""
    AT_THE_EDGE = "at_the_edge"
    """A best config has values at the edge of what was searched, and the job no recommendation that says so."""
    MANY_DIVERGED = "many_diverged"
    """The loss of many trials, or another metric of them, was not finite or too large."""
    EARLY_VALUES_MISLEAD = "early_values_mislead"
    """Early values of trials say little of what they have in the end."""
    STILL_IMPROVING = "still_improving"
    """The budget ended while better configs were still being found."""
    ANOTHER_PRESET = "another_preset"
    """On tuned models like the job's, another preset did clearly better than the searched one."""
    DEVICES_IDLE = "devices_idle"
    """Trials trained for a small part of the time only."""


class Severity(StrEnum):
    """The severity of a finding."""

    WARNING = "warning"
    """The answer may be another one."""
    HINT = "hint"
    """The same budget could give more."""


@dataclass(frozen=True, slots=True, config=ConfigDict(use_attribute_docstrings=True))
class HealthCard:
    """A finding about a job, for a person."""

    kind: HealthKind
    """The kind of finding; more kinds may come."""
    severity: Severity
    """`warning`: the answer may be another one; `hint`: the same budget could give more."""
    sentence: str
    """The finding, with its numbers."""
    advice: str
    """Advice: what to do about it."""


@plain(frozen=True, slots=True)
class SearchedTrial:
    """A trial as far as its job's health is concerned."""

    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None
    value: float | None
    divergence: str | None = None
    """The step and the metric that it diverged with; None: it did not, or nobody said."""

    @property
    def final_value(self) -> float | None:
        """The objective that it ended with; None: it did not complete, or the value is not finite."""
        return final_value(self.state, self.value)


@plain(frozen=True, slots=True)
class BetterPreset:
    """The preset that did best on tuned models like a job's, beside the searched one."""

    name: str
    searched: str
    loss_ratio: float
    """Its best loss over that of the searched one, the geometric mean over these models, after equally many steps."""
    num_models: int
    octaves: float
    """The distance of the nearest of them."""


@plain(frozen=True, slots=True)
class SearchedJob:
    """A job that has ended, or still runs, as the checks of its health see it."""

    direction: Direction
    outcomes: Sequence[SearchedTrial]
    """The trials that have ended, in the order in which they did."""
    evidence: Evidence | None = None
    """The evidence of its recommendation, once it has ended."""
    is_over: bool = True
    ended_by_budget: bool = True
    """False: it goes on, failed, or was cancelled."""
    spaces: Mapping[Side, SearchSpace] = field(default_factory=dict)
    """The spaces in which its sides searched."""
    best_parameters: Mapping[Side, Mapping[str, Scalar]] = field(default_factory=dict)
    """Sampled values of the best trial of each side that has one; empty where the job has a recommendation, whose
    caveats say which of its values lie at the edge."""
    insights: SideInsights | None = None
    """Insights into the search's trials, as the job's run last found them."""
    training_seconds: float = 0.0
    """Training time of all trials together."""
    elapsed_seconds: float = 0.0
    """Time that the job ran."""
    parallel_trials: int = 1
    """Trials that it was to train at once, at least."""
    better_preset: BetterPreset | None = None
    """None: none is known that the model was not tuned with."""

    @property
    def of_search(self) -> list[SearchedTrial]:
        """The search's trials that came to an end of their own."""
        return self._of(Phase.SEARCH)

    @property
    def of_baselines(self) -> list[SearchedTrial]:
        """The trials of all baselines that did."""
        return self._of(Phase.BASELINE)

    def _of(self, phase: Phase) -> list[SearchedTrial]:
        ends = (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED)
        return [trial for trial in self.outcomes if trial.phase is phase and trial.state in ends]
