"""Checkpoints of jobs on a path and in stores: counted and collected; and a job whose trials keep theirs in S3."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.checkpoint_files import WEIGHTS_DIRECTORY, weights_of
from service.client import Client
from service.clock import utc_now
from service.domain import DEFAULT_PROJECT, JobState, TrialState
from service.scheduler.checkpoint_storage import (
    CheckpointsUnusable,
    Collector,
    checkpoint_bytes,
    checkpoints_of,
    directories_in,
    remove,
    remove_of_ended_trials,
    try_out,
)
from service.scheduler.removal import remove_checkpoints_of_finished_jobs, remove_next
from service.settings import Settings
from service.specification.job import JobSpecification
from service.store.session import Database
from service.use_cases.steer import cancel_job
from service.use_cases.submit import create_job
from tests.service.scheduler.test_job_run import specification
from tests.support.s3_server import SECRET, S3Server
from tests.support.service.answers import assert_winners_are_downloaded
from tests.support.service.live import running
from tests.support.service.service_process import ServiceProcesses
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from trainers.storage import Place, place_of
from trainers.storage.object_store import ObjectStore


@pytest.fixture(params=["path", "file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, s3: S3Server) -> Place:
    """Where jobs keep their checkpoints; empty."""
    directory = tmp_path / "checkpoints"
    texts = {"path": str(directory), "file": directory.as_uri(), "s3": s3.uri(tmp_path.name)}
    return place_of(texts[request.param])


def put(place: Place, path: str, num_bytes: int) -> None:
    if isinstance(place, Path):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(b"x" * num_bytes)
    else:
        ObjectStore(place).write(path, lambda: [b"x" * num_bytes])


def test_checkpoints_are_counted_and_those_of_ended_trials_go(place: Place) -> None:
    job = checkpoints_of(place, "job_1")
    assert (checkpoint_bytes(job), directories_in(job)) == (0, [])
    remove_of_ended_trials(job, unfinished=())
    for name in ("0", "1", "12", "not-a-trial"):
        put(job, f"{name}/step-00000010/rank-00000.safetensors", 100)
    put(checkpoints_of(place, "job_2"), "0/step-00000010/rank-00000.safetensors", 10_000)
    assert checkpoint_bytes(job) == 400
    remove_of_ended_trials(job, unfinished={1, 2})
    assert directories_in(job) == ["1", "not-a-trial"]
    assert checkpoint_bytes(job) == 200
    remove(job)
    remove(job)
    assert directories_in(place) == ["job_2"]
    assert checkpoint_bytes(place) == 10_000


def test_a_trial_that_ends_is_collected_and_one_that_began_meanwhile_is_not(place: Place) -> None:
    unfinished: dict[int, object] = {1: {}, 2: {}}
    collector = Collector(place, unfinished=unfinished)
    for name in ("1", "2", "3"):
        put(place, f"{name}/x", 1)
    unfinished[3] = {}
    del unfinished[1]
    collector.collect()
    wait_until(lambda: directories_in(place) == ["2", "3"], "the end of trial 1's checkpoints")


def test_a_run_begins_without_what_an_earlier_one_left_of_trials_it_did_not_launch(place: Place) -> None:
    for name in ("1", "2", "3"):
        put(place, f"{name}/x", 1)
    Collector(place, unfinished={1: {}, 2: {}}).collect_now(not_launched={2, 4})
    assert directories_in(place) == ["1"]


def test_a_file_of_two_names_takes_its_bytes_once(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(bytes(100))
    (tmp_path / "2").hardlink_to(tmp_path / "1")
    assert checkpoint_bytes(tmp_path) == 100


def test_what_is_left_of_finished_jobs_goes_and_what_may_be_others_stays(
    place: Place, sqlite_database: Database
) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    job = JobSpecification.model_validate({"workload": {"name": "digits-mlp"}})
    with sqlite_database.writing() as session:
        queued, cancelled = (
            create_job(
                session, job, name=None, tags={}, project=DEFAULT_PROJECT, owner=None, idempotency_key=None, now=now
            )[0].id
            for _ in range(2)
        )
        cancel_job(session, cancelled, now=now)
    for name in (queued, cancelled, "job_of_another_database", "not_ours"):
        put(place, f"{name}/0/x", 1)
    remove_checkpoints_of_finished_jobs(sqlite_database, place)
    assert directories_in(place) == sorted([queued, "job_of_another_database", "not_ours"])


def test_a_store_is_tried_out_and_left_as_it_was(place: Place) -> None:
    try_out(place, setting="SETTING", value="value")
    assert checkpoint_bytes(place) == 0
    assert directories_in(place) == []


def test_a_store_that_does_not_answer_is_tried_again_later(s3: S3Server, sqlite_database: Database) -> None:
    place = place_of(s3.uri("denied"))
    put(place, "job_1/0/x", 1)
    s3.fail(".*", times=99, status=403, code="AccessDenied")
    remove(place / "job_1")
    remove_checkpoints_of_finished_jobs(sqlite_database, place)
    with pytest.raises(
        CheckpointsUnusable, match=r"^SETTING=value: no checkpoint can be kept there: s3://tuning/denied"
    ):
        try_out(place, setting="SETTING", value="value")
    s3.heal()
    assert checkpoint_bytes(place) == 1


@pytest.mark.patient
def test_a_worker_does_not_start_where_no_checkpoint_can_be_kept(
    service: ServiceProcesses, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAMPOO_TUNER_CHECKPOINT_DIRECTORY", s3.uri("x", bucket="missing"))
    assert service.start_worker().wait(PATIENCE_SECONDS) == 1
    log = (service.data_dir / "worker.log").read_text()
    setting = f"SHAMPOO_TUNER_CHECKPOINT_DIRECTORY={s3.uri('x', bucket='missing')}"
    assert f"{setting}: no checkpoint can be kept there: s3://missing/x" in log
    assert "bucket does not exist" in log
    assert "Traceback" not in log
    assert SECRET not in log


@pytest.mark.patient
def test_a_job_with_checkpoints_in_s3_goes_on_where_it_was_and_its_winners_weights_stay_there(
    service: ServiceProcesses, s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = place_of(s3.uri("jobs"))
    monkeypatch.setenv("SHAMPOO_TUNER_CHECKPOINT_DIRECTORY", s3.uri("jobs"))
    service.start_worker()
    job = specification(
        num_trials=2,
        options=service.slowly(0.2),
        resources={"parallel_trials": 1},
        baselines=[{"search_space": "sgd"}],
        confirmation={"top_k": 1, "num_seeds": 2},
    )
    job_id = service.submit(job)
    service.wait_for(
        "a trial to be past its first checkpoint",
        lambda: any(20 <= trial.step < 40 for trial in service.trials(job_id)),
    )
    assert checkpoint_bytes(checkpoints_of(place, job_id)) > 1000
    service.run_process().kill()
    service.hurry()
    before = {trial.number: trial for trial in service.trials(job_id)}
    finished, after = service.finish(job_id)

    assert finished.state is JobState.SUCCEEDED, finished.failure
    assert finished.attempt == 2
    assert {trial.state for trial in after} == {TrialState.COMPLETED}
    assert all([measurement.step for measurement in trial.measurements] == [10, 20, 30, 40] for trial in after)
    resumed = [trial for trial in after if trial.runs == 2]
    assert resumed
    for trial in resumed:
        # Its first measurement was not made anew, on another clock: it began at a checkpoint.
        assert trial.measurements[0].seconds == before[trial.number].measurements[0].seconds
    service.wait_for("the end of its checkpoints", lambda: directories_in(place) == [WEIGHTS_DIRECTORY])
    service.wait_for("the others' weights to go", lambda: len(directories_in(weights_of(place, job_id))) == 2)
    with running(service.database, checkpoint_directory=s3.uri("jobs")) as url, Client(url) as client:
        assert_winners_are_downloaded(client, job_id, tmp_path)
        client.delete(job_id)
    late = utc_now() + timedelta(minutes=1)
    settings = Settings(data_dir=tmp_path, checkpoint_directory=s3.uri("jobs"))
    assert remove_next(service.database, settings, gone=threading.Event(), clock=lambda: late) == job_id
    assert checkpoint_bytes(place) == 0
    assert not (service.data_dir / "checkpoints").exists()
    written = [file for file in service.data_dir.rglob("*") if file.is_file()]
    assert len(written) >= 3  # the database, the worker's log and the job's
    assert not any(SECRET.encode() in file.read_bytes() for file in written)
