"""Sides that share a job's time: each gets its part of the seconds, whatever a trial of it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from search_spaces import SearchSpace
from service.domain import Direction, Phase, Side, TrialState
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import Done, Start, TrialHistory, Wait
from service.scheduler.policy.searching.phase_search import SampledSearch
from service.scheduler.policy.searching.pruners import NoPruner
from service.scheduler.policy.searching.samplers import make_sampler
from service.scheduler.policy.side_times import SideTimes
from service.scheduler.policy.sides import SidePlan
from tests.support.service.searching.simulation import BASELINE_SPACE, SEARCH_SPACE

SEARCH, ADAMW = Phase.SEARCH, "adamw"


def _plan(side: Side, space: SearchSpace, num_trials: int) -> SidePlan:
    def search() -> SampledSearch:
        sampler = make_sampler(
            "random", space, directions=[Direction.MINIMIZE], num_trials=num_trials, seed=f"0/{side}"
        )
        return SampledSearch(sampler, NoPruner())

    return SidePlan(side, space, num_trials, search)


def _policy(num_search: int = 40, num_baseline: int = 40, *, by_time: bool = True) -> JobPolicy:
    plans = [_plan(SEARCH, SEARCH_SPACE, num_search), _plan(ADAMW, BASELINE_SPACE, num_baseline)]
    return JobPolicy(plans, by_time=by_time)


def _run(
    policy: JobPolicy, costs: dict[Side, float], *, slots: int, limit: float
) -> tuple[Counter[Side], dict[Side, float]]:
    """Trains in `slots` rank groups until `limit`; trials and seconds of each side, measured twice a trial."""
    clock, trials = 0.0, Counter[Side]()
    seconds: dict[Side, float] = {SEARCH: 0.0, ADAMW: 0.0}
    running: list[tuple[float, Start, bool]] = []
    while True:
        while len(running) < slots:
            asked = policy.ask()
            if isinstance(asked, Wait | Done):
                break
            assert isinstance(asked, Start)
            running.append((clock + costs[asked.side] / 2, asked, False))
        if not running:
            return trials, seconds
        clock, asked, is_half = min(running, key=lambda entry: (entry[0], entry[1].number))
        if clock > limit:
            return trials, seconds
        running.remove((clock, asked, is_half))
        cost = costs[asked.side]
        policy.report(asked.number, 2 if is_half else 1, 1.0, seconds=cost if is_half else cost / 2)
        seconds[asked.side] += cost / 2
        if is_half:
            policy.tell(asked.number, TrialState.COMPLETED, (1.0,))
            trials[asked.side] += 1
        else:
            running.append((clock + cost / 2, asked, True))


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize("costs", [{SEARCH: 1.0, ADAMW: 5.0}, {SEARCH: 5.0, ADAMW: 1.0}], ids=["dear", "cheap"])
def test_a_limit_of_time_gives_each_side_as_many_seconds(costs: dict[Side, float], slots: int) -> None:
    trials, seconds = _run(_policy(), costs, slots=slots, limit=60.0 / slots)
    assert abs(seconds[SEARCH] - seconds[ADAMW]) <= slots * max(costs.values())
    assert min(seconds.values()) > 20.0
    assert min(trials.values()) < 10 < max(trials.values())
    equal, unequal = _run(_policy(by_time=False), costs, slots=slots, limit=60.0 / slots)
    assert max(equal.values()) - min(equal.values()) <= slots
    assert max(unequal.values()) > 3 * min(unequal.values())


def test_a_side_with_all_of_its_trials_leaves_the_rest_of_the_time_to_the_other() -> None:
    trials, seconds = _run(_policy(40, 5), {SEARCH: 1.0, ADAMW: 0.5}, slots=1, limit=30.0)
    assert (trials[ADAMW], seconds[ADAMW]) == (5, 2.5)
    assert seconds[SEARCH] == 27.5


def test_time_is_shared_as_the_trials_are_and_a_restored_policy_goes_on_with_it() -> None:
    def rows(of_baseline: Sequence[float], *, state: TrialState = TrialState.COMPLETED) -> list[TrialHistory]:
        curve, values = ((1, 1.0), (2, 1.0)), (1.0,) if state is TrialState.COMPLETED else ()
        baseline, search = BASELINE_SPACE.defaults(), SEARCH_SPACE.defaults()
        return [
            TrialHistory(0, SEARCH, search, TrialState.COMPLETED, values=(1.0,), curve=curve, seconds=(5.0, 10.0)),
            TrialHistory(1, ADAMW, baseline, state, values=values, curve=curve, seconds=tuple(of_baseline)),
        ]

    for of_baseline, num_baseline, turn in [
        ((1.0, 2.0), 40, ADAMW),
        ((10.0, 20.0), 40, SEARCH),
        ((1.0, 4.0), 10, SEARCH),
    ]:
        policy = _policy(40, num_baseline)
        policy.restore(rows(of_baseline))
        asked = policy.ask()
        assert isinstance(asked, Start)
        assert asked.side == turn


def test_a_fork_is_not_charged_what_its_parent_trained_nor_anyone_what_is_measured_again() -> None:
    times = SideTimes({SEARCH: 1, ADAMW: 1})
    times.begin(0, SEARCH)
    times.measured(0, 10.0)
    times.stop(0)
    times.begin(1, SEARCH, is_fork=True)
    for seconds in (10.0, 13.0, 12.0):
        times.measured(1, seconds)
    times.stop(1)
    assert (times.share(SEARCH), times.share(ADAMW)) == (13.0, 0.0)
    times.run(1)  # is expected to take as long as the other
    assert times.share(SEARCH) == 20.0
