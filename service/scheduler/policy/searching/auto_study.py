"""The `auto` search in an Optuna study: one model, which samples in the study and also decides on pauses."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces import Scalar, SearchSpace
from service.domain import Direction
from service.scheduler.policy.protocol import Decision, Fork
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import Choice, New, TrialOutcome
from service.scheduler.policy.searching.sampling.auto_sampler import JobAutoSampler
from service.scheduler.policy.searching.sampling.dimensions import Dimensions
from service.scheduler.policy.searching.study import SearchStudy


class AutoStudySearch:
    """One phase searched by `auto`, with all its trials in a study: implements `phase_search.PhaseSearch`.

    The search chooses between starting a trial and continuing one, which Optuna does not know. It asks the study for
    the trial that it starts, and the study's sampler returns the config that the search has chosen.
    """

    def __init__(self, search: AutoSearch, space: SearchSpace, direction: Direction) -> None:
        dimensions = Dimensions(space)
        self._search = search
        self._sampler = JobAutoSampler(dimensions)
        self.study = SearchStudy(dimensions, [direction], self._sampler)

    def choose(self, number: int, *, may_start: bool) -> Choice:
        choice = self._search.choose(number, may_start=may_start)
        if isinstance(choice, New):
            self._sampler.choose(choice.parameters)
            self.study.suggest(number)
        return choice

    def begin(self, number: int, parameters: Mapping[str, Scalar], *, fork: Fork | None = None) -> None:
        self._search.begin(number, parameters, fork=fork)
        self.study.begin(number, parameters)

    def until(self, number: int) -> int | None:
        return self._search.until(number)

    def report(self, number: int, step: int, value: float) -> Decision:
        self.study.report(number, step, value)
        return self._search.report(number, step, value)

    def interrupt(self, number: int) -> None:
        self._search.interrupt(number)

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        self._search.finish(number, outcome)
        self.study.finish(number, outcome)
