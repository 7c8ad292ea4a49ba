"""Trials that users propose: what changes in the rows, and what the next run makes of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from service.domain import JobRequest, JobState, Phase, TrialState
from service.errors import BudgetSpent, IdempotencyKeyReused, InvalidInput, NotFound, RunAskedToEnd
from service.scheduler.policy.history import history_of
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Resume, Start
from service.specification.planning import plan_job, proposed_side
from service.store.models import Job, Trial
from service.store.repositories import EventRepository, JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases import steer_trials
from service.use_cases.leases import Lease, release_job
from service.use_cases.progress import progress_of
from service.use_cases.run import finish_job
from service.use_cases.steer import cancel_job, pause_job
from tests.support.service.scenarios import NOW, add_worker, begin_trial, claim, claimed_job, run_trial, submit


def propose(
    database: Database,
    job_id: str,
    phase: Phase = Phase.SEARCH,
    *,
    optimizer: str | None = None,
    key: str | None = None,
    **parameters: Any,
) -> tuple[Job, Trial, bool]:
    with database.writing() as session:
        return steer_trials.propose_trial(
            session,
            job_id,
            phase=phase,
            parameters=parameters,
            optimizer=optimizer,
            idempotency_key=key,
            now=NOW + timedelta(seconds=5),
        )


def finish(database: Database, lease: Lease, *, after: float = 0.0) -> JobState:
    with database.writing() as session:
        return finish_job(session, lease, failure=None, now=NOW + timedelta(seconds=after))


def asks(database: Database, job_id: str, count: int) -> list[Start | Resume]:
    """The first trials of a new run of the job."""
    with database.reading() as session:
        job = JobRepository(session).get(job_id)
        trials = TrialRepository(session).with_measurements(job_id)
    plan = plan_job(job.specification)
    policy = make_policy(plan)
    policy.restore(history_of(trials, plan.objectives))
    found = [policy.ask() for _ in range(count)]
    assert all(isinstance(asked, Start | Resume) for asked in found), found
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("phase", [Phase.SEARCH, Phase.BASELINE])
def test_a_proposed_trial_is_a_queued_row_beside_the_budgets_trials(database: Database, phase: Phase) -> None:
    job_id = submit(database)
    before = plan_job(_job(database, job_id).specification).allotments
    job, trial, is_new = propose(database, job_id, phase, lr=0.01)
    assert (is_new, job.state, job.requested, job.num_trials) == (True, JobState.QUEUED, None, 5)
    assert (trial.number, trial.phase, trial.state, trial.proposed) == (0, phase, TrialState.QUEUED, True)
    assert trial.parameters["lr"] == trial.config["optimizer"]["arguments"]["lr"] == 0.01
    plan = plan_job(job.specification)
    assert trial.parameters == plan.spaces[proposed_side(plan, phase, None)].defaults({"lr": 0.01})
    extra = job.specification.budget.extra_search_trials, job.specification.baselines[0].extra_trials
    assert extra == ((1, 0) if phase is Phase.SEARCH else (0, 1))
    after = plan.allotments
    assert after == {**before, phase: before[phase] + 1}
    with database.reading() as session:
        progress = progress_of(session, [JobRepository(session).get(job_id)], now=NOW)[job_id]
        kinds = [event.kind for event in EventRepository(session).after(0, project=None, limit=10)]
    assert progress.phases[phase].num_trials == before[phase] + 1
    assert kinds == ["job.state", "trial.state", "job.changed"]


def test_proposals_come_before_all_that_the_job_would_try_and_take_the_place_of_nothing(database: Database) -> None:
    job_id = submit(database, pinned=[{"lr": 2e-3}], baseline=None)
    own = asks(database, job_id, 4)
    propose(database, job_id, lr=0.01)
    propose(database, job_id, lr=0.02)
    first, second, *others = asks(database, job_id, 6)
    assert isinstance(first, Resume)
    assert isinstance(second, Resume)
    assert [first.parameters["lr"], second.parameters["lr"]] == [0.01, 0.02]
    # The space's defaults and the pinned assignments all have their turn.
    num_pinned = len(plan_job(_job(database, job_id).specification).spaces[Phase.SEARCH].branch_defaults()) + 1
    count = min(num_pinned, 4)
    assert [asked.parameters for asked in others[:count]] == [asked.parameters for asked in own[:count]]
    assert [asked.number for asked in others] == [2, 3, 4, 5]


def test_the_run_of_a_running_job_ends_and_the_next_one_tries_the_proposal_first(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    job, trial, _ = propose(database, lease.job_id, lr=0.01)
    assert (job.state, job.requested, trial.number) == (JobState.RUNNING, JobRequest.RESTART, 2)
    with pytest.raises(RunAskedToEnd):  # it would have had the proposal's number
        begin_trial(database, lease, 2)
    assert finish(database, lease) is JobState.QUEUED
    interrupted, proposed = asks(database, lease.job_id, 2)
    assert (interrupted.number, proposed.number) == (1, 2)
    assert proposed.parameters["lr"] == 0.01


def test_a_run_that_dies_loses_no_proposal(database: Database) -> None:
    lease = claimed_job(database)
    propose(database, lease.job_id, lr=0.01)
    with database.writing() as session:
        assert release_job(session, lease, now=NOW, crash="killed by SIGKILL") is JobState.QUEUED
    assert claim(database, add_worker(database)) is not None
    [first] = asks(database, lease.job_id, 1)
    assert (first.number, first.parameters["lr"]) == (0, 0.01)


def test_a_paused_job_stays_paused_and_a_finished_one_goes_on(database: Database) -> None:
    job_id = submit(database)
    with database.writing() as session:
        pause_job(session, job_id, now=NOW)
    assert propose(database, job_id, lr=0.01)[0].state is JobState.PAUSED

    lease = claimed_job(database)
    for number, phase in enumerate([Phase.SEARCH, Phase.BASELINE, Phase.SEARCH, Phase.SEARCH]):
        run_trial(database, lease, number, 0.5, phase)
    assert finish(database, lease) is JobState.SUCCEEDED
    job, trial, _ = propose(database, lease.job_id, lr=0.01)
    assert (job.state, job.num_trials, trial.number) == (JobState.QUEUED, 5, 4)
    [first] = asks(database, lease.job_id, 1)
    assert first.number == 4


def test_a_job_whose_run_ends_of_itself_while_it_is_asked_to_pause_keeps_what_was_proposed_meanwhile(
    database: Database,
) -> None:
    lease = claimed_job(database)
    for number, phase in enumerate([Phase.SEARCH, Phase.BASELINE, Phase.SEARCH, Phase.SEARCH]):
        run_trial(database, lease, number, 0.5, phase)
    with database.writing() as session:
        pause_job(session, lease.job_id, now=NOW)
    propose(database, lease.job_id, lr=0.01)
    assert finish(database, lease) is JobState.PAUSED
    [first] = asks(database, lease.job_id, 1)
    assert (first.number, first.parameters["lr"]) == (4, 0.01)


def test_a_finished_job_without_time_refuses_a_proposal_and_stays_as_it_was(database: Database) -> None:
    lease = claimed_job(database, budget={"num_trials": 4, "wall_clock_seconds": 20})
    run_trial(database, lease, 0, 0.5)
    finish(database, lease, after=25)
    with pytest.raises(BudgetSpent, match=r"raise budget.wall_clock_seconds first"):
        propose(database, lease.job_id, lr=0.01)
    job = _job(database, lease.job_id)
    assert (job.state, job.specification.budget.extra_search_trials) == (JobState.SUCCEEDED, 0)


def test_a_cancelled_job_goes_on_with_a_proposal(database: Database) -> None:
    lease = claimed_job(database)
    with database.writing() as session:
        cancel_job(session, lease.job_id, now=NOW)
    assert propose(database, lease.job_id, lr=0.01)[0].state is JobState.QUEUED


def test_a_repeated_key_gives_the_same_trial_and_another_body_is_refused(database: Database) -> None:
    job_id, other = submit(database), submit(database)
    _, first, _ = propose(database, job_id, key="k", lr=0.01)
    job, again, is_new = propose(database, job_id, key="k", lr=0.01)
    assert (again.id, is_new, job.num_trials) == (first.id, False, 5)
    with pytest.raises(IdempotencyKeyReused):
        propose(database, job_id, key="k", lr=0.02)
    assert propose(database, job_id, key="l", lr=0.01)[1].number == 1
    assert propose(database, other, key="k", lr=0.02)[2]  # keys are of one job


@pytest.mark.parametrize(
    ("phase", "parameters", "field", "said"),
    [
        (Phase.SEARCH, {"lr": 1e9}, "parameters.lr", r"must be in \[.*\], got 1000000000.0"),
        (Phase.SEARCH, {"lr": "big"}, "parameters.lr", "'?big'?"),
        (Phase.SEARCH, {"speed": 3}, "parameters.speed", "is not a parameter of the search space"),
        (Phase.CONFIRMATION, {}, "phase", "can be proposed for search, baseline, got 'confirmation'"),
    ],
)
def test_an_impossible_proposal_is_refused_by_name_and_changes_nothing(
    database: Database, phase: Phase, parameters: dict[str, Any], field: str, said: str
) -> None:
    job_id = submit(database)
    with pytest.raises(InvalidInput, match=said) as refused:
        propose(database, job_id, phase, **parameters)
    assert refused.value.field == field
    assert _job(database, job_id).num_trials == 4
    with database.reading() as session:
        assert TrialRepository(session).page(job_id) == []


def test_a_proposal_for_one_of_several_baselines_says_which(database: Database) -> None:
    job_id = submit(database, baselines=[{}, {"search_space": "muon"}])
    with pytest.raises(InvalidInput, match="must say which baseline: adamw, muon"):
        propose(database, job_id, Phase.BASELINE)
    with pytest.raises(InvalidInput, match="the baseline tunes adamw, muon, got 'sgd'"):
        propose(database, job_id, Phase.BASELINE, optimizer="sgd")
    job, trial, _ = propose(database, job_id, Phase.BASELINE, optimizer="muon", lr=0.01)
    assert trial.config["optimizer"]["name"] == "muon"
    assert [baseline.extra_trials for baseline in job.specification.baselines] == [0, 1]
    [asked] = asks(database, job_id, 1)
    assert (asked.number, asked.side) == (trial.number, "muon")


def test_there_is_no_baseline_to_propose_for_and_no_unknown_job(database: Database) -> None:
    job_id = submit(database, baseline=None)
    with pytest.raises(InvalidInput, match="can be proposed for search, got 'baseline'"):
        propose(database, job_id, Phase.BASELINE)
    with pytest.raises(NotFound, match="job_nope"):
        propose(database, "job_nope")


def _job(database: Database, job_id: str) -> Job:
    with database.reading() as session:
        return JobRepository(session).get(job_id)
