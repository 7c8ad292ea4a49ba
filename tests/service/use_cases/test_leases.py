"""Who may run which job: claims, renewals, losses and the fence against runs that lost their lease."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from service.access.projects import Quotas, change_project
from service.domain import DEFAULT_PROJECT, FailureReason, JobState, TrialState
from service.errors import LeaseLost
from service.scheduler.removal import remove_unused
from service.store.migrate import DatabaseOfAnotherVersion
from service.store.models import Job, Trial
from service.store.repositories import EventRepository, JobRepository, TrialRepository, WorkerRepository
from service.store.session import VERSION_TABLE, Database
from service.use_cases.keeping.deletion import delete_job
from service.use_cases.leases import (
    GONE_WORKERS_KEPT,
    MAX_CRASHES,
    Lease,
    beat,
    end_worker,
    lock_leased_job,
    release_job,
)
from service.use_cases.run import finish_trial, start_trial
from service.use_cases.steer import cancel_job
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claim,
    claimed_job,
    end_trial,
    measure,
    run_trial,
    submit,
)
from tests.support.waiting import PATIENCE_SECONDS


def _job(database: Database, job_id: str) -> Job:
    with database.reading() as session:
        return JobRepository(session).get(job_id)


def _trials(database: Database, job_id: str) -> list[Trial]:
    with database.reading() as session:
        return TrialRepository(session).page(job_id)


def _release(database: Database, lease: Lease, *, crash: str | None, after_seconds: float = 0.0) -> JobState | None:
    with database.writing() as session:
        return release_job(session, lease, now=NOW + timedelta(seconds=after_seconds), crash=crash)


def test_workers_that_have_been_gone_for_a_week_are_removed_unless_they_hold_a_job(database: Database) -> None:
    holding = claimed_job(database).worker_id
    gone, ended = add_worker(database), add_worker(database)
    with database.writing() as session:
        end_worker(session, ended, now=NOW)
    later = NOW + GONE_WORKERS_KEPT
    lately = add_worker(database, now=NOW + timedelta(seconds=1))

    def workers(*ids: str) -> set[str]:
        with database.reading() as session:
            return set(WorkerRepository(session).heartbeats(ids))

    remove_unused(database, clock=lambda: later)
    assert workers(gone, ended) == {gone, ended}
    remove_unused(database, clock=lambda: later + timedelta(seconds=1))
    assert workers(holding, gone, ended, lately) == {holding, lately}
    # The worker that was heard of last tells others since when there is none; and it may be the one that removes.
    remove_unused(database, clock=lambda: later + timedelta(days=1))
    assert workers(holding, lately) == {holding, lately}


OWN_CLASS = {"workload": {"name": "tests.support.trainers.broken_workloads:Sound"}}
OWN_SAMPLER = {"sampler": {"name": "my_samplers:Mine"}}


@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize(
    "own", [pytest.param(OWN_CLASS, marks=pytest.mark.processes), OWN_SAMPLER], ids=["class", "sampler"]
)
def test_a_job_that_names_code_is_left_to_a_worker_that_may_run_it(database: Database, own: dict[str, Any]) -> None:
    named = submit(database, now=NOW, **own)
    ordinary = submit(database, now=NOW + timedelta(seconds=1))
    refusing, allowing = (add_worker(database, allows_code=allows) for allows in (False, True))
    first = claim(database, refusing)
    assert first is not None
    assert first.job_id == ordinary
    assert claim(database, refusing, running=[ordinary]) is None
    taken = claim(database, allowing)
    assert taken is not None
    assert taken.job_id == named
    # Nor once the lease has ended.
    later = NOW + timedelta(seconds=60)
    with database.writing() as session:
        beat(session, refusing, lease_seconds=30.0, now=later)
    assert claim(database, refusing, running=[ordinary], now=later) is None
    again = claim(database, add_worker(database, now=later), now=later)
    assert again is not None
    assert (again.job_id, again.attempt) == (named, 2)


def test_the_oldest_queued_job_is_claimed_first(database: Database) -> None:
    first = submit(database, now=NOW)
    second = submit(database, now=NOW + timedelta(seconds=1))
    worker = add_worker(database)
    claims = [claim(database, worker, running=running) for running in ([], [first], [first, second])]
    assert [lease.job_id if lease else None for lease in claims] == [first, second, None]
    assert _job(database, first).state is JobState.RUNNING
    assert _job(database, first).started_at == NOW


def test_workers_that_claim_at_the_same_time_get_different_jobs(database: Database) -> None:
    jobs = {submit(database) for _ in range(6)}
    workers = [add_worker(database) for _ in range(6)]
    leases: list[Lease | None] = []
    barrier = threading.Barrier(len(workers))

    def work(worker: str) -> None:
        barrier.wait()
        leases.append(claim(database, worker))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    claimed = [lease.job_id for lease in leases if lease is not None]
    assert len(claimed) == len(set(claimed))
    # A worker may come away empty-handed while another has the job it saw locked; it gets one on asking again.
    while (lease := claim(database, workers[0], running=claimed)) is not None:
        claimed.append(lease.job_id)
    assert sorted(claimed) == sorted(jobs)


def test_a_lease_is_kept_while_its_worker_beats_and_lost_after(database: Database) -> None:
    lease = claimed_job(database)
    rival = add_worker(database)
    with database.writing() as session:
        beat(session, lease.worker_id, lease_seconds=30, now=NOW + timedelta(seconds=25))
    assert claim(database, rival, now=NOW + timedelta(seconds=50)) is None
    taken = claim(database, rival, now=NOW + timedelta(seconds=56))
    assert taken is not None
    assert (taken.job_id, taken.worker_id, taken.attempt) == (lease.job_id, rival, 2)
    with database.reading() as session:
        told = EventRepository(session).after(0, project=None, job_id=lease.job_id, limit=10)
    assert [(event.data["state"], event.data["lost"]) for event in told] == [
        ("queued", None),
        ("running", None),
        ("queued", "its worker was lost"),
        ("running", None),
    ]


def test_a_run_whose_job_was_taken_over_can_write_nothing(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    assert claim(database, add_worker(database), now=NOW + timedelta(seconds=31)) is not None
    writes: list[Callable[[], None]] = [
        lambda: measure(database, lease, 0, 10, 1.0),
        lambda: begin_trial(database, lease, 1),
    ]
    for write in writes:
        with pytest.raises(LeaseLost):
            write()
    (trial,) = _trials(database, lease.job_id)
    assert (trial.state, trial.step) == (TrialState.QUEUED, 0)


def test_a_run_whose_job_was_cancelled_can_write_nothing(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    with database.writing() as session:
        cancel_job(session, lease.job_id, now=NOW)
    with pytest.raises(LeaseLost):
        measure(database, lease, 0, 10, 1.0)
    assert _release(database, lease, crash="killed") is JobState.CANCELLED


def test_a_stopped_worker_gives_its_job_back_at_once_and_uncounted(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    assert _release(database, lease, crash=None) is JobState.QUEUED
    job = _job(database, lease.job_id)
    assert (job.crashes, job.lease_worker_id, job.not_before) == (0, None, None)
    assert [trial.state for trial in _trials(database, lease.job_id)] == [TrialState.QUEUED]
    assert claim(database, add_worker(database)) is not None


def test_a_run_that_crashed_once_is_claimed_at_once_and_waits_before_it_is_claimed_a_third_time(
    database: Database,
) -> None:
    lease = claimed_job(database)
    worker = add_worker(database)
    assert _release(database, lease, crash="signal 9") is JobState.QUEUED
    again = claim(database, worker)
    assert again is not None
    assert _release(database, again, crash="signal 9") is JobState.QUEUED
    assert claim(database, worker, now=NOW + timedelta(seconds=1)) is None
    assert claim(database, worker, now=NOW + timedelta(seconds=3)) is not None


def test_a_worker_that_never_heard_of_its_claim_is_told_again(database: Database) -> None:
    submit(database)
    submit(database)
    worker, rival = add_worker(database), add_worker(database)
    lease = claim(database, worker)
    assert claim(database, worker) == lease
    other = claim(database, rival)
    assert other is not None
    assert lease is not None
    assert other.job_id != lease.job_id
    assert _job(database, lease.job_id).attempt == 1


def test_a_job_whose_runs_keep_dying_without_getting_further_fails_and_says_why(database: Database) -> None:
    lease: Lease | None = claimed_job(database)
    for crash in range(MAX_CRASHES):
        assert lease is not None
        if crash == 0:
            begin_trial(database, lease, 0)
        state = _release(database, lease, crash="signal 11", after_seconds=100 * crash)
        lease = claim(database, lease.worker_id, now=NOW + timedelta(seconds=100 * crash + 99))
    assert state is JobState.FAILED
    assert lease is None
    with database.reading() as session:
        (job,) = JobRepository(session).page(project=None, limit=1)
    assert job.failure is not None
    assert "3 times in a row" in job.failure
    assert "signal 11" in job.failure
    assert [trial.state for trial in _trials(database, job.id)] == [TrialState.CANCELLED]


def test_progress_between_crashes_keeps_a_job_alive(database: Database) -> None:
    lease: Lease | None = claimed_job(database)
    for crash in range(2 * MAX_CRASHES):
        assert lease is not None
        run_trial(database, lease, crash, 1.0)
        assert _release(database, lease, crash="signal 9", after_seconds=100 * crash) is JobState.QUEUED
        lease = claim(database, lease.worker_id, now=NOW + timedelta(seconds=100 * crash + 99))


def test_a_run_that_only_repeats_what_was_measured_makes_no_progress(database: Database) -> None:
    first = claimed_job(database)
    begin_trial(database, first, 0)
    lease: Lease | None = first
    for crash in range(MAX_CRASHES):
        assert lease is not None
        if crash:
            with database.writing() as session:
                start_trial(session, lease, 0, now=NOW)
        # Its checkpoints are gone: each run trains it from the beginning and dies at the same place.
        for step in (10, 20):
            measure(database, lease, 0, step, 1.0)
        state = _release(database, lease, crash="signal 9", after_seconds=100 * crash)
        lease = claim(database, lease.worker_id, now=NOW + timedelta(seconds=100 * crash + 99))
    # The first run got further than any before it; the crash after it was the first in a row.
    assert state is JobState.FAILED


def test_a_trial_that_ended_is_progress(database: Database) -> None:
    lease: Lease | None = claimed_job(database)
    for crash in range(2 * MAX_CRASHES):
        assert lease is not None
        begin_trial(database, lease, crash)
        end_trial(database, lease, crash, TrialState.FAILED, reason=FailureReason.DIVERGED)
        assert _release(database, lease, crash="signal 9", after_seconds=100 * crash) is JobState.QUEUED
        lease = claim(database, lease.worker_id, now=NOW + timedelta(seconds=100 * crash + 99))


@pytest.mark.slow
def test_a_cancellation_waits_for_the_run_to_finish_its_write(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)

    def cancel() -> None:
        with database.writing() as session:
            cancel_job(session, lease.job_id, now=NOW)

    cancelling = threading.Thread(target=cancel)
    with database.writing() as session:
        lock_leased_job(session, lease)
        cancelling.start()
        cancelling.join(timeout=0.5)
        assert cancelling.is_alive()
        finish_trial(session, lease, 0, TrialState.COMPLETED, now=NOW)
    cancelling.join(PATIENCE_SECONDS)
    assert _job(database, lease.job_id).state is JobState.CANCELLED
    assert [trial.state for trial in _trials(database, lease.job_id)] == [TrialState.COMPLETED]


@pytest.mark.parametrize("how", ["it is claimed", "its worker is lost", "its run has ended"])
def test_a_job_that_cannot_be_read_fails_with_the_reason_and_can_be_deleted_and_the_next_one_is_claimed(
    sqlite_database: Database, how: str
) -> None:
    database = sqlite_database
    with database.writing() as session:  # which has a claim add up what other jobs have spent
        change_project(session, DEFAULT_PROJECT, Quotas(max_device_hours=1.0), fields=("max_device_hours",))
    damages = [("jobs", "specification", '{"workload": 1}'), ("jobs", "tags", "{"), ("trials", "created_at", "once")]
    for table, column, content in damages[:2] if how == "it is claimed" else damages:
        lease = claimed_job(database)
        begin_trial(database, lease, 0)
        if how == "it is claimed":
            assert _release(database, lease, crash=None) is JobState.QUEUED
        with database.writing() as session:
            update = f"UPDATE {table} SET {column} = :content WHERE {'id' if table == 'jobs' else 'job_id'} = :job"
            session.execute(text(update), {"content": content, "job": lease.job_id})
        following, worker = submit(database, now=NOW + timedelta(seconds=1)), add_worker(database)
        if how == "its run has ended":
            assert _release(database, lease, crash="exit status 1") is JobState.FAILED
        else:
            assert claim(database, worker, now=NOW + timedelta(seconds=31)) is None
        with database.reading() as session:
            select = "SELECT state, failure, lease_worker_id, finished_at IS NULL FROM jobs WHERE id = :job"
            state, failure, *rest = session.execute(text(select), {"job": lease.job_id}).one()
            assert (state, *rest) == ("failed", None, False)
            assert failure.startswith("its rows in the database cannot be read: Val")
            told = EventRepository(session).after(0, project=None, job_id=lease.job_id, limit=10)[-1]
            assert (told.data["state"], told.data["failure"]) == ("failed", failure)
            states = session.scalars(text("SELECT state FROM trials WHERE job_id = :job"), {"job": lease.job_id})
            assert states.all() == ["cancelled"]
        with database.writing() as session:
            delete_job(session, lease.job_id, now=NOW)
        taken = claim(database, worker)
        assert taken is not None
        assert taken.job_id == following
        assert _release(database, taken, crash=None) is JobState.QUEUED
        with database.writing() as session:
            cancel_job(session, following, now=NOW)


def test_jobs_of_a_database_that_a_newer_version_has_migrated_are_left_to_it(sqlite_database: Database) -> None:
    database = sqlite_database
    running, waiting, worker = claimed_job(database), submit(database), add_worker(database)
    with database.writing() as session:
        session.execute(text("""UPDATE jobs SET specification = '{"workload": 1}'"""))
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for use in (lambda: claim(database, worker), lambda: _release(database, running, crash="exit status 1")):
        with pytest.raises(DatabaseOfAnotherVersion, match="of a newer version of shampoo-tuner: revision 9999"):
            use()
    with database.reading() as session:
        states = session.execute(text("SELECT id, state, failure FROM jobs ORDER BY id")).all()
    assert sorted(states) == sorted([(running.job_id, "running", None), (waiting, "queued", None)])
