"""Population based training (Jaderberg et al., arXiv:1711.09846): weights are copied, hyperparameters change in flight.

A trial keeps its hyperparameters, so exploit and explore are two trials here. A trial that is among the worst of its
population at a ready step is dropped. A *fork* begins from the checkpoint of one of the best, with its hyperparameters
perturbed if they may change in flight. Forks of forks form a schedule.

Departures from the paper. Members are compared at equal steps, with all that were measured there, not by the latest
value of each: under a decaying schedule, values of different steps cannot be compared. There is no barrier between
steps, and no member waits for another. Each is judged when its turn to continue comes, at its last ready step at which
enough members have been measured by then, so a member that is ahead of the others is judged, too. Members take turns by
the steps they have trained, so a population needs only one slot. A member that fails is also replaced by a fork.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces import Scalar, SearchSpace, perturb
from service.domain import Direction, TrialState
from service.scheduler.policy.protocol import Decision, Fork
from service.scheduler.policy.searching.phase_search import Choice, Drop, GoOn, New, Sampler, SearchStatus, TrialOutcome

QUANTILE = 0.25
"""Share of those measured at a ready step that are dropped there, and share that forks begin from; at least one."""
MIN_COMPARED = 4
"""Members of a larger population that must have been measured at a step before any is dropped there."""


@dataclass(slots=True)
class _Member:
    number: int
    parameters: Mapping[str, Scalar]
    population: _Population
    reached: int
    """The last measured step; for a fork at first the step at which it begins."""
    fork: Fork | None
    status: SearchStatus = SearchStatus.RUNNING
    ready_step: int | None = None
    """The last ready step at which it was measured itself; the checkpoint of this step is kept."""
    lost_step: int | None = None
    """A ready step from which a fork could not begin."""


@dataclass(slots=True)
class _Population:
    costs: dict[int, dict[int, float]] = field(default_factory=dict)
    """Objectives by ready step (counted in intervals), then by member, turned so that smaller is better."""
    num_lost: int = 0
    """Members that ended without completing; each leaves its place to a fork."""
    num_forks: int = 0

    @property
    def num_vacancies(self) -> int:
        return max(0, self.num_lost - self.num_forks)


class PopulationSearch:
    """One phase searched by population based training: implements `phase_search.PhaseSearch`.

    The first `population` trials come from the sampler (or are pinned or proposed). If one leaves without having
    completed, a fork fills its place, as long as trials may be started; after that the remaining members train to their
    ends. If no member is left but more trials are allowed, a new population begins. Every member pauses at every ready
    step: the first measurement after each `interval` of steps.
    """

    def __init__(
        self,
        sampler: Sampler,
        space: SearchSpace,
        *,
        direction: Direction,
        population: int,
        interval: int,
        max_steps: int,
        seed: str,
    ) -> None:
        """Prepares a search.

        Args:
            sampler: the sampler of the first members; it does not learn of forks, whose values depend on more than
                their parameters.
            space: what is searched.
            direction: in which the objective is better.
            population: members that train side by side.
            interval: steps between ready steps.
            max_steps: steps of a whole trial.
            seed: makes forks reproducible.

        Raises:
            ValueError: `population` or `interval` is not positive.
        """
        if population < 1 or interval < 1:
            raise ValueError(f"population and interval must be >= 1, got {population} and {interval}")
        self._sampler = sampler
        self._space = space
        self._sign = 1.0 if direction is Direction.MINIMIZE else -1.0
        self._size = population
        self._interval = interval
        self._max_steps = max_steps
        self._seed = seed
        self._members: dict[int, _Member] = {}
        self._live: dict[int, _Member] = {}
        """The members that have not ended, in the order in which they began."""
        self._newest = _Population()
        self._num_sampled = 0
        """Trials that are not forks."""
        self._has_suggestions = True

    def choose(self, number: int, *, may_start: bool) -> Choice:
        """A first member, else a fork in a vacant place, else the paused member with the fewest steps, which continues
        or, if it is among the worst, is dropped.
        """
        if may_start:
            choice = self._sampled(number) or self._forked(number)
            if choice is not None:
                return choice
        paused = [member for member in self._live.values() if member.status is SearchStatus.PAUSED]
        if not paused:
            return None
        member = min(paused, key=lambda member: (member.reached, member.number))
        why = self._why_drop(member) if may_start else None
        if why is not None:
            return Drop(member.number, why)
        member.status = SearchStatus.RUNNING
        return GoOn(member.number)

    def begin(self, number: int, parameters: Mapping[str, Scalar], *, fork: Fork | None = None) -> None:
        if fork is None:
            self._sampler.begin(number, parameters)
        self._add(number, parameters, fork)

    def until(self, number: int) -> int | None:
        step = (self._members[number].reached // self._interval + 1) * self._interval
        return step if step < self._max_steps else None

    def report(self, number: int, step: int, value: float) -> Decision:
        """Pauses at ready steps."""
        member = self._members[number]
        if step <= member.reached:
            return Decision.CONTINUE  # a fork first reports its parent's measurement
        if member.fork is None:
            self._sampler.report(number, step, value)
        before, member.reached = member.reached, step
        member.status = SearchStatus.RUNNING  # unchanged, or for a replayed trial, running again
        ready = step // self._interval
        if ready == before // self._interval or step >= self._max_steps:
            return Decision.CONTINUE
        costs = member.population.costs.setdefault(ready, {})
        costs[number] = self._sign * value if math.isfinite(value) else math.inf
        member.ready_step = step
        member.status = SearchStatus.PAUSED
        return Decision.PAUSE

    def interrupt(self, number: int) -> None:
        self._members[number].status = SearchStatus.RUNNING

    def finish(self, number: int, outcome: TrialOutcome) -> None:
        member = self._live.pop(number)
        member.status = SearchStatus.ENDED
        if outcome.state is not TrialState.COMPLETED:
            member.population.num_lost += 1
        if (
            member.fork is not None
            and outcome.reason is not None
            and outcome.reason.is_loss
            and member.reached == member.fork.step
        ):
            self._members[member.fork.number].lost_step = member.fork.step
        if member.fork is None:
            self._sampler.finish(number, outcome)

    def _add(self, number: int, parameters: Mapping[str, Scalar], fork: Fork | None) -> None:
        if fork is not None:
            population = self._members[fork.number].population
            population.num_forks += 1
        else:
            if self._num_sampled % self._size == 0:
                self._newest = _Population()
            population = self._newest
            self._num_sampled += 1
        member = _Member(number, parameters, population, 0 if fork is None else fork.step, fork)
        self._members[number] = self._live[number] = member

    def _sampled(self, number: int) -> New | None:
        """A first member of the current population, or of a new one if no member of the others is left."""
        is_full = self._num_sampled % self._size == 0
        waits = any(is_full or member.population is not self._newest for member in self._live.values())
        if waits or not self._has_suggestions:
            return None
        parameters = self._sampler.suggest(number)
        if parameters is None:
            self._has_suggestions = False
            return None
        self._add(number, parameters, None)
        return New(parameters)

    def _forked(self, number: int) -> New | None:
        """A fork in a vacant place, as soon as there is a member to begin from."""
        populations = {id(member.population): member.population for member in self._live.values()}
        for population in populations.values():
            parents = self._parents(population) if population.num_vacancies else []
            if parents:
                rng = random.Random(f"{self._seed}/{number}")
                parent = rng.choice(parents)
                assert parent.ready_step is not None
                fork = Fork(parent.number, parent.ready_step)
                parameters = perturb(self._space, parent.parameters, rng)
                self._add(number, parameters, fork)
                return New(parameters, fork)
        return None

    def _parents(self, population: _Population) -> list[_Member]:
        """The best members at the last ready step at which enough were measured, else at the last one at all."""
        enough = [ready for ready, costs in population.costs.items() if len(costs) >= self._num_compared]
        rest = population.costs.keys() - set(enough)
        for ready in [*sorted(enough, reverse=True), *sorted(rest, reverse=True)]:
            costs = population.costs[ready]
            best = self._better(costs, than=math.inf)
            if best:
                return best[: _quantile(costs)]
        return []

    def _better(self, costs: Mapping[int, float], *, than: float) -> list[_Member]:
        """The members that forks can begin from, with costs below a bound; the best first."""
        ranked = sorted((cost, number) for number, cost in costs.items() if cost < than)
        members = (self._members[number] for _, number in ranked)
        return [m for m in members if m.status is not SearchStatus.ENDED and m.ready_step != m.lost_step]

    def _why_drop(self, member: _Member) -> str | None:
        """The reason why a paused member makes room for a fork, for a person; None: it continues."""
        judged = [
            (ready, costs)
            for ready, costs in member.population.costs.items()
            if member.number in costs and len(costs) >= self._num_compared
        ]
        if not judged:
            return None
        ready, costs = max(judged, key=lambda entry: entry[0])
        worst = sorted(costs, key=lambda number: (costs[number], number))[-_quantile(costs) :]
        if member.number not in worst or not self._better(costs, than=costs[member.number]):
            return None
        return (
            f"among the worst {len(worst)} of {len(costs)} in its population at step {ready * self._interval}: "
            "a fork of a better one takes its place"
        )

    @property
    def _num_compared(self) -> int:
        return max(2, min(self._size, MIN_COMPARED))


def _quantile(costs: Mapping[int, float]) -> int:
    return max(1, int(QUANTILE * len(costs)))
