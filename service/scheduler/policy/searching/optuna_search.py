"""Samplers of Optuna's as samplers of ours: what each ending teaches them, and values as Optuna knows them."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState as OptunaState

from search_spaces import Categorical, Float, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active
from service.domain import Direction, TrialState
from service.scheduler.policy.searching.phase_search import TrialOutcome

MIN_SOURCE_TRIALS = 10
"""With fewer completed ones CMA-ES begins in the middle of the space."""


class OptunaSearch:
    """A sampler of Optuna's on an in-memory study, made anew for each suggestion.

    What TPE learns from each ending follows from how it orders trials before it calls the first few good: completed
    ones by value, then pruned ones by the step they reached and their value there, and pruned ones without any
    intermediate value after all those. So
    - completed trials are told as COMPLETE with their value;
    - pruned ones as PRUNED with their curve;
    - diverged, out-of-memory and infeasible ones as PRUNED *without* a curve: worse than anything measured. COMPLETE
      with a penalty would rank them above every pruned trial, and with few completed trials among the good ones.
      Samplers that learn from completed trials alone are told the worst value seen;
    - errors, lost and cancelled trials as FAIL, which samplers ignore. With several objectives also pruned
      ones, as Optuna compares no curves there; those that completed without one of the later ones as PRUNED without
      a curve.
    TPE counts running trials as bad (the liar), so that concurrent trials spread out.
    """

    _asks_for_all = False
    """True if trials have values of switched-off parameters, too."""

    def __init__(
        self,
        space: SearchSpace,
        directions: Sequence[Direction],
        *,
        make: Callable[[int], BaseSampler],
        seed: str,
        tells_worst: bool = False,
    ) -> None:
        """Prepares a search.

        Args:
            space: what is searched.
            directions: in which each objective is better.
            make: gives a sampler for a seed.
            seed: makes suggestions reproducible.
            tells_worst: whether the sampler learns from completed trials alone; only with one objective.
        """
        # Optuna reports every study and trial at INFO; the service logs its own.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._make = make
        self._seed = seed
        self._tells_worst = tells_worst
        self._num_objectives = len(directions)
        self._is_maximised = directions[0] is Direction.MAXIMIZE
        self._worst: float | None = None
        self._dimensions = list(zip(dimension_keys(space), space.parameters, strict=True))
        # The sampler is set for each trial; this one only keeps Optuna from making its own.
        self._study = optuna.create_study(
            directions=[direction.value for direction in directions], sampler=RandomSampler()
        )
        self._running: dict[int, optuna.Trial] = {}

    def suggest(self, number: int) -> dict[str, Scalar]:
        parameters = self._draw(f"{self._seed}/{number}")
        self.begin(number, parameters)
        return parameters

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        known = {
            key: to_optuna(parameter, parameters[parameter.name])
            for key, parameter in self._dimensions
            if is_active(parameter, parameters)
        }
        self._study.enqueue_trial(known)
        # Not the sampler itself, which would fit its model in vain: it is asked at most for values without effect.
        self._study.sampler = RandomSampler(seed=random.Random(f"{self._seed}/{number}/without effect").getrandbits(32))
        self._running[number], _ = self._ask()

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        trial = self._running.pop(number)
        if outcome.is_worst and self._tells_worst and self._worst is not None:
            self._study.tell(trial, self._worst)
        elif outcome.is_worst:
            self._study.tell(trial, state=OptunaState.PRUNED)
        elif outcome.state is TrialState.COMPLETED:
            first = outcome.values[0]  # a number, or the trial would be the worst
            worse = min if self._is_maximised else max
            self._worst = first if self._worst is None else worse(self._worst, first)
            if all(map(math.isfinite, outcome.values)):
                self._study.tell(trial, outcome.values)
            else:
                self._study.tell(trial, state=OptunaState.PRUNED)  # without a curve: worse than what was measured
        elif outcome.state is TrialState.PRUNED and self._num_objectives == 1:
            for step, value in outcome.curve:
                trial.report(value, step)
            self._study.tell(trial, state=OptunaState.PRUNED)
        else:
            self._study.tell(trial, state=OptunaState.FAIL)

    def _draw(self, seed: str) -> dict[str, Scalar]:
        """The parameters that the sampler suggests with this seed."""
        with _experimental():
            self._study.sampler = self._make(random.Random(seed).getrandbits(32))
        # The trial that was asked for is dropped, and its rounded values begin a trial of their own, as they do after
        # an interruption. A running trial that was asked for carries values for inactive branches too, which the
        # liar would count.
        asked, parameters = self._ask()
        self._study.tell(asked, state=OptunaState.FAIL)
        return parameters

    def _ask(self) -> tuple[optuna.Trial, dict[str, Scalar]]:
        """A running Optuna trial, with the value of each active parameter, rounded."""
        trial = self._study.ask()
        values: dict[str, Scalar] = {}
        rounded: dict[str, Scalar] = {}
        for key, parameter in self._dimensions:
            has_effect = is_active(parameter, values)
            if has_effect or self._asks_for_all:
                value: Any = suggest_value(trial, key, parameter)
            if has_effect:
                values[parameter.name] = value
                rounded[parameter.name] = parameter.rounded(value) if isinstance(parameter, Float) else value
        return trial, rounded


class CmaEsSearch(OptunaSearch):
    """Optuna's CMA-ES, which keeps its distribution in the trials that it was asked for itself.

    Categorical parameters and those under conditions are drawn at random, as Optuna does.
    """

    def __init__(self, space: SearchSpace, *, direction: Direction, seed: str) -> None:
        super().__init__(space, [direction], make=_cmaes, seed=seed, tells_worst=True)
        self._sampler: BaseSampler | None = None

    def suggest(self, number: int) -> dict[str, Scalar]:
        if self._sampler is None:
            with _experimental():
                self._sampler = self._around_the_best(random.Random(f"{self._seed}/{number}").getrandbits(32))
        self._study.sampler = self._sampler
        self._running[number], parameters = self._ask()
        return parameters

    def _around_the_best(self, seed: int) -> BaseSampler:
        """A sampler whose distribution begins around the best tenth of the trials known, or in the middle."""
        completed = self._study.get_trials(deepcopy=False, states=[OptunaState.COMPLETE])
        return _cmaes(seed, completed if len(completed) >= MIN_SOURCE_TRIALS else None)


@contextmanager
def _experimental() -> Iterator[None]:
    """Arguments that Optuna calls experimental may be used without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def make_tpe(num_trials: int, seed: int) -> BaseSampler:
    # Drawn at random before the model is trusted: a quarter of the budget, but 5 to 10 (Optuna's own 10 is half of a
    # small job). On the tests' toy curves 3, 5 and 10 do not differ beyond the noise; all beat random draws.
    num_startup_trials = min(10, max(5, num_trials // 4))
    return TPESampler(n_startup_trials=num_startup_trials, multivariate=True, group=True, constant_liar=True, seed=seed)


def make_gp(seed: int) -> BaseSampler:
    return GPSampler(seed=seed, warn_independent_sampling=False)


def _cmaes(seed: int, source_trials: list[optuna.trial.FrozenTrial] | None = None) -> BaseSampler:
    return CmaEsSampler(seed=seed, source_trials=source_trials, warn_independent_sampling=False)


def dimension_keys(space: SearchSpace) -> list[str]:
    """Optuna's names of the parameters: one name with two ranges is two dimensions, told apart by their conditions."""
    keys = [""] * len(space.parameters)
    for indices in space.dimensions():
        name = space.parameters[indices[0]].name
        conditions = " or ".join(filter(None, (_condition(space.parameters[index]) for index in indices)))
        for index in indices:
            keys[index] = f"{name} if {conditions}" if conditions else name
    return keys


def _condition(parameter: Parameter) -> str:
    return ";".join(f"{name} in {list(allowed)}" for name, allowed in sorted(parameter.when.items()))


def suggest_value(trial: optuna.Trial, key: str, parameter: Parameter) -> Scalar:
    if isinstance(parameter, Categorical):
        # By position: Optuna compares choices with ==, and takes no lists.
        return parameter.choices[trial.suggest_categorical(key, range(len(parameter.choices)))]
    if isinstance(parameter, Float):
        low, high = sorted((to_optuna(parameter, parameter.low), to_optuna(parameter, parameter.high)))
        return _from_internal(parameter, trial.suggest_float(key, low, high, log=parameter.scale != "linear"))
    return trial.suggest_int(key, parameter.low, parameter.high, log=parameter.scale == "log")


def to_optuna(parameter: Parameter, value: Any) -> Any:
    """The value as Optuna knows it: the position of a choice, and 1 - x on the reverse scale.

    Optuna takes none beyond the range, which a user may have had tried: it counts as the edge.
    """
    if isinstance(parameter, Categorical):
        return next(i for i, choice in enumerate(parameter.choices) if choice == value)
    value = parameter.clipped(value)
    return 1 - value if isinstance(parameter, Float) and parameter.scale == "reverse_log" else value


def _from_internal(parameter: Float, value: float) -> float:
    return parameter.clipped(1 - value if parameter.scale == "reverse_log" else value)
