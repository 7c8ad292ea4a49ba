"""The job's policy: allotments, interleaving, interruption and restoring, and what its sampler learns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import Scalar, SearchSpace, SpaceError
from service.domain import Direction, FailureReason, Phase, TrialState
from service.scheduler.policy.confirmation import Confirmation
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.protocol import (
    Ask,
    Decision,
    Done,
    Fork,
    GiveUp,
    Policy,
    Repeats,
    Resume,
    Start,
    TrialHistory,
    Wait,
)
from service.scheduler.policy.searching.phase_search import Choice, GoOn, New, PhaseSearch, SampledSearch, TrialOutcome
from service.scheduler.policy.searching.pruners import NoPruner
from service.scheduler.policy.searching.samplers import make_sampler
from service.scheduler.policy.sides import SidePlan
from tests.support.service.searching.simulation import BASELINE_SPACE, SEARCH_SPACE

SEARCH, BASELINE, CONFIRMATION = Phase.SEARCH, Phase.BASELINE, Phase.CONFIRMATION


def _policy(num_search: int = 4, num_baseline: int = 2, *, sampler: str = "random") -> JobPolicy:
    return JobPolicy(
        [
            _plan(SEARCH, SEARCH_SPACE, num_search, sampler=sampler),
            _plan(BASELINE, BASELINE_SPACE, num_baseline, sampler=sampler),
        ]
    )


def _plan(
    phase: Phase,
    space: SearchSpace,
    num_trials: int,
    *,
    sampler: str = "tpe",
    pinned: tuple[Mapping[str, Scalar], ...] = (),
) -> SidePlan:
    def search() -> PhaseSearch:
        made = make_sampler(
            sampler,  # type: ignore[arg-type]
            space,
            directions=[Direction.MINIMIZE],
            num_trials=num_trials,
            seed=f"0/{phase}",
        )
        return SampledSearch(made, NoPruner())

    return SidePlan(phase, space, num_trials, search, pinned)


def _started(ask: Ask) -> Start:
    assert isinstance(ask, Start)
    return ask


def test_it_is_a_policy() -> None:
    policy: Policy = _policy()
    assert isinstance(policy.ask(), Start)


def test_phases_are_interleaved_by_share_and_ties_go_to_the_search() -> None:
    policy = _policy(6, 3)
    phases = [_started(policy.ask()).phase for _ in range(9)]
    assert phases == [SEARCH, BASELINE, SEARCH, SEARCH, BASELINE, SEARCH, SEARCH, BASELINE, SEARCH]


def test_defaults_of_each_branch_come_first_then_pinned_assignments() -> None:
    pinned = {**SEARCH_SPACE.defaults(), "lr": 0.02}
    policy = JobPolicy([_plan(SEARCH, SEARCH_SPACE, 4, pinned=(pinned,))])
    tried = [dict(_started(policy.ask()).parameters) for _ in range(4)]
    assert tried[:3] == [SEARCH_SPACE.defaults(), SEARCH_SPACE.defaults({"grafting": "sgd"}), pinned]
    assert tried[3] not in tried[:3]


def test_a_pinned_assignment_outside_the_space_is_refused() -> None:
    plan = _plan(BASELINE, BASELINE_SPACE, 3, pinned=({"lr": 5.0},))
    with pytest.raises(SpaceError, match=r"lr.*5\.0"):
        JobPolicy([plan])


def test_it_waits_for_running_trials_and_is_done_when_all_have_ended() -> None:
    policy = _policy(1, 1)
    assert not policy.is_done
    numbers = [_started(policy.ask()).number, _started(policy.ask()).number]
    assert policy.ask() == Wait()
    policy.tell(numbers[0], TrialState.COMPLETED, (1.0,))
    assert policy.ask() == Wait()
    policy.tell(numbers[1], TrialState.FAILED, (), FailureReason.ERROR)
    assert policy.ask() == Done()
    assert policy.is_done


def test_a_requeued_trial_comes_back_before_anything_new() -> None:
    policy = _policy()
    first = _started(policy.ask())
    policy.report(first.number, 1, 2.0)
    policy.tell(first.number, TrialState.QUEUED)
    with pytest.raises(ValueError, match="waiting"):
        policy.report(first.number, 2, 2.0)
    assert policy.ask() == Resume(first.number, first.phase, first.parameters)
    assert isinstance(policy.ask(), Start)


class _PausesAtTwo:
    """Pauses trials at step 2 and goes on with the first of them alone."""

    def __init__(self) -> None:
        self._paused: list[int] = []
        self._num_chosen = 0

    def choose(self, number: int, *, may_start: bool) -> Choice:
        if may_start:
            return New(SEARCH_SPACE.defaults())
        if not self._paused or self._num_chosen:
            return None
        self._num_chosen += 1
        return GoOn(self._paused.pop(0))

    def begin(self, number: int, parameters: Mapping[str, Scalar], *, fork: Fork | None = None) -> None: ...

    def until(self, number: int) -> int | None:
        return 2 if number not in self._paused else None

    def report(self, number: int, step: int, value: float) -> Decision:
        if step == 2:
            self._paused.append(number)
        return Decision.PAUSE if step == 2 else Decision.CONTINUE

    def interrupt(self, number: int) -> None:
        if number in self._paused:
            self._paused.remove(number)

    def finish(self, number: int, outcome: TrialOutcome) -> None: ...


def test_paused_trials_go_on_when_chosen_and_are_given_up_at_the_end() -> None:
    plan = SidePlan(SEARCH, SEARCH_SPACE, 3, _PausesAtTwo)
    policy = JobPolicy([plan])
    started = [_started(policy.ask()) for _ in range(3)]
    assert [start.until for start in started] == [2, 2, 2]
    history = []
    for start in started:
        assert policy.report(start.number, 2, 1.0) is Decision.PAUSE
        history.append(TrialHistory(start.number, SEARCH, start.parameters, TrialState.QUEUED, curve=((2, 1.0),)))
    # A run that begins anew knows them as paused, too.
    restored = JobPolicy([plan])
    restored.restore(history)
    for each in (policy, restored):
        resumed = each.ask()
        assert isinstance(resumed, Resume)
        assert resumed.number == 0
        assert each.ask() == Wait()
        assert each.report(0, 3, 1.0) is Decision.CONTINUE
        each.tell(0, TrialState.COMPLETED, (1.0,))
        for number in (1, 2):
            assert each.ask() == GiveUp(number)
            each.tell(number, TrialState.PRUNED)
        assert each.ask() == Done()
        assert each.is_done


def test_a_trial_that_a_user_has_tried_again_is_neither_paused_nor_given_up() -> None:
    policy = JobPolicy([SidePlan(SEARCH, SEARCH_SPACE, 1, _PausesAtTwo)])
    parameters = SEARCH_SPACE.defaults()
    policy.restore([TrialHistory(0, SEARCH, parameters, TrialState.QUEUED, curve=((1, 1.0), (2, 1.0)), spared=True)])
    assert policy.ask() == Resume(0, SEARCH, parameters, None)
    assert policy.report(0, 2, 1.0) is Decision.CONTINUE  # measured again
    policy.tell(0, TrialState.QUEUED)
    assert policy.ask() == Resume(0, SEARCH, parameters, None)

    anew = JobPolicy([SidePlan(SEARCH, SEARCH_SPACE, 1, _PausesAtTwo)])
    anew.restore([TrialHistory(0, SEARCH, parameters, TrialState.QUEUED, spared=True)])
    anew.ask()
    assert [anew.report(0, step, 1.0) for step in (1, 2, 3)] == [Decision.CONTINUE] * 3
    anew.tell(0, TrialState.COMPLETED, (1.0,))
    assert anew.ask() == Done()


def test_a_pinned_assignment_that_equals_the_defaults_or_another_is_tried_once() -> None:
    defaults = SEARCH_SPACE.defaults()
    plan = _plan(SEARCH, SEARCH_SPACE, 20)
    alone, pinned = JobPolicy([plan]), JobPolicy([replace(plan, pinned=(defaults, defaults))])
    for _ in range(4):
        assert alone.ask() == pinned.ask()


def test_a_phase_starts_no_more_trials_once_its_patience_is_at_its_end() -> None:
    plan = replace(_plan(SEARCH, SEARCH_SPACE, 20), patience=3)
    policy = JobPolicy([plan])
    running = [_started(policy.ask()).number for _ in range(4)]
    for number, value in zip(running, (5.0, math.nan, 2.0, 3.0), strict=True):
        policy.tell(number, TrialState.COMPLETED, (value,))  # the best is trial 2, and one was begun after it
    for state in (TrialState.CANCELLED, TrialState.PRUNED):
        policy.tell(_started(policy.ask()).number, state)  # what was cancelled does not count
    last = _started(policy.ask()).number
    policy.tell(last, TrialState.FAILED, (), FailureReason.DIVERGED)
    assert policy.ask() == Done()
    assert policy.is_done


def test_a_closed_job_starts_nothing_and_goes_on_with_what_there_is() -> None:
    policy = JobPolicy([SidePlan(SEARCH, SEARCH_SPACE, 20, _PausesAtTwo), _plan(BASELINE, BASELINE_SPACE, 3)])
    for number in range(2):
        assert _started(policy.ask()).number == number
    policy.close()
    assert policy.ask() == Wait()
    policy.report(0, 2, 1.0)
    policy.tell(1, TrialState.COMPLETED, (1.0,))
    assert isinstance(policy.ask(), Resume)
    policy.tell(0, TrialState.COMPLETED, (1.0,))
    assert policy.ask() == Done(is_early=True)
    assert policy.is_done


def test_a_job_that_is_closed_when_it_has_begun_everything_is_not_early() -> None:
    policy = JobPolicy([_plan(SEARCH, SEARCH_SPACE, 1)])
    number = _started(policy.ask()).number
    policy.close()
    policy.tell(number, TrialState.COMPLETED, (1.0,))
    assert policy.ask() == Done()


def test_a_paused_trial_can_be_cancelled() -> None:
    policy = JobPolicy([SidePlan(SEARCH, SEARCH_SPACE, 1, _PausesAtTwo)])
    policy.report(_started(policy.ask()).number, 2, 1.0)
    policy.tell(0, TrialState.CANCELLED)
    assert policy.is_done


def test_repeated_steps_of_a_resumed_trial_change_nothing() -> None:
    policy = _policy()
    first = _started(policy.ask())
    for step in (1, 2, 3):
        policy.report(first.number, step, 1.0)
    assert policy.report(first.number, 2, 1e9) is Decision.CONTINUE


def test_calls_about_unknown_and_ended_trials_are_refused() -> None:
    policy = _policy()
    with pytest.raises(ValueError, match="unknown trial 7"):
        policy.report(7, 1, 1.0)
    number = _started(policy.ask()).number
    with pytest.raises(ValueError, match="running"):
        policy.tell(number, TrialState.RUNNING)
    policy.tell(number, TrialState.CANCELLED)
    with pytest.raises(ValueError, match="already ended"):
        policy.tell(number, TrialState.CANCELLED)


def test_an_impossible_history_is_refused() -> None:
    row = TrialHistory(0, SEARCH, SEARCH_SPACE.defaults(), TrialState.COMPLETED, values=(1.0,))
    with pytest.raises(ValueError, match="trial 0 appears twice"):
        _policy().restore([row, row])
    with pytest.raises(SpaceError, match="lr"):
        _policy().restore([replace(row, parameters={"grafting": "adam"})])
    policy = _policy()
    policy.ask()
    with pytest.raises(ValueError, match="1 trials are known"):
        policy.restore([row])
    only_search = JobPolicy([_plan(SEARCH, SEARCH_SPACE, 1)])
    with pytest.raises(ValueError, match="baseline"):
        only_search.restore([TrialHistory(0, BASELINE, {"lr": 0.1}, TrialState.QUEUED)])


def test_impossible_plans_are_refused() -> None:
    plan = _plan(SEARCH, SEARCH_SPACE, 1)
    with pytest.raises(ValueError, match="twice"):
        JobPolicy([plan, plan])
    with pytest.raises(ValueError, match="-1"):
        JobPolicy([replace(plan, num_trials=-1)])
    with pytest.raises(ValueError, match="unknown sampler 'annealing'"):
        JobPolicy([_plan(SEARCH, SEARCH_SPACE, 1, sampler="annealing")])


def test_unfinished_trials_are_resumed_first_in_the_order_of_their_numbers() -> None:
    defaults = SEARCH_SPACE.defaults()
    policy = _policy(sampler="tpe")
    policy.restore(
        [
            TrialHistory(5, SEARCH, defaults, TrialState.QUEUED),
            TrialHistory(1, BASELINE, {"lr": 0.1}, TrialState.RUNNING, curve=((1, math.nan), (2, math.inf))),
            TrialHistory(3, SEARCH, defaults, TrialState.FAILED, FailureReason.DIVERGED),
        ]
    )
    assert [policy.ask(), policy.ask()] == [Resume(1, BASELINE, {"lr": 0.1}), Resume(5, SEARCH, defaults)]
    assert [_started(policy.ask()).number for _ in range(3)] == [6, 7, 8]
    assert policy.ask() == Wait()


_ENDINGS = st.sampled_from(
    [
        (TrialState.COMPLETED, None),
        (TrialState.PRUNED, None),
        (TrialState.CANCELLED, None),
        (TrialState.QUEUED, None),
        *((TrialState.FAILED, reason) for reason in FailureReason),
    ]
)


@pytest.mark.slow
@given(st.data())
def test_whatever_the_endings_each_phase_gets_its_trials_and_nothing_is_left_running(data: st.DataObject) -> None:
    allotted = {SEARCH: data.draw(st.integers(0, 7)), BASELINE: data.draw(st.integers(0, 4))}
    policy = _policy(allotted[SEARCH], allotted[BASELINE], sampler="tpe")
    started: dict[int, Phase] = {}
    running: list[int] = []
    for _ in range(200):
        work = policy.ask() if data.draw(st.booleans()) or not running else Wait()
        if isinstance(work, Start):
            assert work.number not in started
            started[work.number] = work.phase
        if isinstance(work, Start | Resume):
            running.append(work.number)
        elif isinstance(work, Done):
            break
        elif running:
            number = data.draw(st.sampled_from(running))
            for step in range(data.draw(st.integers(0, 2))):
                policy.report(number, step, data.draw(st.floats()))
            running.remove(number)
            state, reason = data.draw(_ENDINGS)
            policy.tell(number, state, data.draw(st.just(()) | st.tuples(st.floats())), reason)
    else:
        return  # requeued again and again
    assert not running
    assert policy.is_done
    assert Counter(started.values()) == +Counter(allotted)
    assert sorted(started) == list(range(sum(allotted.values())))


def test_confirmation_trials_that_failed_are_not_repeated_and_interrupted_ones_go_on() -> None:
    row = TrialHistory(0, SEARCH, SEARCH_SPACE.defaults(), TrialState.COMPLETED, values=(1.0,))
    failed = TrialHistory(
        1, SEARCH, row.parameters, TrialState.FAILED, FailureReason.DIVERGED, repeats=Repeats(0, SEARCH, 1)
    )
    running = TrialHistory(
        2, SEARCH, row.parameters, TrialState.RUNNING, curve=((1, 5.0),), repeats=Repeats(0, SEARCH, 2)
    )
    confirmation = Confirmation(top_k=2, choosing=[1], comparing=[2, 3], direction=Direction.MINIMIZE)
    policy = JobPolicy([_plan(SEARCH, SEARCH_SPACE, 1)], confirmation=confirmation)
    policy.restore([row, failed, running])
    assert not policy.is_done
    assert policy.ask() == Resume(2, SEARCH, row.parameters)
    assert policy.ask() == Wait()  # the config has failed, and no other can take its place
    assert policy.report(2, 2, 1e9) is Decision.CONTINUE
    policy.tell(2, TrialState.COMPLETED, (1e9,))
    assert policy.ask() == Done()
    assert policy.is_done


def test_a_history_that_confirms_what_the_job_does_not_is_refused() -> None:
    row = TrialHistory(0, SEARCH, SEARCH_SPACE.defaults(), TrialState.COMPLETED, values=(1.0,))
    repeated = TrialHistory(1, SEARCH, row.parameters, TrialState.QUEUED, repeats=Repeats(0, SEARCH, 1))
    with pytest.raises(ValueError, match="trial 1 belongs to phase confirmation, which the job does not have"):
        _policy().restore([row, repeated])
    confirmation = Confirmation(top_k=1, choosing=[], comparing=[1], direction=Direction.MINIMIZE)
    policy = JobPolicy([_plan(SEARCH, SEARCH_SPACE, 1)], confirmation=confirmation)
    with pytest.raises(ValueError, match="trial 1 repeats trial 0, which is unknown"):
        policy.restore([repeated])
