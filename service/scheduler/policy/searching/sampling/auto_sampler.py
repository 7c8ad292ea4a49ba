"""`AutoSampler`: the model of partial learning curves behind `auto`, as a sampler for any Optuna study.

    study = optuna.create_study(sampler=AutoSampler(seed=0))
    study.optimize(objective, n_trials=30)

It learns from final values, and from intermediate reports of all trials, including pruned ones. The study's pruner
decides when a trial stops; in a job the search that the sampler belongs to does, which also pauses trials.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import intersection_search_space
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from search_spaces import Scalar
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import New, TrialOutcome
from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.sampling.unit_space import UnitSpace


class AutoSampler(BaseSampler):
    """A sampler by a Gaussian process over configs and the progress of their training (`searching.auto`), for one
    objective.

    It suggests together the parameters that all trials so far had, or those of the space that it is given; the others,
    such as those under a condition, are drawn at random.
    """

    def __init__(
        self,
        *,
        search_space: Mapping[str, BaseDistribution] | None = None,
        max_steps: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Prepares a sampler.

        Args:
            search_space: the parameters that it suggests together, by name; None: those that all trials have had.
            max_steps: the step that a whole training reports last; None: the largest that any trial has reported.
            seed: makes suggestions reproducible; None: a random one.
        """
        self._search_space = None if search_space is None else dict(search_space)
        self._max_steps = max_steps
        self._seed = random.getrandbits(32) if seed is None else seed
        self._independent = RandomSampler(self._seed)
        self._followed: _Followed | None = None
        self._lock = threading.Lock()
        """`optimize` with several jobs asks from several threads."""

    def reseed_rng(self) -> None:
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        found = _common(study) if self._search_space is None else self._search_space
        return {name: distribution for name, distribution in found.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The values that the model chooses.

        Raises:
            ValueError: the study has several objectives, or the space more parameters or choices than a `SearchSpace`
                may have.
        """
        if len(study.directions) > 1:
            raise ValueError(f"AutoSampler knows one objective, and the study has {len(study.directions)}")
        return self._chosen(study, trial, search_space) if search_space else {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _chosen(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        with self._lock:
            trials = study.get_trials(deepcopy=False)
            length = _Length.of(trials, self._max_steps)
            followed = self._followed
            if followed is None or not followed.fits(search_space, length):
                followed = _Followed(study.direction, search_space, length, seed=self._seed)
                if self._followed is not None:
                    followed.begin_chosen_by(self._followed)
                self._followed = followed
            followed.hear(trials)
            return followed.suggest(trial.number)


class JobAutoSampler(AutoSampler):
    """`AutoSampler` in a job, where the search that holds the model has just chosen to start a trial."""

    def __init__(self, dimensions: Dimensions) -> None:
        super().__init__(search_space=dimensions.distributions, seed=0)
        self._dimensions = dimensions
        self._start: Mapping[str, Scalar] = {}

    def choose(self, parameters: Mapping[str, Scalar]) -> None:
        """Takes the assignment of the trial that is asked for next."""
        self._start = parameters

    def _chosen(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        return self._dimensions.encoded(self._start)


def _common(study: Study) -> dict[str, BaseDistribution]:
    """The parameters of all trials that have ended with a value or were pruned: one under way may not have all yet."""
    ended = study.get_trials(deepcopy=False, states=(OptunaState.COMPLETE, OptunaState.PRUNED))
    return intersection_search_space(ended, include_pruned=True)


@dataclass(frozen=True, slots=True)
class _Length:
    """The steps of a whole training, as they are reported."""

    first: int
    """0 or 1: the least that a step may be."""
    last: int

    @classmethod
    def of(cls, trials: Sequence[FrozenTrial], given: int | None) -> _Length:
        steps = [step for trial in trials for step in trial.intermediate_values]
        return cls(min([1, *steps]), max(steps, default=1) if given is None else given)

    def counted(self, step: int) -> int:
        """A step as the model counts, from 1 on."""
        return step + 1 - self.first

    @property
    def num_steps(self) -> int:
        return max(1, self.counted(self.last))


@dataclass(slots=True)
class _Heard:
    reached: int = 0
    """The last known step, counted from 1."""
    has_ended: bool = False


class _Followed:
    """The model of one study, which gets new measurements of the study's trials."""

    def __init__(
        self, direction: StudyDirection, search_space: Mapping[str, BaseDistribution], length: _Length, *, seed: int
    ) -> None:
        self._search_space = dict(search_space)
        self._length = length
        self._units = UnitSpace(search_space)
        self._search = AutoSearch(
            self._units.space,
            direction=Direction.MAXIMIZE if direction is StudyDirection.MAXIMIZE else Direction.MINIMIZE,
            max_steps=length.num_steps,
            seed=seed,
        )
        self._chosen: dict[int, dict[str, Any]] = {}
        """The values of trials that were suggested but are not yet in the study's reports."""
        self._heard: dict[int, _Heard] = {}

    def fits(self, search_space: Mapping[str, BaseDistribution], length: _Length) -> bool:
        """True if it is of this space, and of trainings of this length."""
        return self._search_space == search_space and self._length == length

    def suggest(self, number: int) -> dict[str, Any]:
        """The values of a new trial, which thereby begins."""
        choice = self._search.choose(number, may_start=True)
        assert isinstance(choice, New), "nothing is paused"
        self._chosen[number] = self._units.decoded(choice.parameters)
        return self._chosen[number]

    def begin_chosen_by(self, other: _Followed) -> None:
        """Takes in the trials that another model of the study has just suggested to other threads."""
        for number, values in other._chosen.items():
            if self._search_space.keys() <= values.keys():
                self._search.begin(number, self._units.encoded(values))
                self._chosen[number] = values

    def hear(self, trials: Sequence[FrozenTrial]) -> None:
        """Takes in what is new of the trials of the study."""
        for trial in trials:
            is_whole = self._search_space.keys() <= trial.params.keys()
            if trial.number in self._chosen and trial.state.is_finished() and not is_whole:
                del self._chosen[trial.number]  # the objective failed before it had asked for all
                self._search.finish(trial.number, TrialOutcome(TrialState.FAILED, FailureReason.ERROR, (), ()))
            if is_whole and trial.number not in self._heard:
                self._chosen.pop(trial.number, None)
                self._search.begin(trial.number, self._units.encoded(trial.params))
                self._heard[trial.number] = _Heard()
            heard = self._heard.get(trial.number)
            if heard is not None and not heard.has_ended:
                self._hear_one(trial, heard)

    def _hear_one(self, trial: FrozenTrial, heard: _Heard) -> None:
        curve = [(self._length.counted(step), value) for step, value in sorted(trial.intermediate_values.items())]
        for step, value in curve:
            if step > heard.reached:
                self._search.report(trial.number, step, value)
                heard.reached = step
        if trial.state.is_finished():
            heard.has_ended = True
            self._search.finish(trial.number, _outcome(trial, curve))
        else:
            self._search.interrupt(trial.number)  # in plain Optuna, nothing pauses


def _outcome(trial: FrozenTrial, curve: Sequence[tuple[int, float]]) -> TrialOutcome:
    if any(violation > 0 for violation in trial.constraints.values()):
        return TrialOutcome(TrialState.FAILED, FailureReason.INFEASIBLE, (), curve)
    if trial.state is OptunaState.COMPLETE:
        return TrialOutcome(TrialState.COMPLETED, None, tuple(trial.values or ()), curve)
    if trial.state is OptunaState.FAIL:
        return TrialOutcome(TrialState.FAILED, FailureReason.ERROR, (), curve)
    if curve and not math.isfinite(curve[-1][1]):
        return TrialOutcome(TrialState.FAILED, FailureReason.DIVERGED, (), curve)
    return TrialOutcome(TrialState.PRUNED, None, (), curve)
