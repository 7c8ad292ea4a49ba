"""Quotas of projects: what is used up is refused by its name, or waits, and other projects go on."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from service.access.caller import Scope
from service.access.projects import Quotas, change_project, create_project
from service.access.quotas import hours_are_spent
from service.clock import utc_now
from service.domain import CutShort, JobState, TrialState
from service.errors import Conflict, InvalidInput, QuotaExceeded, UnknownName
from service.scheduler.external.run import run_external_job
from service.scheduler.watch import Watch
from service.settings import Settings
from service.store.repositories import JobRepository, ProjectRepository, TrialRepository
from service.store.session import Database
from service.use_cases.leases import note_disk_use
from service.use_cases.run import finish_job
from service.use_cases.steer import cancel_job, pause_job, resume_job
from service.use_cases.waiting import waiting_of
from tests.support.service.callers import asking, give_token
from tests.support.service.external import submit_external
from tests.support.service.scenarios import NOW, add_worker, begin_trial, claim, run_trial, submit


def _make(database: Database, name: str, **quotas: int) -> None:
    with database.writing() as session:
        create_project(session, name, Quotas(**quotas), now=NOW)


@pytest.mark.slow
def test_running_jobs_wait_for_one_another_and_other_projects_do_not(database: Database) -> None:
    _make(database, "small", max_running_jobs=1)
    first, second, other = (submit(database, project=name) for name in ("small", "small", "default"))
    worker = add_worker(database)
    leases = [claim(database, worker, running=[first, second, other]) for _ in range(3)]
    assert [lease and lease.job_id for lease in leases] == [first, other, None]
    with database.reading() as session:
        job = JobRepository(session).get(second)
        waiting = waiting_of(session, [job], now=NOW, silence_seconds=30.0)[second]
        assert waiting is not None
        assert waiting.reason == "project small runs 1 of the 1 jobs that it may run at once"
    with database.writing() as session:
        cancel_job(session, first, now=NOW)
    lease = claim(database, worker, running=[other])
    assert lease is not None
    assert lease.job_id == second
    # A job whose worker died goes on: it is one of those that run.
    later = NOW + timedelta(hours=1)
    found = {claim(database, add_worker(database, now=later), now=later, running=[]) for _ in range(2)}
    assert {lease.job_id for lease in found if lease is not None} == {second, other}


def test_each_quota_refuses_a_further_job_by_its_name(database: Database) -> None:
    _make(database, "small", max_queued_jobs=1)
    job = submit(database, project="small")
    with pytest.raises(QuotaExceeded, match=r"has used 1 of the 1 that max_queued_jobs allows"):
        submit(database, project="small")
    with database.writing() as session:
        pause_job(session, job, now=NOW)
    other = submit(database, project="small")
    with database.writing() as session, pytest.raises(QuotaExceeded):
        resume_job(session, job, now=NOW)
    lease = claim(database, add_worker(database))
    assert lease is not None
    assert lease.job_id == other
    run_trial(database, lease, 0, 0.5)  # 0.4 s of training
    limits = {"max_device_hours": 0.0001, "max_stored_bytes": 1000, "max_queued_jobs": None}
    with database.writing() as session:
        note_disk_use(session, other, 1000)
        for field, limit in limits.items():
            quotas = Quotas(**{field: limit})  # type: ignore[arg-type] # a number of each kind
            change_project(session, "small", quotas, fields=(field,))
    with pytest.raises(QuotaExceeded, match="max_device_hours"):
        submit(database, project="small")
    with database.writing() as session:
        change_project(session, "small", Quotas(), fields=("max_device_hours",))
    with pytest.raises(QuotaExceeded, match="has used 1000 of the 1000 that max_stored_bytes allows"):
        submit(database, project="small")
    with database.reading() as session:
        usage = ProjectRepository(session).usage("small")
    assert (usage.running_jobs, usage.queued_jobs, usage.stored_bytes) == (1, 0, 1000)
    assert usage.device_hours == pytest.approx(0.4 / 3600)
    submit(database)  # the default project has none


def test_a_project_that_has_spent_its_hours_ends_what_it_runs(database: Database) -> None:
    _make(database, "small")
    job = submit(database, project="small", resources={"workers_per_trial": 2})
    submit(database)
    worker = add_worker(database)
    lease, other = claim(database, worker, running=[job]), claim(database, worker, running=[job])
    assert lease is not None
    assert lease.job_id == job
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)

    def spent(hours: float) -> bool:
        with database.writing() as session:
            change_project(session, "small", Quotas(max_device_hours=hours), fields=("max_device_hours",))
        with database.reading() as session:
            return hours_are_spent(session, "small")

    assert not spent(0.81 / 3600)  # 0.4 s on each of two ranks
    assert spent(0.79 / 3600)
    with database.writing() as session:
        assert finish_job(session, lease, failure=None, cut_short=CutShort.QUOTA, now=NOW) is JobState.SUCCEEDED
    with database.reading() as session:
        ended = JobRepository(session).get(job)
        words = "project small has spent the device-hours of its quota (max_device_hours)"
        [trial] = TrialRepository(session).page(job, states=(TrialState.CANCELLED,))
        assert (ended.cut_off, trial.detail, ended.failure) == (words, words, None)
        assert ProjectRepository(session).device_hours("small") == pytest.approx(0.8 / 3600)
        assert not hours_are_spent(session, "default")
    with database.writing() as session, pytest.raises(QuotaExceeded, match="max_device_hours"):
        resume_job(session, job, now=NOW)
    assert not spent(1.0)
    with database.writing() as session:
        resume_job(session, job, now=NOW)
        assert JobRepository(session).get(job).cut_off is None
    assert other is not None
    begin_trial(database, other, 0)
    with database.writing() as session:
        assert finish_job(session, other, failure=None, cut_short=CutShort.QUOTA, now=NOW) is JobState.FAILED
    with database.reading() as session:
        failure = JobRepository(session).get(other.job_id).failure
        assert failure is not None
        assert failure.endswith("; project default has spent the device-hours of its quota (max_device_hours)")


def test_a_job_that_nobody_trains_a_trial_of_is_ended_too_and_goes_on_later(sqlite_database: Database) -> None:
    _make(sqlite_database, "small")
    job = submit_external(sqlite_database, project="small")
    lease = claim(sqlite_database, add_worker(sqlite_database))
    assert lease is not None
    watch = Watch(sqlite_database, lease, poll_seconds=1.0)
    watch.limit_by_quota()
    run_external_job(sqlite_database, lease, watch, Settings())
    with sqlite_database.reading() as session:
        ended = JobRepository(session).get(job)
        assert ended.failure is not None
        assert ended.failure.endswith("; project small has spent the device-hours of its quota (max_device_hours)")
    with sqlite_database.writing() as session:
        assert resume_job(session, job, now=utc_now()).state is JobState.QUEUED


@pytest.mark.slow
def test_a_refusal_and_a_rate_reach_the_caller(sqlite_database: Database) -> None:
    token = give_token(sqlite_database, "ada", Scope.SUBMIT, project="small", max_queued_jobs=0)
    body = {"workload": {"name": "digits-mlp"}, "budget": {"num_trials": 4}}
    # One request every ten seconds, and one at first.
    with asking(sqlite_database, requests_per_second=0.1) as asked, asked.client(token) as ada, asked.client() as other:
        answer = ada.post("/v1/jobs", json=body)
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["field"]) == (403, "max_queued_jobs")
        assert error["message"].endswith("; `shampoo-tuner project set small` changes that")
        assert other.get("/v1/jobs").status_code == 401  # the address has a bucket of its own
        answers = [ada.get("/v1/jobs"), other.get("/v1/jobs"), other.post("/login", data={"token": token})]
        assert [answer.status_code for answer in answers] == [429] * 3
        assert all(1 <= int(answer.headers["retry-after"]) <= 10 for answer in answers)
        page = ada.get("/", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["content-type"]) == (429, "text/html; charset=utf-8")
        assert f'http-equiv="refresh" content="{page.headers["retry-after"]}"' in page.text
        form = other.post("/login?next=/cluster", data={"token": token}, headers={"Accept": "text/html"})
        assert (form.status_code, "refresh" in form.text) == (429, False)
        assert '<a href="">Back to the form</a>' in form.text  # at the same address, whose GET is the form
        assert [other.get(path).status_code for path in ("/healthz", "/static/icon.svg", "/login")] == [200] * 3


def test_impossible_projects_are_refused_by_field(sqlite_database: Database) -> None:
    with sqlite_database.writing() as session:
        for name in ("", "A", "-a", "a b", "a" * 65, "ä", "a/b"):
            told = f"name: {name!r} must be small letters, digits, _ and -, at most 64, not a sign first"
            with pytest.raises(InvalidInput, match=f"^{re.escape(told)}$"):
                create_project(session, name, Quotas(), now=NOW)
        with pytest.raises(Conflict):
            create_project(session, "default", Quotas(), now=NOW)
        with pytest.raises(UnknownName, match="nope"):
            change_project(session, "nope", Quotas(), fields=())
        with pytest.raises(InvalidInput, match="max_running_jobs"):
            change_project(session, "default", Quotas(max_running_jobs=-1), fields=("max_running_jobs",))
