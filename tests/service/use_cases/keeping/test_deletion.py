"""The remains of a deleted job are removed a little at a time, and again from where it ended."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from service.domain import Phase, TrialState
from service.errors import JobNotFinished
from service.scheduler.disk import jobs_with_logs, log_of
from service.scheduler.removal import remove_checkpoints_of_finished_jobs, remove_logs_of_deleted_jobs, remove_next
from service.settings import Settings
from service.store.models import Event, Job, MeasurementRow, Project, RecommendationRow, Trial
from service.store.repositories import DeletionRepository, OperationRepository, ProjectRepository
from service.store.session import Database
from service.use_cases.keeping import deletion
from service.use_cases.keeping.deletion import GRACE, delete_job, next_to_remove, remove_some
from service.use_cases.leases import release_job
from service.use_cases.steer import cancel_job
from tests.support.service.live import finished_job
from tests.support.service.scenarios import NOW, Clock, begin_trial, claimed_job, end_trial, measure, submit


def _delete(database: Database, job_id: str) -> None:
    with database.writing() as session:
        delete_job(session, job_id, now=NOW)


def _num_rows(database: Database) -> list[int]:
    with database.reading() as session:
        tables = (Job, Trial, MeasurementRow, Event, RecommendationRow)
        return [session.scalar(select(func.count()).select_from(table)) or 0 for table in tables]


def test_a_job_that_has_not_ended_is_not_deleted(database: Database) -> None:
    for job_id in (submit(database), claimed_job(database).job_id):
        with pytest.raises(JobNotFinished), database.writing() as session:
            delete_job(session, job_id, now=NOW)


def test_pieces_end_with_the_job_itself_wherever_they_were_interrupted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = finished_job(database)
    left = _num_rows(database)
    lease = claimed_job(database)
    for number in range(3):
        begin_trial(database, lease, number, Phase.SEARCH)
        for step in (10, 20, 30, 40):
            measure(database, lease, number, step, 1.0)
        end_trial(database, lease, number, TrialState.COMPLETED)
    with database.writing() as session:
        cancel_job(session, lease.job_id, now=NOW)
    _delete(database, lease.job_id)
    with database.reading() as session:
        assert next_to_remove(session, now=NOW + GRACE) is None, "who follows it hears of it first"
        assert next_to_remove(session, now=NOW + GRACE + timedelta(seconds=1)) == lease.job_id
    pieces, is_more = [], True
    for name, value in (("MEASUREMENTS_AT_ONCE", 3), ("TRIALS_AT_ONCE", 2), ("EVENTS_AT_ONCE", 5)):
        monkeypatch.setattr(deletion, name, value)
    while is_more:
        before = _num_rows(database)
        with database.writing() as session:
            is_more = remove_some(session, lease.job_id)
        pieces.append(sum(before) - sum(_num_rows(database)))
        with database.reading() as session:  # what a worker that was killed here would find
            found = next_to_remove(session, now=NOW + 2 * GRACE)
        assert found == (lease.job_id if is_more else None)
    assert max(pieces) <= 5
    assert _num_rows(database) == left
    with database.reading() as session:
        assert DeletionRepository(session).among([lease.job_id, other, "job_x"]) == {lease.job_id}


def test_device_hours_of_a_deleted_job_stay_spent(database: Database) -> None:
    with database.writing() as session:
        session.add(Project(name="ours", created_at=NOW))
    job_id = finished_job(database, project="ours", resources={"workers_per_trial": 2})

    def spent() -> tuple[float, float]:
        with database.reading() as session:
            figures = OperationRepository(session).figures(alive_since=NOW)
            return ProjectRepository(session).device_hours("ours"), figures.rank_seconds

    before = spent()
    assert before[0] > 0
    _delete(database, job_id)
    assert spent() == pytest.approx(before)
    is_more = True
    while is_more:
        with database.writing() as session:
            is_more = remove_some(session, job_id)
            assert ProjectRepository(session).device_hours("ours") == pytest.approx(before[0])
    assert spent() == pytest.approx(before)


@pytest.mark.slow
def test_a_worker_removes_the_files_and_the_rows(sqlite_database: Database, tmp_path: Path) -> None:
    database, clock = sqlite_database, Clock()
    settings = Settings(data_dir=tmp_path, database_url=database.url)
    deleted, kept = finished_job(database), finished_job(database)
    place = settings.checkpoint_place
    assert isinstance(place, Path)
    for job_id in (deleted, kept, "job_of_another_database"):
        (place / job_id / "0").mkdir(parents=True)
        log_of(tmp_path, job_id).parent.mkdir(exist_ok=True)
        for path in (log_of(tmp_path, job_id), log_of(tmp_path, job_id).with_name(f"{job_id}.log.1")):
            path.write_text("a log")
    _delete(database, deleted)
    assert remove_next(database, settings, gone=threading.Event(), clock=clock) is None
    clock.advance(31)
    stopped = threading.Event()
    stopped.set()
    assert remove_next(database, settings, gone=stopped, clock=clock) == deleted, "a worker that is told to stop"
    assert _num_rows(database)[0] == 2
    assert remove_next(database, settings, gone=threading.Event(), clock=clock) == deleted
    assert remove_next(database, settings, gone=threading.Event(), clock=clock) is None
    assert _num_rows(database)[0] == 1
    assert sorted(path.name for path in place.iterdir()) == sorted([kept, "job_of_another_database"])
    assert jobs_with_logs(tmp_path) == {kept, "job_of_another_database"}
    # What turns up later, as on the machine of another worker, goes, too.
    (place / deleted / "1").mkdir(parents=True)
    log_of(tmp_path, deleted).write_text("a log")
    remove_checkpoints_of_finished_jobs(database, place)
    remove_logs_of_deleted_jobs(database, settings)
    assert jobs_with_logs(tmp_path) == {kept, "job_of_another_database"}
    assert [path.name for path in place.iterdir()] == ["job_of_another_database"]


def test_a_run_that_leaves_a_deleted_job_finds_out(database: Database) -> None:
    lease = claimed_job(database)
    with database.writing() as session:
        cancel_job(session, lease.job_id, now=NOW)
    _delete(database, lease.job_id)
    with database.writing() as session:
        assert release_job(session, lease, now=NOW, crash="it was killed") is None
