"""Migrations give the models' tables, run forward and back, and may be run by several processes at once."""

from __future__ import annotations

import math
import multiprocessing
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import JSON, column, inspect, select, table, text, update

from service.domain import CancelCause, CutShort, TrialState
from service.places import NodePlace
from service.store.migrate import check, current_revision, downgrade, migrate, why_not_migrated
from service.store.models import MetricSet
from service.store.repositories import (
    DeletionRepository,
    JobRepository,
    ProjectRepository,
    RecommendationRepository,
    TrialRepository,
    WorkerRepository,
)
from service.store.session import VERSION_TABLE, Database
from service.use_cases.keeping.deletion import delete_job
from service.use_cases.keeping.marks import change_trial
from service.use_cases.run import TrialMeasurements, finish_job, record_measurements, record_places
from service.use_cases.steer import cancel_job, change_job
from service.use_cases.submit import create_job
from service.use_cases.transitions import STOPPED
from tests.support.service.commands import run
from tests.support.service.databases.migrating import migrate_url
from tests.support.service.identities import built_identity
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claimed_job,
    end_trial,
    run_trial,
    specification,
    submit,
)
from tests.support.waiting import PATIENCE_SECONDS
from trainers.config import Measurement


@pytest.fixture
def empty(empty_database_url: str) -> Database:
    return Database(empty_database_url)


def test_migrated_tables_are_the_models_tables(database: Database) -> None:
    assert why_not_migrated(database) is None
    check(database)


@pytest.mark.slow
def test_downgrade_removes_everything_and_upgrade_brings_it_back(database: Database) -> None:
    downgrade(database, "base")
    assert set(inspect(database.engine).get_table_names()) <= {"shampoo_tuner_version"}
    assert current_revision(database) is None
    migrate(database)
    check(database)


def test_earlier_jobs_get_the_time_they_ran(database: Database) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW + timedelta(seconds=90))
    running, waiting = claimed_job(database).job_id, submit(database)
    downgrade(database, "0001")
    migrate(database)
    with database.reading() as session:
        jobs = {job.id: job for job in JobRepository(session).page(project=None, limit=3)}
        [trial] = TrialRepository(session).page(lease.job_id)
    assert {job_id: (job.running_seconds, job.running_since) for job_id, job in jobs.items()} == {
        lease.job_id: (90.0, None),
        waiting: (0.0, None),
        running: (0.0, NOW),
    }
    assert trial.spent_seconds == trial.seconds == 0.4


TARGET = {"metric": "validation_accuracy", "value": 0.9}


@pytest.mark.parametrize(
    ("asked", "before"),
    [
        ({}, None),
        (
            {"objectives": [{"metric": "validation_accuracy"}]},
            {"metric": "validation_accuracy", "target": None, "also": []},
        ),
        (
            {"objectives": [{"metric": "seconds_to_target"}, {"metric": "train_loss"}], "target": TARGET},
            {"metric": "seconds_to_target", "target": TARGET, "also": ["train_loss"]},
        ),
    ],
)
def test_objectives_are_kept_both_ways(
    database: Database, asked: dict[str, Any], before: dict[str, Any] | None
) -> None:
    def stored() -> tuple[Any, Any]:
        with database.reading() as session:
            job = JobRepository(session).get(job_id)
            return job.stored_specification, job.objectives

    job_id = submit(database, **asked)
    now = stored()
    downgrade(database, "0013")
    earlier = table(
        "jobs", column("specification", JSON), column("metric"), column("direction"), column("further_objectives", JSON)
    )
    with database.engine.connect() as connection:
        specification, *first, others = connection.execute(select(earlier)).one()
    assert specification["objective"] == before
    assert not {"objectives", "target"} & specification.keys()
    assert (first, others) == (
        [now[1][0].metric, now[1][0].direction],
        [[objective.metric, objective.direction] for objective in now[1][1:]],
    )
    migrate(database)
    assert stored() == now


def test_a_target_alone_names_the_default_objective_after_a_downgrade(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database, target=TARGET)
    downgrade(sqlite_database, "0013")
    migrate(sqlite_database)
    with sqlite_database.reading() as session:
        specification = JobRepository(session).get(job_id).specification
    assert [choice.metric for choice in specification.objectives] == ["validation_loss"]
    assert specification.target is not None
    assert specification.target.model_dump() == TARGET


def test_an_empty_database_is_not_current(empty: Database) -> None:
    empty.make_file()
    assert current_revision(empty) is None
    assert why_not_migrated(empty) is not None
    empty.close()


def test_a_database_of_a_newer_version_is_left_alone_and_said_to_be_one(database: Database) -> None:
    newest = current_revision(database)
    with database.writing() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for command in ("migrate", "worker"):
        result = run(command, "--database-url", database.url)
        assert (result.exit_code, result.stderr) == (
            1,
            "shampoo-tuner: the database is of a newer version of shampoo-tuner: revision 9999, and this one knows "
            f"those up to {newest}. Install that version, and start it in place of this one\n",
        )
    with database.writing() as session:  # which is then taken down as one of this version
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{newest}'"))


@pytest.mark.processes
def test_processes_that_migrate_at_the_same_time_all_succeed(empty_database_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=migrate_url, args=(empty_database_url,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE_SECONDS)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    database = Database(empty_database_url)
    assert why_not_migrated(database) is None
    database.close()


def test_what_was_stored_without_projects_belongs_to_the_default_one(database: Database) -> None:
    def resubmitted() -> bool:
        with database.writing() as session:
            return create_job(
                session,
                specification(),
                name=None,
                tags={},
                project="default",
                owner=None,
                idempotency_key="k" * 255,
                now=NOW,
            )[1]

    assert resubmitted()
    downgrade(database, "0017")
    with database.engine.begin() as connection:
        earlier = table("jobs", column("idempotency_key"))
        assert connection.execute(select(earlier)).scalar_one() is None
        connection.execute(update(earlier).values(idempotency_key="k" * 255))
    migrate(database)
    check(database)
    assert not resubmitted()
    with database.reading() as session:
        [job] = JobRepository(session).page(project="default", limit=2)
        [project] = ProjectRepository(session).all()
    assert (job.owner, project.name, project.max_running_jobs) == (None, "default", None)


def test_measurements_are_kept_both_ways(database: Database) -> None:
    def curves() -> list[tuple[int, list[tuple[int, dict[str, float | None], datetime]]]]:
        with database.reading() as session:
            trials = TrialRepository(session).with_measurements(lease.job_id)
            return [
                (trial.number, [(row.step, row.metrics, row.recorded_at) for row in trial.measurements])
                for trial in trials
            ]

    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1)
    others = {"train_loss": math.inf, "validation_loss": 0.1, "num_skipped_steps": 3}
    reported = Measurement(step=10, epoch=1.0, seconds=0.5, metrics=others)
    with database.writing() as session:
        record_measurements(session, lease, [TrialMeasurements(1, [reported])], now=NOW)
    now = curves()
    assert now[1] == (1, [(10, {"train_loss": None, "validation_loss": 0.1, "num_skipped_steps": 3}, NOW)])
    downgrade(database, "0017")
    assert "metric_sets" not in inspect(database.engine).get_table_names()
    with database.engine.connect() as connection:
        earlier = table("measurements", column("trial_id"), column("step"), column("metrics", JSON))
        stored = connection.execute(select(earlier.c.metrics).order_by(earlier.c.trial_id, earlier.c.step))
        assert list(stored.scalars()) == [metrics for _, curve in now for _, metrics, _ in curve]
    migrate(database)
    check(database)
    assert curves() == now


def test_measurements_with_the_same_names_share_them(database: Database) -> None:
    lease = claimed_job(database)
    for number in range(2):
        run_trial(database, lease, number, 0.5)
    with database.engine.connect() as connection:
        assert connection.execute(select(MetricSet.names)).scalars().all() == [
            ["train_loss", "validation_loss", "validation_accuracy"]
        ]


def test_what_jobs_have_spent_stands_beside_them_after_an_upgrade(database: Database) -> None:
    lease = claimed_job(database, resources={"workers_per_trial": 2})
    run_trial(database, lease, 0, 0.5)  # 0.4 s on each rank
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    downgrade(database, "0019")
    migrate(database)
    check(database)
    with database.reading() as session:
        assert JobRepository(session).get(lease.job_id).spent_device_seconds == pytest.approx(0.8)
        assert ProjectRepository(session).device_hours("default") == pytest.approx(0.8 / 3600)


def test_trials_outlast_a_downgrade_without_their_notes_and_places(database: Database) -> None:
    lease = claimed_job(database)
    for number in range(2):
        run_trial(database, lease, number, 0.5)
    with database.writing() as session:
        change_trial(session, lease.job_id, 1, note="a note", now=NOW)
        record_places(session, lease, 0, [NodePlace("a", ("0",))])
    with database.reading() as session:
        found = TrialRepository(session).with_measurements(lease.job_id)
        assert [trial.places for trial in found] == [{"1": [{"node": "a", "gpus": ["0"]}]}, None]
    downgrade(database, "0028")
    assert not {"note", "places"} & {found["name"] for found in inspect(database.engine).get_columns("trials")}
    migrate(database)
    check(database)
    with database.reading() as session:
        trials = TrialRepository(session).with_measurements(lease.job_id)
        assert [(trial.note, trial.places, len(trial.measurements)) for trial in trials] == [(None, None, 4)] * 2


def test_the_causes_of_cancelled_trials_are_read_from_what_was_told_of_them(database: Database) -> None:
    def causes() -> dict[str, list[CancelCause | None]]:
        with database.reading() as session:
            return {job: [t.cancel_cause for t in TrialRepository(session).page(job)] for job in jobs}

    jobs = []
    for cut_short, failure in ((CutShort.BUDGET, None), (CutShort.QUOTA, None), (None, "rank 0 died")):
        lease = claimed_job(database)
        jobs.append(lease.job_id)
        for number in range(3):
            begin_trial(database, lease, number)
        end_trial(database, lease, 0, TrialState.COMPLETED)
        end_trial(database, lease, 1, TrialState.CANCELLED, detail=STOPPED)
        with database.writing() as session:
            finish_job(session, lease, failure=failure, cut_short=cut_short, now=NOW)
    lease = claimed_job(database)
    jobs.append(lease.job_id)
    begin_trial(database, lease, 0)
    with database.writing() as session:
        cancel_job(session, jobs[-1], now=NOW)
    told = causes()
    user = [None, CancelCause.USER]
    assert list(told.values()) == [
        [*user, CancelCause.BUDGET],
        [*user, CancelCause.QUOTA],
        [*user, CancelCause.JOB_FAILED],
        [CancelCause.JOB_CANCELLED],
    ]
    downgrade(database, "0029")
    migrate(database)
    check(database)
    assert causes() == told


@pytest.mark.parametrize("metric", ["validation_loss", "validation_accuracy", "train_loss", "best_step_seconds"])
def test_recommendations_of_before_get_the_scores_that_new_ones_have(database: Database, metric: str) -> None:
    lease = claimed_job(database, objectives=[{"metric": metric}])
    begin_trial(database, lease, 0)
    values = dict.fromkeys({"validation_loss", "step_seconds", metric}, 0.5)
    reported = Measurement(step=40, epoch=4.0, seconds=0.4, metrics=values)
    identity = built_identity(specification())
    with database.writing() as session:
        record_measurements(session, lease, [TrialMeasurements(0, [reported], identity)], now=NOW)
    end_trial(database, lease, 0)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)

    def kept() -> tuple[float | None, str | None]:
        with database.reading() as session:
            row = RecommendationRepository(session).of_job(lease.job_id)
            assert row is not None
            return row.score, row.measured_by

    now = kept()
    assert now[0] == {"validation_accuracy": 0.5, "best_step_seconds": None}.get(metric, -0.5)
    assert (now[1] is None) == (now[0] is None)
    downgrade(database, "0031")
    migrate(database)
    check(database)
    assert kept() == now


def test_a_downgrade_does_not_bring_deleted_jobs_back(database: Database) -> None:
    kept, deleted = submit(database), submit(database)
    with database.writing() as session:
        change_job(session, kept, notes="a note", now=NOW)
        cancel_job(session, deleted, now=NOW)
        delete_job(session, deleted, now=NOW)
    downgrade(database, "0019")
    migrate(database)
    check(database)
    with database.reading() as session:
        [job] = JobRepository(session).page(project=None, limit=5)
        assert (job.id, job.notes, job.archived_at, job.deleted_at) == (kept, None, None, None)
        assert DeletionRepository(session).among([deleted]) == set()


def test_earlier_jobs_that_name_code_are_known_and_earlier_workers_take_them(database: Database) -> None:
    of_sampler, of_class, ordinary = (
        submit(database, sampler={"name": "my_samplers:Mine"}),
        submit(database),
        submit(database),
    )
    add_worker(database, allows_code=False)
    downgrade(database, "0032")
    with database.writing() as session:
        session.execute(text("UPDATE jobs SET workload = 'mine:Mine' WHERE id = :job"), {"job": of_class})
    migrate(database)
    with database.reading() as session:
        names_code = {job.id: job.names_code for job in JobRepository(session).page(project=None, limit=3)}
        assert WorkerRepository(session).alive_since(NOW, allows_code=True) == 1
    assert names_code == {of_sampler: True, of_class: True, ordinary: False}
