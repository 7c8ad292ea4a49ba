"""The reason why a job waits, from the rows of jobs, workers and clusters."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from service.domain import JobState
from service.errors import LeaseLost
from service.store.models import Job
from service.store.repositories import ClusterShareRepository, EventRepository, JobRepository
from service.store.session import Database
from service.use_cases.leases import EXTERNAL_JOBS_AT_ONCE, Lease, beat, end_worker, release_job
from service.use_cases.run import ShareReport, report_share, start_trial
from service.use_cases.steer import change_job, pause_job, resume_job
from service.use_cases.waiting import (
    CODE_REFUSED,
    CODE_WORKER_LOST,
    FIRST_MEASUREMENT,
    NEXT_MEASUREMENT,
    OWN_WORKER_LOST,
    OWN_WORKER_STARTS,
    WORKER_LOST,
    Surroundings,
    Waiting,
    WorkerFault,
    Workers,
    waiting_of,
    why_queued,
)
from tests.support.service.external import submit_external
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, Clock, add_worker, begin_trial, claim, claimed_job, measure, submit
from tests.support.waiting import PATIENCE_SECONDS

CLUSTER = "10.0.0.1:6379"
OWN_SAMPLER = {"name": "my_samplers:Mine"}
NEVER_STARTED = "no worker has been started; `shampoo-tuner worker` starts one"
NONE_ALIVE = "no worker is alive, the last was heard of at 2026-03-01 12:00:00 UTC; `shampoo-tuner worker` starts one"


def _waiting(database: Database, job_id: str, *, after_seconds: float = 0.0) -> Waiting | None:
    now = NOW + timedelta(seconds=after_seconds)
    with database.reading() as session:
        job = JobRepository(session).get(job_id)
        return waiting_of(session, [job], now=now, silence_seconds=30)[job_id]


def _report(
    database: Database, lease: Lease, *, waiting_for: str | None, num_groups: int = 0, after: float = 0
) -> None:
    now = NOW + timedelta(seconds=after)
    with database.writing() as session:
        report_share(session, lease, ShareReport(CLUSTER, num_groups, 0.25, now, waiting_for), now=now)


def _claims(database: Database, *, after_seconds: float = 0.0) -> list[tuple[str, int, int]]:
    """Job, rank groups and priority of what is stored of the cluster."""
    with database.reading() as session:
        found = ClusterShareRepository(session).of_cluster(CLUSTER, now=NOW + timedelta(seconds=after_seconds))
        return [(share.job_id, share.num_groups, priority) for share, _, priority in found]


def test_a_service_that_starts_its_own_worker_sends_nobody_to_start_one(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    trouble = WorkerFault("it ended with exit status 1", "no memory", "its log is there")
    told, fault = [], "it ended with exit status 1 (last in its log: no memory); its log is there"
    starts, fails = (lambda: None), (lambda: trouble)
    for why_no_worker in (starts, fails, None):
        with running(sqlite_database, clock=lambda: NOW, why_no_worker=why_no_worker) as url:
            told.append(httpx.get(f"{url}/v1/jobs/{job_id}", verify=False).json()["waiting"]["for"])
            pages = [httpx.get(url + path, verify=False).text for path in (f"/jobs/{job_id}", "/", "/cluster")]
            assert ["no worker has been started" in page.lower() for page in pages] == [why_no_worker is None] * 3
            assert [fault in page for page in pages] == [why_no_worker is fails] * 3
    assert told == [OWN_WORKER_STARTS, fault, NEVER_STARTED]
    claim(sqlite_database, add_worker(sqlite_database))
    with sqlite_database.reading() as session:
        job, later = JobRepository(session).get(job_id), NOW + timedelta(hours=1)
        found = waiting_of(
            session, [job], now=later, silence_seconds=30, around=Surroundings(why_no_worker=lambda: None)
        )
    assert found[job_id] == Waiting(NOW + timedelta(seconds=30), OWN_WORKER_LOST)


@pytest.mark.parametrize(
    ("num_before", "workers", "retried_after", "expected"),
    [
        (0, Workers(0, 0, None), None, NEVER_STARTED),
        (3, Workers(0, 0, NOW), None, NONE_ALIVE),
        (0, Workers(1, 1, NOW), None, "the only worker is busy"),
        (1, Workers(2, 2, NOW), None, "1 job is before it, and all 2 workers are busy"),
        (2, Workers(2, 1, NOW), None, "2 jobs are before it"),
        (0, Workers(2, 1, NOW), None, "a worker is about to take it"),
        (0, Workers(1, 0, NOW), 8, "its run died; it is tried again at 2026-03-01 12:00:08 UTC"),
        (0, Workers(1, 1, NOW), -1, "the only worker is busy"),
        (0, Workers(1, 0, NOW), -11, "no worker has taken it yet; the last was heard of at 2026-03-01 12:00:00 UTC"),
        (0, Workers(1, 7, NOW, jobs_at_once=8), None, "a worker is about to take it"),
        (
            0,
            Workers(1, 8, NOW, jobs_at_once=8),
            None,
            "the only worker runs 8 jobs that clients train, as many as it may",
        ),
        (
            1,
            Workers(2, 16, NOW, jobs_at_once=8),
            None,
            "1 job is before it, and all 2 workers run 8 jobs that clients train each, as many as they may",
        ),
    ],
)
def test_a_queued_job_says_what_stands_before_it(
    num_before: int, workers: Workers, retried_after: float | None, expected: str
) -> None:
    not_before = None if retried_after is None else NOW + timedelta(seconds=retried_after)
    since = min(NOW, not_before or NOW)
    assert why_queued(num_before, workers, since=since, not_before=not_before, now=NOW) == expected


def test_jobs_that_clients_train_and_those_of_a_worker_do_not_wait_for_each_other(database: Database) -> None:
    worker = add_worker(database)
    taken: list[str] = []
    for _ in range(EXTERNAL_JOBS_AT_ONCE):
        submit_external(database)
        lease = claim(database, worker, running=taken)
        assert lease is not None
        taken.append(lease.job_id)
    external = [submit_external(database) for _ in range(2)]
    ordinary = submit(database)
    full = f"the only worker runs {EXTERNAL_JOBS_AT_ONCE} jobs that clients train, as many as it may"
    assert _waiting(database, external[0], after_seconds=20) == Waiting(NOW, full)
    assert _waiting(database, external[1]) == Waiting(NOW, f"1 job is before it, and {full}")
    assert _waiting(database, ordinary) == Waiting(NOW, "a worker is about to take it")


def test_a_job_does_not_wait_for_a_worker_that_has_ended(database: Database) -> None:
    job_id = submit(database)
    worker = add_worker(database)
    assert _waiting(database, job_id) == Waiting(NOW, "a worker is about to take it")
    with database.writing() as session:
        end_worker(session, worker, now=NOW)
    assert _waiting(database, job_id, after_seconds=1) == Waiting(NOW, NONE_ALIVE)


def test_a_job_that_names_code_waits_for_a_worker_that_may_run_it(database: Database) -> None:
    ordinary = submit(database)
    named = submit(database, sampler=OWN_SAMPLER)
    assert _waiting(database, named) == Waiting(NOW, NEVER_STARTED)
    refusing = add_worker(database, allows_code=False)
    assert _waiting(database, named) == Waiting(NOW, CODE_REFUSED)
    assert _waiting(database, ordinary) == Waiting(NOW, "a worker is about to take it")
    assert claim(database, refusing) is not None
    assert _waiting(database, named) == Waiting(NOW, CODE_REFUSED)
    allowing = add_worker(database)
    assert _waiting(database, named) == Waiting(NOW, "a worker is about to take it")  # whatever the other one does
    assert claim(database, allowing) is not None
    later = submit(database, sampler=OWN_SAMPLER)
    assert _waiting(database, later) == Waiting(NOW, "the only worker is busy")
    with database.writing() as session:
        end_worker(session, allowing, now=NOW)
        beat(session, refusing, lease_seconds=30, now=NOW + timedelta(seconds=31))
    lost = Waiting(NOW + timedelta(seconds=30), CODE_WORKER_LOST)
    assert _waiting(database, named, after_seconds=31) == lost


def test_the_page_of_a_job_that_names_code_and_the_api_say_that_no_worker_takes_it(sqlite_database: Database) -> None:
    named = submit(sqlite_database, sampler=OWN_SAMPLER)
    add_worker(sqlite_database, allows_code=False)
    for why_no_worker in (lambda: None, None):  # of the service's own worker, or of those started elsewhere
        with running(sqlite_database, clock=lambda: NOW, why_no_worker=why_no_worker) as url:
            told = httpx.get(f"{url}/v1/jobs/{named}", timeout=PATIENCE_SECONDS, verify=False).json()
            assert told["waiting"]["for"] == CODE_REFUSED
            for path in (f"/jobs/{named}", "/", "/cluster"):
                page = httpx.get(url + path, timeout=PATIENCE_SECONDS, verify=False).text
                assert "it names code, which no worker that is alive may run" in page


def test_a_running_job_whose_worker_is_gone_waits_for_another_from_the_end_of_its_lease(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.5)
    assert _waiting(database, lease.job_id) is None
    with database.reading() as session:
        ends = JobRepository(session).get(lease.job_id).lease_expires_at
    assert ends is not None
    after = (ends - NOW).total_seconds() + 1
    assert _waiting(database, lease.job_id, after_seconds=after) == Waiting(ends, WORKER_LOST)


def test_a_running_job_whose_worker_misses_a_few_beats_says_since_when_nothing_was_heard_of_it(
    database: Database,
) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.5)
    beat_at = NOW + timedelta(seconds=10)
    with database.writing() as session:
        beat(session, lease.worker_id, lease_seconds=30, now=beat_at)
    assert _waiting(database, lease.job_id, after_seconds=25) is None
    told = (
        "its worker was last heard of at 2026-03-01 12:00:10 UTC; if it stays silent, another one may take the job at "
    )
    overdue = Waiting(beat_at, f"{told}2026-03-01 12:00:40 UTC")
    assert [_waiting(database, lease.job_id, after_seconds=after) for after in (25.1, 40)] == [overdue] * 2
    assert _waiting(database, lease.job_id, after_seconds=40.1) == Waiting(NOW + timedelta(seconds=40), WORKER_LOST)
    with database.writing() as session:
        beat(session, lease.worker_id, lease_seconds=30, now=NOW + timedelta(seconds=39))
    assert _waiting(database, lease.job_id, after_seconds=40.1) is None


def test_the_pages_of_a_job_and_of_the_cluster_show_a_worker_that_is_overdue(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    for after, is_overdue in ((10, False), (20, True)):
        with running(sqlite_database, clock=Clock(NOW + timedelta(seconds=after))) as url:
            for path in (f"/jobs/{lease.job_id}", "/cluster"):
                page = httpx.get(url + path, timeout=PATIENCE_SECONDS, verify=False).text
                assert ("its worker was last heard of at 2026-03-01 12:00:00 UTC" in page) == is_overdue
            assert (">overdue</span>" in page) == is_overdue


def test_a_worker_that_is_not_heard_of_on_a_full_disk_has_not_fallen_silent(database: Database) -> None:
    lease = claimed_job(database)
    with database.reading() as session:
        jobs = [JobRepository(session).get(lease.job_id)]
        ends = jobs[0].lease_expires_at
        assert ends is not None
        later = ends + timedelta(seconds=1)
        told = waiting_of(
            session, jobs, now=later, silence_seconds=30, around=Surroundings(lambda: "disk: 3 MiB are free")
        )
    reason = "its worker cannot write that it lives, and none goes on with it until there is room: disk: 3 MiB are free"
    assert told[lease.job_id] == Waiting(ends, reason)


def test_a_job_waits_from_its_submission_until_it_is_claimed_and_again_when_it_is_given_back(
    database: Database,
) -> None:
    job_id = submit(database)
    assert _waiting(database, job_id, after_seconds=5) == Waiting(NOW, NEVER_STARTED)
    worker = add_worker(database)
    lease = claim(database, worker, now=NOW + timedelta(seconds=6))
    assert lease is not None
    assert _waiting(database, job_id, after_seconds=7) == Waiting(NOW + timedelta(seconds=6), FIRST_MEASUREMENT)
    later = NOW + timedelta(seconds=60)
    with database.writing() as session:
        release_job(session, lease, now=later, crash=None)
    assert _waiting(database, job_id, after_seconds=61) == Waiting(later, NONE_ALIVE)
    with database.writing() as session:
        beat(session, worker, lease_seconds=30, now=later)
    assert _waiting(database, job_id, after_seconds=61) == Waiting(later, "a worker is about to take it")


def test_a_run_that_begins_anew_waits_for_its_next_measurement(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.5)
    later = NOW + timedelta(seconds=20)
    with database.writing() as session:
        release_job(session, lease, now=later, crash=None)
    again = claim(database, lease.worker_id, now=later)
    assert again is not None
    assert _waiting(database, lease.job_id, after_seconds=21) == Waiting(later, NEXT_MEASUREMENT)
    with database.writing() as session:
        start_trial(session, again, 0, now=later)
    assert _waiting(database, lease.job_id, after_seconds=22) == Waiting(later, NEXT_MEASUREMENT)
    measure(database, again, 0, 20, 0.4, now=later + timedelta(seconds=5))
    assert _waiting(database, lease.job_id, after_seconds=26) is None


def test_a_paused_job_waits_for_nothing(database: Database) -> None:
    job_id = submit(database)
    with database.writing() as session:
        pause_job(session, job_id, now=NOW)
    assert _waiting(database, job_id) is None
    resumed = NOW + timedelta(seconds=9)
    with database.writing() as session:
        resume_job(session, job_id, now=resumed)
    waiting = _waiting(database, job_id, after_seconds=10)
    assert waiting is not None
    assert waiting.since == resumed


def test_a_higher_priority_is_claimed_first_and_counts_as_before(database: Database) -> None:
    worker = add_worker(database)
    ordinary, urgent, idle = (submit(database, now=NOW + timedelta(seconds=seconds)) for seconds in (0, 1, 2))
    with database.writing() as session:
        change_job(session, urgent, priority=1, now=NOW)
        change_job(session, idle, priority=-1, now=NOW)
    reasons = [waiting.reason for job in (urgent, ordinary, idle) if (waiting := _waiting(database, job))]
    assert reasons == ["a worker is about to take it", "1 job is before it", "2 jobs are before it"]
    claimed: list[str] = []
    while (lease := claim(database, worker, running=claimed)) is not None:
        claimed.append(lease.job_id)
    assert claimed == [urgent, ordinary, idle]


def test_what_a_run_waits_for_keeps_its_beginning_and_is_an_event_only_when_it_changes(database: Database) -> None:
    lease = claimed_job(database)
    needs = "needs 4 GPUs, 3 free"
    _report(database, lease, waiting_for=needs, after=1)
    _report(database, lease, waiting_for=needs, after=2)
    _report(database, lease, waiting_for="needs 4 GPUs, 2 free", after=3)
    waiting = _waiting(database, lease.job_id, after_seconds=4)
    assert waiting == Waiting(NOW + timedelta(seconds=1), "needs 4 GPUs, 2 free")
    _report(database, lease, waiting_for=None, num_groups=1, after=5)
    assert _waiting(database, lease.job_id, after_seconds=6) == Waiting(NOW, FIRST_MEASUREMENT)
    begin_trial(database, lease, 0)
    assert _waiting(database, lease.job_id, after_seconds=7) == Waiting(NOW, FIRST_MEASUREMENT)
    measure(database, lease, 0, 10, 0.5)
    assert _waiting(database, lease.job_id, after_seconds=8) is None
    with database.reading() as session:
        changes = [
            e.data["waiting_for"]
            for e in EventRepository(session).after(0, project=None, limit=99)
            if e.kind == "job.changed"
        ]
    assert changes == [needs, "needs 4 GPUs, 2 free", None]


def test_only_living_runs_count_on_a_cluster(database: Database) -> None:
    first, second = claimed_job(database), claimed_job(database)
    _report(database, first, waiting_for=None, num_groups=3)
    _report(database, second, waiting_for="needs 1 GPU, 0 free")
    with database.writing() as session:
        change_job(session, second.job_id, priority=9, now=NOW)
    assert _claims(database) == [(first.job_id, 3, 0), (second.job_id, 0, 9)]
    assert _claims(database, after_seconds=31) == []  # nobody has renewed the leases
    with database.writing() as session:
        release_job(session, first, now=NOW, crash=None)
    assert _claims(database) == [(second.job_id, 0, 9)]
    again = claim(database, add_worker(database))
    assert again is not None
    assert again.job_id == first.job_id
    assert _claims(database) == [(second.job_id, 0, 9)]  # what the earlier run had is gone
    with pytest.raises(LeaseLost):
        _report(database, first, waiting_for=None, num_groups=3)


def test_a_run_that_waited_leaves_no_wait_behind(database: Database) -> None:
    lease = claimed_job(database)
    _report(database, lease, waiting_for="needs 1 GPU, 0 free")
    with database.writing() as session:
        assert pause_job(session, lease.job_id, now=NOW).waiting_for is not None
        assert release_job(session, lease, now=NOW, crash=None) is JobState.PAUSED
    with database.reading() as session:
        job: Job = JobRepository(session).get(lease.job_id)
        assert (job.waiting_since, job.waiting_for) == (None, None)


def test_a_queued_job_waits_for_room_on_the_disk_before_all_else_and_a_running_one_does_not(
    database: Database,
) -> None:
    lease, queued = claimed_job(database), submit(database)
    asked = []

    def why_no_room() -> str:
        asked.append("disks")
        return "disk: 13 MiB are free, and 64 needed"

    with database.reading() as session:
        jobs = [JobRepository(session).get(job_id) for job_id in (lease.job_id, queued)]
        waiting = waiting_of(session, jobs, now=NOW, silence_seconds=30, around=Surroundings(why_no_room))
        waiting_of(session, jobs[:1], now=NOW, silence_seconds=30, around=Surroundings(why_no_room))
    assert waiting == {
        lease.job_id: Waiting(NOW, FIRST_MEASUREMENT),
        queued: Waiting(NOW, "no job is begun until there is room: disk: 13 MiB are free, and 64 needed"),
    }
    assert asked == ["disks"]
