"""The page of the cluster: what it tells whom, and that it stays true."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import httpx
from playwright.sync_api import Page, expect

from service.access.caller import Scope
from service.dashboard.cluster.view import headline, others_words, versions_words
from service.store.repositories import TrialRepository
from service.store.repositories.cluster import QueuedJob
from service.store.session import Database
from service.use_cases.cluster import ClusterState, Others, QueuePlace, cluster_state, places
from service.use_cases.leases import beat, end_worker, register_worker
from service.use_cases.progress import TrialMemory
from service.use_cases.run import ShareReport, report_share
from service.use_cases.steer import change_job
from tests.service.dashboard.conftest import wait_until_live
from tests.support.service.callers import asking, give_token
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.scenarios import NOW, add_worker, begin_trial, claim, submit
from tests.support.service.stories.jobs import Story


def _state(database: Database, sees: str | None, *, now: datetime = NOW) -> ClusterState:
    with database.reading() as session:
        return cluster_state(session, sees=sees, now=now, silence_seconds=30.0, memory=TrialMemory())


def test_an_empty_store_has_nothing_to_do_and_no_worker(database: Database) -> None:
    state = _state(database, None)
    assert (state.num_workers, state.last_heard_of, state.queue, state.running) == (0, None, [], [])
    assert headline(state) == "No worker is alive, and no job waits."


def test_the_queue_stands_in_the_order_in_which_workers_take_it(database: Database) -> None:
    first, second = submit(database), submit(database, now=NOW + timedelta(seconds=1))
    urgent = submit(database, now=NOW + timedelta(seconds=2))
    with database.writing() as session:
        change_job(session, urgent, priority=5, now=NOW)
    state = _state(database, None)
    assert [place.job and place.job.id for place in state.queue] == [urgent, first, second]
    assert {place.waiting and place.waiting.reason for place in state.queue} == {
        "no worker has been started; `shampoo-tuner worker` starts one"
    }
    for expected in (urgent, first):
        lease = claim(database, add_worker(database))
        assert lease is not None
        assert lease.job_id == expected


def test_a_caller_sees_jobs_of_its_project_and_counts_the_others(database: Database) -> None:
    give_token(database, "ours", Scope.READ, project="ours")
    give_token(database, "theirs", Scope.READ, project="theirs")
    theirs = submit(database, project="theirs", model="their-secret")
    worker, idle = add_worker(database), add_worker(database)
    lease = claim(database, worker)
    assert lease is not None
    begin_trial(database, lease, 0)
    with database.writing() as session:
        report_share(session, lease, ShareReport("ray:6379", 1, 0.25, None, None), now=NOW)
    submit(database, project="theirs")
    ours = submit(database, project="ours")
    submit(database, project="theirs")
    state = _state(database, "ours")
    assert state.running == []
    assert state.running_others == Others(1, 1, 1)
    assert others_words(state.running_others) == "1 job of other projects: 1 trial in training, 1 rank"
    assert others_words(Others(1, 0, 1200)) == "1 job of other projects: no trials in training, 1,200 ranks"
    assert [(place.first, place.last, place.job and place.job.id) for place in state.queue] == [
        (1, 1, None),
        (2, 2, ours),
        (3, 3, None),
    ]
    of_worker = {seen.worker.id: seen for seen in state.workers}
    assert (of_worker[worker].jobs, of_worker[worker].num_others, of_worker[worker].is_idle) == ([], 1, False)
    assert of_worker[idle].is_idle
    (shared,) = state.shared
    assert [(share.job, share.part) for share in shared.shares] == [(None, 0.25)]
    assert shared.spare == 0.75
    everything = _state(database, None)
    assert [each.job.id for each in everything.running] == [theirs]
    assert headline(everything) == "2 workers are alive; 1 job runs, 3 jobs wait."


def test_a_worker_that_has_fallen_silent_is_told_with_the_job_that_it_had(database: Database) -> None:
    job = submit(database)
    assert claim(database, add_worker(database)) is not None
    later = NOW + timedelta(days=3)
    state = _state(database, None, now=later)
    (running,) = state.running
    assert running.is_lost
    assert (state.num_workers, state.last_heard_of) == (0, NOW)
    (worker,) = state.workers
    assert not worker.is_alive
    assert [found.id for found in worker.jobs] == [job]


def test_workers_that_live_stand_before_those_that_have_fallen_silent(database: Database) -> None:
    later = NOW + timedelta(hours=1)
    silent, lives = add_worker(database), add_worker(database, now=later)
    found = _state(database, None, now=later).workers
    assert [(each.worker.id, each.is_alive) for each in found] == [(lives, True), (silent, False)]


def test_a_job_tells_what_its_newest_measured_trial_trained_on(database: Database) -> None:
    story = Story(database, now=NOW)
    story.run(0)
    with database.writing() as session:
        trial = TrialRepository(session).get(story.job_id, 0)
        versions = {"python": "3.11", "torch": "2.13.0", "shampoo-tuner": "0.1.0"}
        trial.fingerprint = 32 * "0"
        trial.environment = {"device": "cuda", "device_name": "H100", "world_size": 2, "versions": versions}
    story.begin(1)
    (running,) = _state(database, None, now=story.now).running
    assert running.device is not None
    assert (running.device.name, running.num_trials, running.num_ranks) == ("H100", 1, 2)
    assert versions_words(running.device.versions) == "shampoo-tuner 0.1.0, torch 2.13.0"


def test_places_of_others_in_a_row_are_one_and_the_rest_of_a_long_queue_is_left_out() -> None:
    queue = [QueuedJob(f"job_{place}", project, place) for place, project in enumerate("abbab", start=1)]
    assert places(queue, {}, {}, sees="c") == [QueuePlace(1, 5, None)]
    assert places(queue, {}, {}, sees="b") == [QueuePlace(1, 1, None)]


def test_the_page_names_no_job_of_another_project(sqlite_database: Database) -> None:
    with asking(sqlite_database) as service:
        read = give_token(sqlite_database, "reader", Scope.READ, project="ours")
        metrics = give_token(sqlite_database, "prometheus", Scope.METRICS)
        admin = give_token(sqlite_database, "admin", Scope.ADMIN)
        give_token(sqlite_database, "theirs", Scope.READ, project="theirs")
        theirs = submit(sqlite_database, project="theirs")
        assert claim(sqlite_database, add_worker(sqlite_database), now=datetime.now(UTC)) is not None
        waits = submit(sqlite_database, project="theirs")
        with service.client(read) as http:
            page = http.get("/cluster")
            assert page.status_code == 200
            assert "1 job of other projects" in page.text
            assert theirs not in page.text
            assert waits not in page.text
            assert theirs[-6:] not in re.sub(r"worker_\w+", "", page.text)
        with service.client(admin) as http:
            assert f"/jobs/{waits}" in http.get("/cluster").text
        with service.client(metrics) as http:
            assert http.get("/cluster").status_code == 403


def test_the_cluster_fills_and_empties_before_the_readers_eyes(page: Page, sqlite_database: Database) -> None:
    page.goto("/")
    page.get_by_role("navigation", name="Site").get_by_role("link", name="Cluster").click()
    expect(page.get_by_role("heading", name="No worker has been started yet")).to_be_visible()
    expect(page.locator("#cluster")).to_contain_text("shampoo-tuner worker")
    wait_until_live(page)

    job = submit(sqlite_database, now=datetime.now(UTC))
    queue = page.locator(f"#queued-{job}")
    expect(queue).to_contain_text("no worker has been started")

    # A worker's coming is no event of a job: the page looks by itself.
    with sqlite_database.writing() as session:
        worker = register_worker(session, host="gpu-node-17", pid=4711, now=datetime.now(UTC))
    row = page.locator(f"#{worker}")
    expect(row).to_contain_text("gpu-node-17")
    expect(row).to_contain_text("free")
    expect(queue).to_contain_text("a worker is about to take it")

    assert_accessible(page)

    lease = claim(sqlite_database, worker, now=datetime.now(UTC))
    assert lease is not None
    begin_trial(sqlite_database, lease, 0, now=datetime.now(UTC))
    with sqlite_database.writing() as session:
        beat(session, worker, lease_seconds=30.0, now=datetime.now(UTC))
    expect(page.locator(f"#running-{job}")).to_contain_text("1 trial")
    expect(queue).to_have_count(0)
    expect(row).to_contain_text("busy")
    expect(row.get_by_role("link", name="digits-mlp")).to_have_attribute("href", f"/jobs/{job}")

    with sqlite_database.writing() as session:
        end_worker(session, worker, now=datetime.now(UTC))
    expect(page.locator(".totals")).to_contain_text("Workers alive0")


def test_unknown_parameters_and_methods_of_the_page_are_no_error_of_the_service(address: str) -> None:
    with httpx.Client(base_url=address, trust_env=False, verify=False) as http:
        assert http.get("/cluster?x=1").status_code == 200
        assert http.post("/cluster").status_code == 405
