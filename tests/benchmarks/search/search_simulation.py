"""Search policies in a virtual clock: asynchronous workers, learning curves instead of training."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.policy.protocol import Decision, Done, GiveUp, Policy, Resume, Start, Wait
from trainers.stopwatch import extra_measurements

Objective = Callable[[Mapping[str, Scalar]], list[float]]


@dataclass(frozen=True, slots=True)
class Problem:
    """An objective, and what a large random sample says of it."""

    objective: Objective
    space: SearchSpace
    direction: Direction
    num_units: int
    """Length of a whole curve."""
    best: float
    median: float
    diverged_share: float

    @classmethod
    def sampled(
        cls, objective: Objective, space: SearchSpace, direction: Direction, *, num_configs: int = 2000, seed: int = 0
    ) -> Problem:
        """The problem with `best` and `median` of random configs; those that diverge count as worse than all others.

        Raises:
            ValueError: more than half of the sample diverges, or its best is no better than its median.
        """
        rng = random.Random(f"{seed}/sample of the objective")
        curves = [objective(space.sample(rng)) for _ in range(num_configs)]
        num_units = max(map(len, curves))
        sign = -1.0 if direction is Direction.MINIMIZE else 1.0
        finals = np.array([sign * final_value(curve, num_units) for curve in curves])
        finals[~np.isfinite(finals)] = -math.inf
        best, median = float(finals.max()), float(np.median(finals))
        if not math.isfinite(median) or best <= median:
            raise ValueError(f"cannot normalise: the sample's best final value is {best}, its median {median}")
        share = float(np.mean(~np.isfinite(finals)))
        return cls(objective, space, direction, num_units, sign * best, sign * median, share)

    def regret(self, value: float | None) -> float:
        """(best - value) / (best - median), at most 1, which is also that of nothing at all."""
        return 1.0 if value is None else min(1.0, (self.best - value) / (self.best - self.median))


def final_value(curve: Sequence[float], num_units: int) -> float:
    """The value at the end of a curve; NaN if it is cut off or not finite before."""
    whole = len(curve) == num_units and all(map(math.isfinite, curve))
    return curve[-1] if whole else math.nan


@dataclass(slots=True)
class _Running:
    number: int
    curve: list[float]
    reached: int


def simulate(
    policy: Policy, problem: Problem, *, num_workers: int, budgets: Sequence[float], measure_every: int = 1
) -> list[float]:
    """The regret at each budget, in full trainings over all workers together.

    A unit of any training takes one tick of a worker. Work counts once it is finished; a paused trial goes on where it
    was, on any worker, at no cost. A training is measured after every `measure_every` units, at its end, and where the
    policy is going to pause it and before as `trainers.stopwatch` says; a divergence is noticed at once. The incumbent
    is the best final value among trials trained to the end in time.
    """

    def following(step: int) -> int:
        return step - step % measure_every + measure_every

    sign = -1.0 if problem.direction is Direction.MINIMIZE else 1.0
    end = max(budgets) * problem.num_units / num_workers
    curves: dict[int, list[float]] = {}
    reached: dict[int, int] = {}
    extras: dict[int, Sequence[int]] = {}
    finished: list[tuple[int, float]] = []
    events: list[tuple[int, int, int]] = []
    """(time, worker, number): a worker has trained one more unit of a trial."""
    idle, now = list(range(num_workers)), 0
    while True:
        while idle:
            match policy.ask():
                case Start(number=number, parameters=parameters, until=until):
                    curves[number], reached[number] = problem.objective(parameters), 0
                    extras[number] = extra_measurements(until, following)
                case Resume(number=number, until=until):
                    extras[number] = extra_measurements(until, following)
                case GiveUp(number=given_up):
                    policy.tell(given_up, TrialState.PRUNED)
                    continue
                case Wait() | Done():
                    break
            heapq.heappush(events, (now + 1, idle.pop(0), number))
        if not events:
            break
        now, worker, number = heapq.heappop(events)
        if now > end:
            break
        reached[number] += 1
        curve, step = curves[number], reached[number]
        value = curve[step - 1] if step <= len(curve) else math.nan
        if not math.isfinite(value):
            policy.tell(number, TrialState.FAILED, (), FailureReason.DIVERGED)
            idle.append(worker)
            continue
        is_measured = step % measure_every == 0 or step == problem.num_units or step in extras[number]
        decision = policy.report(number, step, value) if is_measured else Decision.CONTINUE
        if step == problem.num_units:
            policy.tell(number, TrialState.COMPLETED, (value,))
            finished.append((now, sign * value))
            idle.append(worker)
        elif decision is Decision.STOP:
            policy.tell(number, TrialState.PRUNED)
            idle.append(worker)
        elif decision is Decision.PAUSE:
            idle.append(worker)
        else:
            heapq.heappush(events, (now + 1, worker, number))
    regrets = []
    for budget in budgets:
        in_time = [value for time, value in finished if time * num_workers <= budget * problem.num_units + 1e-9]
        regrets.append(problem.regret(sign * max(in_time) if in_time else None))
    return regrets
