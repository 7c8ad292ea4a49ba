"""Budgets that change, and jobs that have ended and go on: what changes in the rows."""

from __future__ import annotations

import pytest

from service.domain import CancelCause, CutShort, JobRequest, JobState, Phase, TrialState
from service.errors import (
    BudgetSpent,
    InvalidInput,
    RunAskedToEnd,
    TooFewTrials,
)
from service.evidence.types import EvidenceStatus
from service.scheduler.policy.history import history_of
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Resume
from service.scheduler.stored_job import read_stored
from service.specification.job import Budget
from service.specification.planning import plan_job
from service.store.repositories import EventRepository, RecommendationRepository, TrialRepository
from service.store.session import Database
from service.use_cases import going_on
from service.use_cases.run import finish_job
from service.use_cases.steer import cancel_job
from service.use_cases.transitions import BUDGET_SPENT, STOPPED
from tests.support.service.caveats import sentences_of
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_repeat,
    begin_trial,
    claim,
    claimed_job,
    end_trial,
    measure,
    repeat_trial,
    run_trial,
)
from tests.support.service.steering import (
    change,
    finish,
    finished,
    job_of,
    later,
    pause,
    resume,
    retry,
    stop,
    trial_of,
)


def test_a_larger_budget_restarts_the_run_which_begins_nothing_more(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1, Phase.BASELINE)
    job = change(database, lease.job_id, num_trials=12, wall_clock_seconds=100.0)
    assert (job.num_trials, job.requested) == (12, JobRequest.RESTART)
    assert job.specification.budget == Budget(num_trials=12, wall_clock_seconds=100.0)
    with pytest.raises(RunAskedToEnd):
        begin_trial(database, lease, 2)
    measure(database, lease, 1, 10, 0.9)
    # The run was about to finish the job with the old budget.
    assert finish(database, lease) is JobState.QUEUED
    assert trial_of(database, lease.job_id, 1).state is TrialState.QUEUED
    with database.reading() as session:
        changed = [
            event for event in EventRepository(session).after(0, project=None, limit=100) if event.kind == "job.changed"
        ]
    assert [event.data["budget"]["num_trials"] for event in changed] == [12]


def test_a_run_that_cannot_go_on_fails_the_job_whatever_was_asked(database: Database) -> None:
    lease = claimed_job(database)
    change(database, lease.job_id, num_trials=12)
    assert finish(database, lease, failure="no such space") is JobState.FAILED


def test_a_budget_that_stays_the_same_disturbs_nothing(database: Database) -> None:
    lease = claimed_job(database)
    assert change(database, lease.job_id, num_trials=4).requested is None
    with database.reading() as session:
        assert all(event.kind != "job.changed" for event in EventRepository(session).after(0, project=None, limit=100))


def test_the_budget_cannot_fall_below_what_has_begun_in_any_phase(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 12})  # 9 and 3
    for number in range(5):
        begin_trial(database, lease, number)
    with pytest.raises(InvalidInput, match="5 would leave 4 for the search, which has begun 5") as refused:
        change(database, lease.job_id, num_trials=5)
    assert refused.value.field == "budget.num_trials"
    with pytest.raises(
        TooFewTrials, match=r"^budget.num_trials: a job with a baseline needs at least 2 trials, got 1$"
    ):
        change(database, lease.job_id, num_trials=1)
    assert job_of(database, lease.job_id).num_trials == 12
    assert change(database, lease.job_id, num_trials=7).num_trials == 7


def test_a_job_whose_search_began_one_trial_more_than_it_is_allotted_today_takes_another_limit(
    database: Database,
) -> None:
    lease = claimed_job(database, budget={"num_trials": 5}, baseline={})  # 2 and 2
    for number in range(3):
        begin_trial(database, lease, number)
    assert change(database, lease.job_id, wall_clock_seconds=60.0).specification.budget.wall_clock_seconds == 60.0
    with pytest.raises(InvalidInput, match="3 would leave 1 for the search, which has begun 3"):
        change(database, lease.job_id, num_trials=3)


def test_an_extended_job_may_confirm_more_configs_than_it_was_to(database: Database) -> None:
    lease = claimed_job(database, baseline=None, confirmation={"top_k": 1, "num_seeds": 2})
    run_trial(database, lease, 0, 0.5)
    repeat_trial(database, lease, 1, 0.5, confirms=0, seed=1)
    repeat_trial(database, lease, 2, 0.5, confirms=0, seed=2)
    run_trial(database, lease, 3, 0.4)
    repeat_trial(database, lease, 4, 0.4, confirms=3, seed=1)
    assert change(database, lease.job_id, num_trials=5).num_trials == 5 + 2
    assert change(database, lease.job_id, wall_clock_seconds=100.0).num_trials == 5 + 2


def test_the_trials_of_the_confirmation_are_no_part_of_the_budget_that_is_spent(database: Database) -> None:
    lease = claimed_job(database, baseline=None, budget={"num_trials": 1}, confirmation={"top_k": 1, "num_seeds": 2})
    run_trial(database, lease, 0, 0.5)
    for seed in (1, 2):
        repeat_trial(database, lease, seed, 0.5, confirms=0, seed=seed)
    finish(database, lease)
    with pytest.raises(BudgetSpent, match=r"raise budget.num_trials first: 1 of 1 are spent"):
        resume(database, lease.job_id)


@pytest.mark.parametrize("failure", [None, "the cluster is too small"])
def test_confirmation_trials_that_went_with_their_job_are_trained_again_when_it_goes_on(
    database: Database, failure: str | None
) -> None:
    lease = claimed_job(database, baseline=None, budget={"num_trials": 2}, confirmation={"top_k": 1, "num_seeds": 2})
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    begin_repeat(database, lease, 2, confirms=0, seed=1)
    if failure is None:
        with database.writing() as session:
            cancel_job(session, lease.job_id, now=NOW)
    else:
        finish(database, lease, failure=failure)
    resume(database, lease.job_id)
    assert [trial_of(database, lease.job_id, n).state for n in (1, 2)] == [TrialState.CANCELLED, TrialState.QUEUED]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_comparison_that_ended_early_leaves_nothing_to_resume(database: Database, is_stopped: bool) -> None:
    lease = claimed_job(database, baseline=None, budget={"num_trials": 2}, confirmation={"top_k": 1, "num_seeds": 6})
    run_trial(database, lease, 0, 0.5)
    if is_stopped:  # a user's stop leaves nothing to be done either
        begin_trial(database, lease, 1)
        stop(database, lease.job_id, 1)
        end_trial(database, lease, 1, TrialState.CANCELLED, detail=STOPPED)
    else:
        run_trial(database, lease, 1, 0.6)
    repeat_trial(database, lease, 2, 0.5, confirms=0, seed=1)
    assert finish(database, lease) is JobState.SUCCEEDED
    job = job_of(database, lease.job_id)
    assert job.num_trials == 3
    with database.reading() as session:
        assert not going_on.budget_is_left(session, job, now=NOW)
    with pytest.raises(BudgetSpent, match=r"num_trials first: it ended with 3 trials, and nothing was left to try"):
        resume(database, lease.job_id)
    change(database, lease.job_id, num_trials=3)
    assert resume(database, lease.job_id).state is JobState.QUEUED


@pytest.mark.parametrize("ends", ["cancelled", "out of time"])
def test_a_job_that_ends_while_it_confirms_has_a_provisional_answer(database: Database, ends: str) -> None:
    lease = claimed_job(database, budget={"num_trials": 4}, confirmation={"top_k": 1, "num_seeds": 6})
    for number, phase in enumerate([Phase.SEARCH, Phase.BASELINE, Phase.SEARCH, Phase.SEARCH]):
        run_trial(database, lease, number, 0.5 - 0.1 * number, phase)
    repeat_trial(database, lease, 4, 0.5, confirms=3, seed=1)
    begin_repeat(database, lease, 5, confirms=1, seed=1)
    if ends == "cancelled":
        with database.writing() as session:
            cancel_job(session, lease.job_id, now=NOW)
    else:
        finish(database, lease)
    with database.reading() as session:
        found = RecommendationRepository(session).of_job(lease.job_id)
    assert found is not None
    assert (found.status, found.content["evidence"]["best"]["number"]) == (EvidenceStatus.PROVISIONAL, 3)
    caveats = sentences_of(found.content["evidence"]["caveats"])
    assert "The confirmation did not finish: 0 of 6 seeds were compared." in caveats
    assert resume(database, lease.job_id).state is JobState.QUEUED


def test_a_job_that_is_cancelled_while_it_searches_has_no_answer(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    with database.writing() as session:
        cancel_job(session, lease.job_id, now=NOW)
    with database.reading() as session:
        assert RecommendationRepository(session).of_job(lease.job_id) is None


def test_a_finished_job_with_a_larger_budget_goes_on(database: Database) -> None:
    lease = finished(database)
    with pytest.raises(BudgetSpent, match=r"has succeeded and cannot go on: raise budget.num_trials first"):
        resume(database, lease.job_id)
    assert change(database, lease.job_id, num_trials=8).state is JobState.SUCCEEDED
    job = resume(database, lease.job_id, after=100)
    assert (job.state, job.finished_at) == (JobState.QUEUED, None)
    again = claim(database, add_worker(database), now=later(100))
    assert again is not None
    assert again.attempt == 2
    for number in range(4, 8):
        run_trial(database, again, number, 0.4 if number == 6 else 0.6, now=later(110))
    assert finish(database, again) is JobState.SUCCEEDED
    with database.reading() as session:
        assert [t.state for t in TrialRepository(session).page(lease.job_id)][:4] == [
            *[TrialState.COMPLETED] * 3,
            TrialState.PRUNED,
        ]
        recommendation = RecommendationRepository(session).of_job(lease.job_id)
    assert recommendation is not None
    assert recommendation.content["evidence"]["best"]["number"] == 6


def test_confirmation_trials_that_the_time_cut_off_go_on_when_there_is_more_of_it(
    database: Database,
) -> None:
    lease = claimed_job(
        database,
        baseline=None,
        budget={"num_trials": 2, "wall_clock_seconds": 20},
        confirmation={"top_k": 1, "num_seeds": 3},
    )
    run_trial(database, lease, 0, 0.5)
    run_trial(database, lease, 1, 0.6)
    repeat_trial(database, lease, 2, 0.5, confirms=0, seed=1)
    for number, seed in ((3, 2), (4, 3)):
        begin_repeat(database, lease, number, confirms=0, seed=seed)
        measure(database, lease, number, 10, 0.9)
    stop(database, lease.job_id, 4)
    end_trial(database, lease, 4, TrialState.CANCELLED, detail=STOPPED)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=later(25))
    assert [trial_of(database, lease.job_id, n).state for n in (3, 4)] == [TrialState.CANCELLED] * 2
    change(database, lease.job_id, wall_clock_seconds=100.0)
    job = resume(database, lease.job_id, after=30)  # nothing but these trials is left
    assert (job.state, job.num_trials) == (JobState.QUEUED, 5)
    again, stopped = (trial_of(database, lease.job_id, number) for number in (3, 4))
    assert (again.state, again.step, again.finished_at) == (TrialState.QUEUED, 10, None)
    assert (stopped.state, stopped.detail) == (TrialState.CANCELLED, STOPPED)
    claimed = claim(database, add_worker(database), now=later(31))
    assert claimed is not None
    stored = read_stored(database, claimed)
    policy = make_policy(plan_job(stored.job.specification))
    policy.restore(history_of(stored.trials, stored.job.objectives))
    asked = policy.ask()
    assert isinstance(asked, Resume)
    assert (asked.number, asked.side, asked.until) == (3, Phase.SEARCH, None)
    policy.tell(3, TrialState.COMPLETED, [0.5])
    assert policy.is_done


@pytest.mark.parametrize("has_completed", [True, False])
def test_trials_of_both_sides_that_the_time_cut_off_go_on_when_there_is_more_of_it(
    database: Database, has_completed: bool
) -> None:
    lease = claimed_job(database, budget={"num_trials": 4, "wall_clock_seconds": 20})  # 3 and 1
    if has_completed:
        run_trial(database, lease, 0, 0.5)
    else:  # without an answer, the end of the time is a failure
        begin_trial(database, lease, 0)
        end_trial(database, lease, 0, TrialState.PRUNED)
    for number, phase in ((1, Phase.SEARCH), (2, Phase.BASELINE), (3, Phase.SEARCH)):
        begin_trial(database, lease, number, phase)
        measure(database, lease, number, 10, 0.9)
    stop(database, lease.job_id, 3)
    end_trial(database, lease, 3, TrialState.CANCELLED, detail=STOPPED)
    with database.writing() as session:
        ended = finish_job(session, lease, failure=None, cut_short=CutShort.BUDGET, now=later(25))
    assert ended is (JobState.SUCCEEDED if has_completed else JobState.FAILED)
    with database.reading() as session:
        assert not going_on.budget_is_left(session, job_of(database, lease.job_id), now=later(26))
    change(database, lease.job_id, wall_clock_seconds=100.0)
    job = resume(database, lease.job_id, after=30)  # nothing but these trials is left
    assert (job.state, job.num_trials) == (JobState.QUEUED, 4)
    cut_off = [trial_of(database, lease.job_id, number) for number in (1, 2)]
    assert [(each.state, each.step, each.spared) for each in cut_off] == [(TrialState.QUEUED, 10, False)] * 2
    assert {each.cancel_cause for each in cut_off} == {None}
    assert trial_of(database, lease.job_id, 3).state is TrialState.CANCELLED
    claimed = claim(database, add_worker(database), now=later(31))
    assert claimed is not None
    stored = read_stored(database, claimed)
    policy = make_policy(plan_job(stored.job.specification))
    policy.restore(history_of(stored.trials, stored.job.objectives))
    asked = [policy.ask(), policy.ask()]
    resumed = sorted((each.number, each.side) for each in asked if isinstance(each, Resume))
    assert resumed == [(1, Phase.SEARCH), (2, "adamw")]
    for number in (1, 2):
        policy.tell(number, TrialState.COMPLETED, [0.5])
    assert policy.is_done


def test_what_was_cancelled_with_a_job_stays_so_when_its_time_ends_it_later(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 8, "wall_clock_seconds": 20})
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    with database.writing() as session:
        cancel_job(session, lease.job_id, now=NOW)
    resume(database, lease.job_id)
    again = claim(database, add_worker(database))
    assert again is not None
    begin_trial(database, again, 2)
    with database.writing() as session:
        finish_job(session, again, failure=None, cut_short=CutShort.BUDGET, now=later(25))
    change(database, lease.job_id, wall_clock_seconds=100.0)
    resume(database, lease.job_id, after=30)
    assert [trial_of(database, lease.job_id, n).state for n in (1, 2)] == [TrialState.CANCELLED, TrialState.QUEUED]


def test_what_a_failure_ended_stays_so_whatever_words_it_had(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    with database.writing() as session:
        finish_job(session, lease, failure=BUDGET_SPENT, now=later(25))
    resume(database, lease.job_id, after=30)
    trial = trial_of(database, lease.job_id, 1)
    assert (trial.state, trial.cancel_cause) == (TrialState.CANCELLED, CancelCause.JOB_FAILED)


def test_what_was_cut_off_has_begun_to_a_budget_that_falls(database: Database) -> None:
    lease = claimed_job(database, baseline=None, budget={"num_trials": 4, "wall_clock_seconds": 20})
    run_trial(database, lease, 0, 0.5)
    for number in (1, 2):
        begin_trial(database, lease, number)
    with database.writing() as session:
        finish_job(session, lease, failure=None, cut_short=CutShort.BUDGET, now=later(25))
    with pytest.raises(InvalidInput, match="2 would leave 2 for the search, which has begun 3"):
        change(database, lease.job_id, num_trials=2)


def test_of_a_population_nothing_that_the_time_cut_off_begins_again(database: Database) -> None:
    lease = claimed_job(
        database,
        baseline=None,
        confirmation=None,
        budget={"num_trials": 4, "wall_clock_seconds": 20},
        pruner={"name": "pbt", "population": 2, "interval": 10},
    )
    begin_trial(database, lease, 0)
    with database.writing() as session:
        finish_job(session, lease, failure=None, cut_short=CutShort.BUDGET, now=later(25))
    change(database, lease.job_id, wall_clock_seconds=100.0)
    resume(database, lease.job_id, after=30)
    assert trial_of(database, lease.job_id, 0).state is TrialState.CANCELLED


def test_a_cancelled_or_failed_job_goes_on_with_what_its_budget_leaves(database: Database) -> None:
    for state in (JobState.CANCELLED, JobState.FAILED):
        lease = claimed_job(database)
        run_trial(database, lease, 0, 0.5)
        begin_trial(database, lease, 1)
        if state is JobState.FAILED:
            finish(database, lease, failure="the cluster is too small")
        else:
            with database.writing() as session:
                cancel_job(session, lease.job_id, now=NOW)
        assert job_of(database, lease.job_id).state is state
        job = resume(database, lease.job_id)
        assert (job.state, job.failure) == (JobState.QUEUED, None)
        assert trial_of(database, lease.job_id, 1).state is TrialState.CANCELLED
        pause(database, lease.job_id)  # so that the next turn does not claim it


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ({"wall_clock_seconds": 20}, r"raise budget.wall_clock_seconds first: 25.0 of 20 are spent"),
        ({"device_hours": 0.0001}, r"raise budget.device_hours first: 0.0001111 of 0.0001 are spent"),
    ],
)
def test_a_job_whose_time_is_spent_needs_more_of_it(database: Database, budget: dict[str, float], why: str) -> None:
    lease = claimed_job(database, budget={"num_trials": 100, **budget})
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=later(25))
    for act in (lambda: resume(database, lease.job_id, after=900), lambda: retry(database, lease.job_id, 1)):
        with pytest.raises(BudgetSpent, match=why):
            act()
    change(database, lease.job_id, **dict.fromkeys(budget, None))
    assert resume(database, lease.job_id).state is JobState.QUEUED
