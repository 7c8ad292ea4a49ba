"""The Optuna study of one side of a job: it gives every suggestion, and knows every trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna import Study
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState as OptunaState

from search_spaces import Scalar
from service.domain import Direction, TrialState
from service.scheduler.policy.searching.phase_search import TrialOutcome
from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.sampling.rounded import Exhaustible
from service.scheduler.policy.searching.sampling.whole import GivenSampler

TRAINABLE = "trainable"
"""The constraint that diverged, out-of-memory and infeasible trials break."""


class _SideStudy(Study):
    """A study that a sampler may end from outside `optimize`, as Optuna's grid does after its last point."""

    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@dataclass(slots=True)
class _Running:
    trial: optuna.Trial
    last_step: int = -1


class SearchStudy:
    """A study in memory: implements `phase_search.Sampler` with any sampler of Optuna's.

    Every trial of the side is in it, in the order in which they begin, with its measurements as they come. Only forks
    are not, because their values depend on more than their parameters. Imported trials come before them. There is no
    other memory, so a study that gets the stored trials is equal to the one that was lost. For Optuna a paused trial is
    a running one.

    TPE orders trials and calls the first few good: completed ones by value, then pruned ones by the step they reached
    and their value there, then those that break a constraint. This determines what it learns from each ending. So
    - completed trials are told as COMPLETE with their value;
    - pruned ones as PRUNED;
    - diverged, out-of-memory and infeasible ones as PRUNED with a broken constraint: worse than anything measured.
      COMPLETE with a penalty would rank them above every pruned trial, and with few completed trials among the good
      ones. Samplers that learn from completed trials alone are told the worst value seen;
    - errors, lost and cancelled trials as FAIL, which samplers ignore. With several objectives also pruned ones, as
      Optuna takes no curves there; those that completed without one of the later ones as PRUNED with a broken
      constraint.
    TPE counts running trials as bad (the liar), so that concurrent trials spread out.
    """

    def __init__(
        self,
        dimensions: Dimensions,
        directions: Sequence[Direction],
        sampler: BaseSampler,
        *,
        tells_worst: bool = False,
        without_effect: bool = False,
    ) -> None:
        """Prepares a study.

        Args:
            dimensions: of the space that is searched.
            directions: in which each objective is better.
            sampler: is asked for suggestions.
            tells_worst: whether the sampler learns from completed trials alone; only with one objective.
            without_effect: whether trials have values of switched-off parameters, too.
        """
        # Optuna reports every study and trial at INFO; the service logs its own.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = InMemoryStorage()
        name = optuna.create_study(
            storage=storage, directions=[direction.value for direction in directions], sampler=sampler
        ).study_name
        self._study = _SideStudy(name, storage, sampler)
        self._sampler = sampler
        self._dimensions = dimensions
        self._tells_worst = tells_worst
        self._without_effect = without_effect
        self._takes_curves = len(directions) == 1
        self._is_maximised = directions[0] is Direction.MAXIMIZE
        self._worst: float | None = None
        self._running: dict[int, _Running] = {}

    @property
    def study(self) -> Study:
        """Optuna's study itself, to read."""
        return self._study

    def suggest(self, number: int) -> dict[str, Scalar] | None:
        if self._is_exhausted():
            return None
        trial = self._study.ask()
        self._running[number] = _Running(trial)
        return self._dimensions.suggested(trial, without_effect=self._without_effect)

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        self._running[number] = _Running(self._given(parameters))

    def inform(self, parameters: Mapping[str, Scalar], value: float) -> None:
        """Tells the sampler of a trial that somebody else trained, with its one objective; before the first own one."""
        self._study.tell(self._given(parameters), value)

    def _given(self, parameters: Mapping[str, Scalar]) -> optuna.Trial:
        self._study.enqueue_trial(self._dimensions.encoded(parameters))
        # The sampler itself would fit its model in vain.
        self._study.sampler = GivenSampler()
        trial = self._study.ask()
        self._dimensions.suggested(trial, without_effect=self._without_effect)
        self._study.sampler = self._sampler
        return trial

    def report(self, number: int, step: int, value: float) -> None:
        running = self._running[number]
        running.last_step = step
        if self._takes_curves:
            running.trial.report(value, step)

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        for step, value in outcome.curve:
            if step > self._running[number].last_step:
                self.report(number, step, value)
        trial = self._running.pop(number).trial
        if outcome.is_worst and self._tells_worst and self._worst is not None:
            self._study.tell(trial, self._worst)
        elif outcome.is_worst:
            self._tell_unusable(trial)
        elif outcome.state is TrialState.COMPLETED:
            first = outcome.values[0]  # a number, or the trial would be the worst
            worse = min if self._is_maximised else max
            self._worst = first if self._worst is None else worse(self._worst, first)
            if all(map(math.isfinite, outcome.values)):
                self._study.tell(trial, outcome.values)
            else:
                self._tell_unusable(trial)
        elif outcome.state is TrialState.PRUNED and self._takes_curves:
            self._study.tell(trial, state=OptunaState.PRUNED)
        else:
            self._study.tell(trial, state=OptunaState.FAIL)

    def _tell_unusable(self, trial: optuna.Trial) -> None:
        trial.set_constraint(TRAINABLE, 1.0)
        self._study.tell(trial, state=OptunaState.PRUNED)

    def _is_exhausted(self) -> bool:
        if self._study.is_stopped:
            return True
        return isinstance(self._sampler, Exhaustible) and self._sampler.is_exhausted(self._study)
