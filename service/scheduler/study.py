"""Samplers: which parameters a phase tries next, given how its trials ended.

A suggestion is a function of the seed, the trial's number and the trials known when it is made; nothing else is
remembered. So a sampler rebuilt from stored trials goes on exactly as the interrupted one would have.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import optuna
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import TrialState as OptunaState

from search_spaces import Categorical, Float, Parameter, Scalar, SearchSpace
from search_spaces.parameters import is_active
from service.domain import Direction, FailureReason, TrialState

SamplerName: TypeAlias = Literal["tpe", "random"]

TEACHING_REASONS = frozenset({FailureReason.DIVERGED, FailureReason.OUT_OF_MEMORY, FailureReason.INFEASIBLE})
"""Failures that the parameters caused. An error or a lost machine says nothing about them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended."""

    state: TrialState
    reason: FailureReason | None
    value: float | None
    curve: Sequence[tuple[int, float]]

    @property
    def is_worst(self) -> bool:
        """Whether the parameters proved worse than any that gave a number."""
        if self.state is TrialState.COMPLETED:
            return self.value is None or not math.isfinite(self.value)
        if self.state is TrialState.PRUNED:
            return not self.curve or not math.isfinite(self.curve[-1][1])
        return self.state is TrialState.FAILED and self.reason in TEACHING_REASONS


class Sampler(Protocol):
    """Suggests parameters and learns from outcomes. Trials begin in the order of their numbers."""

    def suggest(self, number: int) -> dict[str, Scalar]:
        """Parameters for a new trial, which thereby begins."""

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        """A trial with these checked parameters begins: pinned, or known from an earlier run of the job."""

    def finish(self, number: int, outcome: Outcome) -> None:
        """A trial that began has ended."""


def make_sampler(name: SamplerName, space: SearchSpace, *, direction: Direction, num_trials: int, seed: str) -> Sampler:
    """The sampler `name` for a phase of `num_trials` trials.

    Raises:
        ValueError: there is no such sampler.
    """
    if name == "random":
        return RandomSearch(space, seed=seed)
    if name == "tpe":
        return TpeSearch(space, direction=direction, num_trials=num_trials, seed=seed)
    raise ValueError(f"unknown sampler {name!r} (known: tpe, random)")


class RandomSearch:
    """Independent draws from the space."""

    def __init__(self, space: SearchSpace, *, seed: str) -> None:
        self._space = space
        self._seed = seed

    def suggest(self, number: int) -> dict[str, Scalar]:
        return self._space.sample(random.Random(f"{self._seed}/{number}"))

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        """Nothing to learn."""

    def finish(self, number: int, outcome: Outcome) -> None:
        """Nothing to learn."""


class TpeSearch:
    """Tree-structured Parzen estimator on an in-memory Optuna study: multivariate, grouped, with a constant liar.

    What it learns from each ending follows from how Optuna's TPE orders trials before it calls the first few good:
    completed ones by value, then pruned ones by the step they reached and their value there, and pruned ones without
    any intermediate value after all those. So
    - completed trials are told as COMPLETE with their value;
    - pruned ones as PRUNED with their curve;
    - diverged, out-of-memory and infeasible ones as PRUNED *without* a curve: worse than anything measured. COMPLETE
      with a penalty would rank them above every pruned trial, and with few completed trials among the good ones;
    - errors, lost and cancelled trials as FAIL, which TPE ignores.
    Running trials count as bad (the liar), so that concurrent trials spread out.
    """

    def __init__(self, space: SearchSpace, *, direction: Direction, num_trials: int, seed: str) -> None:
        # Optuna reports every study and trial at INFO; the service logs its own.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Drawn at random before the model is trusted: a quarter of the budget, but 5 to 10 (Optuna's own 10 is half of
        # a small job). On the tests' toy curves 3, 5 and 10 do not differ beyond the noise; all beat random draws.
        self._num_startup_trials = min(10, max(5, num_trials // 4))
        self._seed = seed
        self._space = space
        self._dimensions = {dimension_key(parameter): parameter for parameter in space.parameters}
        # The sampler is set for each trial; this one only keeps Optuna from making its own.
        self._study = optuna.create_study(direction=direction.value, sampler=RandomSampler())
        self._running: dict[int, optuna.Trial] = {}

    def suggest(self, number: int) -> dict[str, Scalar]:
        seed = random.Random(f"{self._seed}/{number}").getrandbits(32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # `group`
            self._study.sampler = TPESampler(
                n_startup_trials=self._num_startup_trials, multivariate=True, group=True, constant_liar=True, seed=seed
            )
        # The trial that was asked for is dropped, and its rounded values begin a trial of their own, as they do after
        # an interruption. A running trial that was asked for carries values for inactive branches too, which the
        # liar would count.
        asked, suggested = self._ask()
        self._study.tell(asked, state=OptunaState.FAIL)
        parameters = {
            parameter.name: parameter.rounded(value) if isinstance(parameter, Float) else value
            for parameter, value in suggested
        }
        self.begin(number, parameters)
        return parameters

    def begin(self, number: int, parameters: Mapping[str, Scalar]) -> None:
        known = {
            key: to_optuna(parameter, parameters[parameter.name])
            for key, parameter in self._dimensions.items()
            if is_active(parameter, parameters)
        }
        self._study.enqueue_trial(known)
        # Never asked for a value, only for none: TPE would fit its model in vain.
        self._study.sampler = RandomSampler(seed=0)
        self._running[number], _ = self._ask()

    def finish(self, number: int, outcome: Outcome) -> None:
        trial = self._running.pop(number)
        if outcome.is_worst:
            self._study.tell(trial, state=OptunaState.PRUNED)
        elif outcome.state is TrialState.COMPLETED:
            self._study.tell(trial, outcome.value, state=OptunaState.COMPLETE)
        elif outcome.state is TrialState.PRUNED:
            for step, value in outcome.curve:
                trial.report(value, step)
            self._study.tell(trial, state=OptunaState.PRUNED)
        else:
            self._study.tell(trial, state=OptunaState.FAIL)

    def _ask(self) -> tuple[optuna.Trial, list[tuple[Parameter, Any]]]:
        """A running Optuna trial, with the value of each active parameter."""
        trial = self._study.ask()
        values: dict[str, Scalar] = {}
        suggested: list[tuple[Parameter, Any]] = []
        for key, parameter in self._dimensions.items():
            if is_active(parameter, values):
                value = values[parameter.name] = suggest_value(trial, key, parameter)
                suggested.append((parameter, value))
        return trial, suggested


def dimension_key(parameter: Parameter) -> str:
    """Optuna's name of a parameter: one name with two ranges under two conditions is two dimensions to Optuna."""
    conditions = ";".join(f"{name} in {list(allowed)}" for name, allowed in sorted(parameter.when.items()))
    return f"{parameter.name} if {conditions}" if conditions else parameter.name


def suggest_value(trial: optuna.Trial, key: str, parameter: Parameter) -> Scalar:
    if isinstance(parameter, Categorical):
        # By position: Optuna compares choices with ==, and takes no lists.
        return parameter.choices[trial.suggest_categorical(key, range(len(parameter.choices)))]
    if isinstance(parameter, Float):
        low, high = sorted((to_optuna(parameter, parameter.low), to_optuna(parameter, parameter.high)))
        return _from_internal(parameter, trial.suggest_float(key, low, high, log=parameter.scale != "linear"))
    return trial.suggest_int(key, parameter.low, parameter.high, log=parameter.scale == "log")


def to_optuna(parameter: Parameter, value: Any) -> Any:
    """The value as Optuna knows it: the position of a choice, and 1 - x on the reverse scale."""
    if isinstance(parameter, Categorical):
        return next(i for i, choice in enumerate(parameter.choices) if choice == value)
    return 1 - value if isinstance(parameter, Float) and parameter.scale == "reverse_log" else value


def _from_internal(parameter: Float, value: float) -> float:
    external = 1 - value if parameter.scale == "reverse_log" else value
    return min(max(external, parameter.low), parameter.high)
