"""Population based training, driven as a job drives it: slots, checkpoints, crashes; no Ray."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from search_spaces import Categorical, Float, Integer, Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, TrialState
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Decision, Fork, GiveUp, Resume, Start, TrialHistory
from service.scheduler.policy.searching.phase_search import Drop, GoOn, New, TrialOutcome
from service.scheduler.policy.searching.population import PopulationSearch
from service.scheduler.policy.searching.samplers import make_sampler
from service.scheduler.policy.sides import SidePlan

SPACE = SearchSpace(
    "shampoo",
    (
        Categorical("grafting", ("adam", "rmsprop")),
        Float("lr", 1e-3, 1.0, scale="log", default=3e-3),
        Integer("precondition_frequency", 2, 40, scale="log", default=10),
    ),
)
MAX_STEPS, INTERVAL, KEPT = 40, 10, 2


def search_of(population: int, direction: Direction = Direction.MINIMIZE) -> PopulationSearch:
    return PopulationSearch(
        make_sampler("random", SPACE, directions=[Direction.MINIMIZE], num_trials=20, seed="a"),
        SPACE,
        direction=direction,
        population=population,
        interval=INTERVAL,
        max_steps=MAX_STEPS,
        seed="b",
    )


def better_with_lr(lr: float, step: int) -> float:
    """The factor by which a loss falls in a step: the best learning rate is 0.2, and late a tenth of that."""
    best = 0.2 if step <= MAX_STEPS // 2 else 0.02
    return 1 - 0.1 * math.exp(-(math.log(lr / best) ** 2))


@dataclass
class Population:
    """A job as SQL and the disk would hold it, and the policy in front of it."""

    num_trials: int = 20
    population: int = 4
    diverges: Callable[[int, int], bool] = lambda _number, _step: False
    """Says if a trial fails at a step."""
    direction: Direction = Direction.MINIMIZE
    rows: dict[int, TrialHistory] = field(default_factory=dict)
    weights: dict[int, dict[int, float]] = field(default_factory=dict)
    """Checkpoints: by trial, then by step; a trial keeps as many as a real one, and none after its end."""
    num_alive_at_most: int = 0

    def policy(self) -> JobPolicy:
        plan = SidePlan(
            Phase.SEARCH,
            SPACE,
            self.num_trials,
            search=lambda: search_of(self.population, self.direction),
            directions=(self.direction,),
        )
        policy = JobPolicy([plan])
        policy.restore(list(self.rows.values()))
        return policy

    def run(self, *, num_slots: int, crash_every: int | None = None, seed: int = 0) -> None:
        """Runs to the end; trials train a step each in random order."""
        rng, policy, running, num_trained = random.Random(seed), self.policy(), dict[int, tuple[int, float]](), 0
        while True:
            while len(running) < num_slots:
                match policy.ask():
                    case GiveUp(number=number):
                        self._end(policy, number, TrialState.PRUNED)
                    case Start(fork=fork) as asked:
                        assert asked.number not in self.rows
                        curve = () if fork is None else self._forked(asked.number, fork)
                        self.rows[asked.number] = TrialHistory(
                            asked.number, asked.phase, asked.parameters, TrialState.RUNNING, curve=curve, fork=fork
                        )
                        running[asked.number] = self._checkpoint(asked.number)
                    case Resume(number=number) as asked:
                        assert asked.fork == self.rows[number].fork
                        running[number] = self._checkpoint(number)
                    case _:
                        break
            alive = sum(not row.state.is_final for row in self.rows.values())
            self.num_alive_at_most = max(self.num_alive_at_most, alive)
            if not running:
                return
            number = rng.choice(list(running))
            running[number] = step, _ = self._trained(number, *running[number])
            num_trained += 1
            if self._reported(policy, number, step, running[number][1]):
                del running[number]
            if crash_every and num_trained % crash_every == 0:
                policy, running = self.policy(), {}

    def _forked(self, number: int, fork: Fork) -> tuple[tuple[int, float], ...]:
        weight = self.weights[fork.number][fork.step]  # which must still be there
        self.weights[number] = {fork.step: weight}
        return ((fork.step, weight),)

    def _checkpoint(self, number: int) -> tuple[int, float]:
        kept = self.weights.get(number, {})
        return max(kept.items()) if kept else (0, 1.0)

    def _trained(self, number: int, step: int, weight: float) -> tuple[int, float]:
        lr = self.rows[number].parameters["lr"]
        assert isinstance(lr, float)
        return step + 1, weight * better_with_lr(lr, step + 1)

    def _reported(self, policy: JobPolicy, number: int, step: int, weight: float) -> bool:
        """Reports one measurement; True if the trial no longer runs."""
        row = self.rows[number]
        if self.diverges(number, step):
            self._end(policy, number, TrialState.FAILED, FailureReason.DIVERGED)
            return True
        if step % INTERVAL == 0 or step == MAX_STEPS:
            kept = self.weights.setdefault(number, {})
            kept[step] = weight
            for old in sorted(kept)[:-KEPT]:
                del kept[old]
        value = weight if self.direction is Direction.MINIMIZE else -weight
        known = [point for point in row.curve if point[0] < step]
        self.rows[number] = dataclasses.replace(row, curve=(*known, (step, value)), values=(value,))
        if step == MAX_STEPS:
            policy.report(number, step, value)
            self._end(policy, number, TrialState.COMPLETED)
            return True
        decision = policy.report(number, step, value)
        assert decision is not Decision.STOP
        return decision is Decision.PAUSE

    def _end(self, policy: JobPolicy, number: int, state: TrialState, reason: FailureReason | None = None) -> None:
        row = self.rows[number]
        self.rows[number] = dataclasses.replace(row, state=state, reason=reason)
        self.weights.pop(number, None)
        policy.tell(number, state, row.values, reason)

    @property
    def forks(self) -> list[TrialHistory]:
        return [row for row in self.rows.values() if row.fork is not None]


@pytest.mark.parametrize("num_slots", [1, 2, 5, 20])
@pytest.mark.parametrize("crash_every", [None, 23])
def test_the_budget_is_exact_and_everything_ends(num_slots: int, crash_every: int | None) -> None:
    job = Population(num_trials=17, population=5)
    job.run(num_slots=num_slots, crash_every=crash_every and crash_every * num_slots)
    assert sorted(job.rows) == list(range(17))
    assert all(row.state.is_final for row in job.rows.values())
    assert job.forks


@pytest.mark.parametrize("num_slots", [1, 4])
def test_no_more_members_live_side_by_side_than_the_population_has(num_slots: int) -> None:
    job = Population(num_trials=30, population=4)
    job.run(num_slots=num_slots)
    assert job.num_alive_at_most == 4


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("num_slots", [1, 3])
def test_a_fork_begins_from_a_better_one_where_that_was_measured(num_slots: int, direction: Direction) -> None:
    job = Population(num_trials=24, population=8, direction=direction)
    job.run(num_slots=num_slots)
    dropped = [row for row in job.rows.values() if row.state is TrialState.PRUNED]
    assert len(job.forks) == len(dropped) > 0
    for fork in job.forks:
        assert fork.fork is not None
        parent = job.rows[fork.fork.number]
        assert fork.fork.step % INTERVAL == 0
        assert fork.fork.step in dict(parent.curve)
        assert fork.parameters["grafting"] == parent.parameters["grafting"]
        assert fork.parameters != parent.parameters
    for row in dropped:
        assert row.curve[-1][0] % INTERVAL == 0


def test_it_finds_a_schedule_that_no_single_learning_rate_matches() -> None:
    job = Population(num_trials=60, population=10)
    job.run(num_slots=2)
    best = min(row.values[0] for row in job.rows.values() if row.state is TrialState.COMPLETED)
    constant = min(
        math.prod(better_with_lr(10 ** (-3 + 0.01 * index), step) for step in range(1, MAX_STEPS + 1))
        for index in range(301)
    )
    assert best < constant


def test_a_failed_member_gives_its_place_to_a_fork() -> None:
    job = Population(num_trials=12, population=4, diverges=lambda number, step: number in (1, 2) and step == 3)
    job.run(num_slots=4)
    assert [job.rows[number].state for number in (1, 2)] == [TrialState.FAILED] * 2
    first = [job.rows[number].fork for number in (4, 5)]
    assert all(fork is not None and fork.number in (0, 3) for fork in first)


def test_when_all_have_failed_the_sampler_begins_a_new_population() -> None:
    job = Population(num_trials=9, population=3, diverges=lambda number, _step: number < 3)
    job.run(num_slots=2)
    assert sorted(job.rows) == list(range(9))
    assert [row.number for row in job.rows.values() if row.fork is None][:6] == [0, 1, 2, 3, 4, 5]


def test_what_is_left_of_a_budget_after_a_population_begins_another() -> None:
    job = Population(num_trials=40, population=2)
    job.run(num_slots=2)
    roots = [row.number for row in job.rows.values() if row.fork is None]
    assert len(roots) > 2
    assert sorted(job.rows) == list(range(40))


@pytest.mark.parametrize("number", [0, 2])
def test_a_pruned_member_that_is_tried_again_trains_to_its_end_beside_the_others(number: int) -> None:
    job = Population(num_trials=8, population=4)
    job.run(num_slots=2)
    before = {row.number: row for row in job.rows.values()}
    for num_trials in (8, 10):  # when the others have ended, and when the search goes on
        job.rows = {**before, number: dataclasses.replace(before[number], state=TrialState.QUEUED, spared=True)}
        job.num_trials = num_trials
        job.run(num_slots=2)
        assert job.rows[number].state is TrialState.COMPLETED
        assert [step for step, _ in job.rows[number].curve] == list(range(1, MAX_STEPS + 1))
        assert len(job.rows) == job.num_trials
        assert all(row.state.is_final for row in job.rows.values())


def ready(search: PopulationSearch, *values: float, step: int = INTERVAL) -> None:
    """As many first members, each measured at a ready step, where it pauses."""
    for number, _ in enumerate(values):
        assert isinstance(search.choose(number, may_start=True), New)
    for number, value in enumerate(values):
        assert search.report(number, 1, value) is Decision.CONTINUE
        assert search.report(number, step, value) is Decision.PAUSE


def outcome(state: TrialState, reason: FailureReason | None = None) -> TrialOutcome:
    return TrialOutcome(state, reason, (), ())


def test_the_worst_quarter_makes_room_and_the_others_go_on() -> None:
    search = search_of(8)
    ready(search, 0.5, 0.4, 0.1, 0.8, 0.3, 0.9, 0.2, 0.6)
    met: list[object] = []
    forks: list[Fork] = []
    for _ in range(8):
        choice = search.choose(8 + len(forks), may_start=True)
        met.append(choice)
        if isinstance(choice, Drop):
            search.finish(choice.number, outcome(TrialState.PRUNED))
            new = search.choose(8 + len(forks), may_start=True)
            assert isinstance(new, New)
            assert new.fork is not None
            forks.append(new.fork)
    assert [choice.number for choice in met if isinstance(choice, Drop)] == [3, 5]
    assert [choice.number for choice in met if isinstance(choice, GoOn)] == [0, 1, 2, 4, 6, 7]
    assert {(fork.number, fork.step) for fork in forks} <= {(2, INTERVAL), (6, INTERVAL)}
    assert isinstance(met[3], Drop)
    assert met[3].why == ("among the worst 2 of 8 in its population at step 10: a fork of a better one takes its place")


def test_without_a_trial_left_nobody_is_dropped() -> None:
    search = search_of(4)
    ready(search, 0.4, 0.3, 0.2, 0.1)
    assert [search.choose(4, may_start=False) for _ in range(5)] == [*(GoOn(number) for number in range(4)), None]


def test_one_that_is_ahead_is_judged_where_the_others_have_come() -> None:
    search = search_of(4)
    for number in range(4):
        search.choose(number, may_start=True)
    search.report(0, INTERVAL, 0.9)
    assert search.choose(4, may_start=True) == GoOn(0)
    for number in (1, 2, 3):
        search.report(number, INTERVAL, 0.1 * number)
    search.report(0, 2 * INTERVAL, 0.05)
    assert [search.choose(4, may_start=True) for _ in range(3)] == [GoOn(1), GoOn(2), GoOn(3)]
    dropped = search.choose(4, may_start=True)
    assert isinstance(dropped, Drop)
    assert dropped.number == 0
    assert dropped.why.startswith("among the worst 1 of 4 in its population at step 10: ")


def test_equally_bad_members_go_on() -> None:
    search = search_of(4)
    ready(search, math.nan, math.nan, math.inf, math.nan)
    assert [search.choose(4, may_start=True) for _ in range(4)] == [GoOn(number) for number in range(4)]


def test_nobody_is_judged_by_fewer_than_are_worth_comparing() -> None:
    search = search_of(8)
    for number in range(8):
        search.choose(number, may_start=True)
    for number in range(3):
        search.report(number, INTERVAL, float(number))
    assert [search.choose(8, may_start=True) for _ in range(3)] == [GoOn(0), GoOn(1), GoOn(2)]


def test_a_place_stays_vacant_until_there_is_a_checkpoint_to_begin_from() -> None:
    search = search_of(3)
    for number in range(3):
        search.choose(number, may_start=True)
    search.finish(0, outcome(TrialState.CANCELLED))
    assert search.choose(3, may_start=True) is None
    search.report(1, INTERVAL, 0.5)
    choice = search.choose(3, may_start=True)
    assert isinstance(choice, New)
    assert choice.fork == Fork(1, INTERVAL)
    assert search.until(3) == 2 * INTERVAL


def test_no_second_fork_begins_where_one_could_not() -> None:
    search = search_of(2)
    ready(search, 0.1, 0.9)
    assert search.choose(2, may_start=True) == GoOn(0)
    search.finish(1, outcome(TrialState.CANCELLED))
    assert isinstance(search.choose(2, may_start=True), New)
    search.finish(2, outcome(TrialState.FAILED, FailureReason.LOST))
    assert search.choose(3, may_start=True) is None
    search.report(0, 2 * INTERVAL, 0.1)
    again = search.choose(3, may_start=True)
    assert isinstance(again, New)
    assert again.fork == Fork(0, 2 * INTERVAL)


def test_a_fork_is_measured_anew_only_after_its_beginning() -> None:
    search = search_of(2)
    ready(search, 0.1, 0.9)
    choice = search.choose(2, may_start=True)
    assert choice == GoOn(0)
    assert isinstance(search.choose(2, may_start=True), Drop)
    search.finish(1, outcome(TrialState.PRUNED))
    assert isinstance(search.choose(2, may_start=True), New)
    assert search.report(2, INTERVAL, 0.1) is Decision.CONTINUE
    assert search.report(2, INTERVAL + 1, 0.1) is Decision.CONTINUE
    assert search.report(2, 2 * INTERVAL, 0.1) is Decision.PAUSE
    assert search.until(2) == 3 * INTERVAL
    assert search.report(2, 3 * INTERVAL, 0.1) is Decision.PAUSE
    assert search.until(2) is None


def test_a_restored_job_forks_as_the_interrupted_one_would_have() -> None:
    whole, interrupted = Population(), Population()
    whole.run(num_slots=1)
    interrupted.run(num_slots=1, crash_every=13)
    assert {n: (row.state, row.fork, row.parameters) for n, row in whole.rows.items()} == {
        n: (row.state, row.fork, row.parameters) for n, row in interrupted.rows.items()
    }


@pytest.mark.parametrize(("population", "interval"), [(0, 10), (4, 0)])
def test_what_is_not_positive_is_refused(population: int, interval: int) -> None:
    with pytest.raises(ValueError, match=f"got {population} and {interval}"):
        PopulationSearch(
            make_sampler("random", SPACE, directions=[Direction.MINIMIZE], num_trials=20, seed="a"),
            SPACE,
            direction=Direction.MINIMIZE,
            population=population,
            interval=interval,
            max_steps=MAX_STEPS,
            seed="b",
        )


@pytest.mark.slow
def test_parameters_of_forks_stay_in_their_ranges() -> None:
    job = Population(num_trials=200, population=6)
    job.run(num_slots=3)
    values: list[dict[str, Scalar]] = [dict(row.parameters) for row in job.rows.values()]
    assert all(SPACE.check(each) == each for each in values)
