"""A simulated job: a policy driven over learning curves in a virtual clock, with workers, crashes and restarts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from search_spaces import Categorical, Float, Integer, Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, SamplerName, Side, TrialState
from service.evidence.comparison.confirm import split_seeds
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Decision, GiveUp, Resume, Start, TrialHistory
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.auto_study import AutoStudySearch
from service.scheduler.policy.searching.phase_search import PhaseSearch, SampledSearch
from service.scheduler.policy.searching.pruners import make_pruner
from service.scheduler.policy.searching.samplers import make_sampler
from service.scheduler.policy.sides import SidePlan

MAX_STEPS = 27

SEARCH_SPACE = SearchSpace(
    "shampoo",
    (
        Categorical("grafting", ("adam", "sgd")),
        Float("lr", 1e-4, 1.0, scale="log", default=3e-4, when={"grafting": ("adam",)}),
        Float("lr", 1e-2, 10.0, scale="log", default=0.5, when={"grafting": ("sgd",)}),
        Float("betas[0]", 0.5, 0.999, scale="reverse_log", default=0.9),
        Integer("precondition_frequency", 1, 100, scale="log"),
    ),
)
BASELINE_SPACE = SearchSpace("adamw", (Float("lr", 1e-4, 1.0, scale="log"),))

Curve = Callable[[Mapping[str, Scalar], int], float]


def loss(parameters: Mapping[str, Scalar], step: int) -> float:
    """A toy loss: a valley in log lr and log (1 - beta1), shallower with SGD grafting; NaN where lr is too large."""
    lr, beta = float(parameters["lr"] or 0), float(parameters.get("betas[0]", 0.9) or 0)
    sgd = parameters.get("grafting") == "sgd"
    if lr > (5.0 if sgd else 0.2):
        return math.nan
    distance = (math.log10(lr / (0.3 if sgd else 0.01))) ** 2 + (math.log10((1 - beta) / 0.02)) ** 2
    return distance + (0.5 if sgd else 0.0) + 3.0 / (1 + step)


BASELINE, FURTHER_BASELINE = "adamw", "sgd"


@dataclass
class Job:
    """A job as SQL would hold it, and its policy."""

    num_search: int = 20
    num_baseline: int = 5
    num_further: int = 0
    """Trials of a second baseline; 0: there is none."""
    confirm: tuple[int, int] | None = None
    """(top_k, number of seeds); None: no confirmation."""
    sampler: SamplerName | Literal["auto"] = "tpe"
    prunes: bool = True
    seed: int = 0
    direction: Direction = Direction.MINIMIZE
    curve: Curve = loss
    rows: dict[int, TrialHistory] = field(default_factory=dict)
    decisions: dict[tuple[int, int], Decision] = field(default_factory=dict)
    num_steps_trained: int = 0

    def policy(self) -> JobPolicy:
        """A policy as a new process would make it."""
        sides = [
            (Phase.SEARCH, SEARCH_SPACE, self.num_search),
            (BASELINE, BASELINE_SPACE, self.num_baseline),
            *([(FURTHER_BASELINE, BASELINE_SPACE, self.num_further)] if self.num_further else []),
        ]
        policy = JobPolicy(
            [SidePlan(side, space, num, partial(self._search, side, space, num)) for side, space, num in sides],
            confirmation=self._confirmation(),
        )
        policy.restore(list(self.rows.values()))
        return policy

    def _confirmation(self) -> Confirmation | None:
        if self.confirm is None:
            return None
        top_k, num_seeds = self.confirm
        choosing, comparing = split_seeds(range(1, num_seeds + 1), top_k=top_k)
        return Confirmation(top_k=top_k, choosing=choosing, comparing=comparing, direction=self.direction)

    def _search(self, side: Side, space: SearchSpace, num_trials: int) -> PhaseSearch:
        if self.sampler == "auto":
            search = AutoSearch(space, direction=self.direction, max_steps=MAX_STEPS, seed=self.seed)
            return AutoStudySearch(search, space, self.direction)
        return SampledSearch(
            make_sampler(
                self.sampler, space, directions=[self.direction], num_trials=num_trials, seed=f"{self.seed}/{side}"
            ),
            make_pruner(
                "asha" if self.prunes else "none",
                min_steps=3,
                max_steps=MAX_STEPS,
                reduction_factor=3,
                direction=self.direction,
            ),
        )

    def run(self, *, num_workers: int = 1, crash_every: int | None = None, rng: random.Random | None = None) -> None:
        """Runs to the end. Workers train one step each in turn, or at random with `rng`.

        Args:
            crash_every: the process dies after this many steps of training, and a new one takes over.
        """
        policy, running = self.policy(), dict[int, int]()
        while True:
            while len(running) < num_workers:
                work = policy.ask()
                if isinstance(work, GiveUp):
                    self._change(work.number, state=TrialState.PRUNED)
                    policy.tell(work.number, TrialState.PRUNED)
                    continue
                if not isinstance(work, Start | Resume):
                    break
                if isinstance(work, Start):
                    assert work.number not in self.rows
                    self.rows[work.number] = TrialHistory(
                        work.number, work.side, work.parameters, TrialState.QUEUED, repeats=work.repeats
                    )
                self._change(work.number, state=TrialState.RUNNING)
                curve = self.rows[work.number].curve
                running[work.number] = curve[-1][0] if curve else 0
            if not running:
                break
            for number in [rng.choice(list(running))] if rng else list(running):
                running[number] += 1
                self.num_steps_trained += 1
                if self._advance(policy, number, running[number]):
                    del running[number]
                if crash_every and self.num_steps_trained % crash_every == 0:
                    policy, running = self.policy(), {}
                    break

    def _advance(self, policy: JobPolicy, number: int, step: int) -> bool:
        """Trains one step; returns whether the trial ended."""
        row = self.rows[number]
        value = self.curve(row.parameters, step) * (1 if self.direction is Direction.MINIMIZE else -1)
        if math.isnan(value):
            self._change(number, state=TrialState.FAILED, reason=FailureReason.DIVERGED)
            policy.tell(number, TrialState.FAILED, (), FailureReason.DIVERGED)
            return True
        self._change(number, curve=(*row.curve, (step, value)), values=(value,))
        decision = self.decisions[number, step] = policy.report(number, step, value)
        if decision is Decision.PAUSE:
            self._change(number, state=TrialState.QUEUED)
            return True
        if step == MAX_STEPS or decision is Decision.STOP:
            state = TrialState.COMPLETED if step == MAX_STEPS else TrialState.PRUNED
            self._change(number, state=state)
            policy.tell(number, state, (value,))
            return True
        return False

    def _change(self, number: int, **changes: object) -> None:
        row = self.rows[number]
        fields = {name: getattr(row, name) for name in TrialHistory.__slots__}
        self.rows[number] = TrialHistory(**{**fields, **changes})
