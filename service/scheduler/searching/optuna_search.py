"""Optuna's samplers and pruners behind the policy interface, as they come."""

from __future__ import annotations

import math
import random
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, QMCSampler, RandomSampler, TPESampler
from optuna.trial import TrialState as OptunaState

from search_spaces import Float, Scalar, SearchSpace
from search_spaces.parameters import is_active
from service.domain import Direction, FailureReason, Phase, TrialState
from service.scheduler.policy import Ask, Decision, Resume, Start, TrialHistory
from service.scheduler.pruner import NoPruner, Pruner
from service.scheduler.study import Outcome, dimension_key, suggest_value, to_optuna

SAMPLERS = ("random", "quasi", "tpe", "gp", "cmaes")
PRUNERS = ("none", "hyperband", "median")


def make_optuna_sampler(name: str, seed: int) -> BaseSampler:
    """Optuna's sampler of that name: tpe is multivariate, grouped, with a constant liar.

    Raises:
        ValueError: there is none.
        ImportError: `cmaes` needs the package of that name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        match name:
            case "random":
                return RandomSampler(seed=seed)
            case "quasi":
                return QMCSampler(seed=seed, scramble=True, warn_independent_sampling=False)
            case "tpe":
                return TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
            case "gp":
                return GPSampler(seed=seed, warn_independent_sampling=False)
            case "cmaes":
                return CmaEsSampler(seed=seed, warn_independent_sampling=False)
    raise ValueError(f"unknown sampler {name!r} (known: {', '.join(SAMPLERS)})")


def make_optuna_pruner(name: str, *, min_steps: int, max_steps: int) -> BasePruner:
    """Optuna's pruner of that name.

    Raises:
        ValueError: there is none.
    """
    match name:
        case "none":
            return NopPruner()
        case "hyperband":
            return HyperbandPruner(min_resource=min_steps, max_resource=max_steps, reduction_factor=3)
        case "median":
            return MedianPruner(n_startup_trials=5, n_warmup_steps=min_steps)
    raise ValueError(f"unknown pruner {name!r} (known: {', '.join(PRUNERS)})")


@dataclass(slots=True)
class _Known:
    parameters: dict[str, Scalar]
    trial: optuna.Trial
    curve: list[tuple[int, float]] = field(default_factory=list)


class OptunaSearch:
    """One phase searched by an Optuna study: implements `service.scheduler.policy.Policy`.

    Endings are told as in `service.scheduler.study`, but for diverged trials: only TPE learns from pruned ones, so the
    others are told the worst value seen. After `restore` the samplers go on from the same trials, not from the same
    random state.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        direction: Direction,
        max_steps: int,
        sampler: str,
        pruner: str | Pruner = "none",
        min_steps: int = 1,
        seed: int = 0,
        phase: Phase = Phase.SEARCH,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        by_name = pruner if isinstance(pruner, str) else "none"
        self._study = optuna.create_study(
            # Hyperband assigns brackets by a hash of the study's name.
            study_name=f"search {seed}",
            direction=direction.value,
            sampler=make_optuna_sampler(sampler, random.Random(f"{seed}/{phase}").getrandbits(32)),
            pruner=make_optuna_pruner(by_name, min_steps=min_steps, max_steps=max_steps),
        )
        self._pruner = NoPruner() if isinstance(pruner, str) else pruner
        self._prunes_by_name = by_name != "none"
        self._tells_worst = sampler != "tpe"
        self._is_maximised = direction is Direction.MAXIMIZE
        self._dimensions = {dimension_key(parameter): parameter for parameter in space.parameters}
        self._phase = phase
        self._known: dict[int, _Known] = {}
        self._waiting: deque[int] = deque()
        self._worst: float | None = None

    def ask(self) -> Ask:
        """Interrupted trials first, then what the sampler suggests."""
        if self._waiting:
            number = self._waiting.popleft()
            return Resume(number, self._phase, dict(self._known[number].parameters))
        number = len(self._known)
        known = self._known[number] = self._begin()
        return Start(number, self._phase, dict(known.parameters))

    def report(self, number: int, step: int, value: float) -> Decision:
        """Continue or stop, as the pruner says."""
        known = self._known[number]
        if known.curve and step <= known.curve[-1][0]:
            return Decision.CONTINUE
        known.curve.append((step, value))
        if math.isfinite(value):
            known.trial.report(value, step)
            if self._prunes_by_name and known.trial.should_prune():
                return Decision.STOP
        return self._pruner.report(number, step, value)

    def tell(
        self, number: int, state: TrialState, value: float | None = None, reason: FailureReason | None = None
    ) -> None:
        """Tells the study how a trial ended; `queued`: it comes out of `ask` again."""
        if state is TrialState.QUEUED:
            self._waiting.append(number)
            return
        known = self._known[number]
        outcome = Outcome(state, reason, value, known.curve)
        if outcome.is_worst and self._tells_worst and self._worst is not None:
            self._study.tell(known.trial, self._worst)
        elif outcome.is_worst or state is TrialState.PRUNED:
            self._study.tell(known.trial, state=OptunaState.PRUNED)
        elif state is TrialState.COMPLETED:
            assert value is not None
            worse = min if self._is_maximised else max
            self._worst = value if self._worst is None else worse(self._worst, value)
            self._study.tell(known.trial, value)
        else:
            self._study.tell(known.trial, state=OptunaState.FAIL)

    def restore(self, history: Sequence[TrialHistory]) -> None:
        """Replays the trials of this phase in the order of their numbers."""
        for past in sorted(history, key=lambda past: past.number):
            self._known[past.number] = self._begin(past.parameters)
            for step, value in past.curve:
                self.report(past.number, step, value)
            state = past.state if past.state.is_final else TrialState.QUEUED
            self.tell(past.number, state, past.value, past.reason)

    def _begin(self, given: Mapping[str, Scalar] | None = None) -> _Known:
        if given is not None:
            self._study.enqueue_trial(
                {
                    key: to_optuna(parameter, given[parameter.name])
                    for key, parameter in self._dimensions.items()
                    if is_active(parameter, given)
                }
            )
        # What relative samplers model of a conditional space is what all its trials have in common.
        trial = self._study.ask()
        values: dict[str, Scalar] = {}
        for key, parameter in self._dimensions.items():
            if is_active(parameter, values):
                value: Any = suggest_value(trial, key, parameter)
                values[parameter.name] = parameter.rounded(value) if isinstance(parameter, Float) else value
        return _Known(values, trial)
