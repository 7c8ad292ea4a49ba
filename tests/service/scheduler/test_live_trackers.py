"""Trackers that a job's run tells while trials train: opened again by themselves, and never an error of the job."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from service.domain import TrialState
from service.scheduler.live_trackers import LiveTrackers
from service.scheduler.stored_job import trackers_of
from service.store.repositories import JobRepository
from service.store.session import Database
from tests.support.service.external import Run, submit_external
from tests.support.waiting import PATIENCE_SECONDS
from trainers.config import Measurement, OptimizerConfig, TrialConfig

CONFIG = TrialConfig(
    workload="digits-mlp",
    optimizer=OptimizerConfig("adamw", {"lr": 0.01, "betas": [0.9, 0.99]}),
    num_steps=20,
    batch_size=8,
    evaluate_every=10,
)


def measured(step: int, loss: float) -> Measurement:
    return Measurement(step, 0.0, 1.0, {"validation_loss": loss, "odd/../name": 1.0})


@pytest.mark.processes  # MLflow asks one for the kind of processor
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_trials_are_tracked_while_they_train(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # Imported here: all processes that collect this file would wait for them, a second each.
    from mlflow.tracking import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from trainers.trackers.mlflow_store import store_in

    for steps, ends in ((10, TrialState.QUEUED), (20, TrialState.COMPLETED)):  # paused, and gone on with by another run
        trackers = LiveTrackers("job_1", ["mlflow", "wandb", "tensorboard"], tmp_path, job_name="=1+1")
        trackers.measured(0, CONFIG, measured(steps, 1 / steps))
        trackers.measured(1, CONFIG, measured(steps, float("nan")))
        trackers.ended(0, ends)
        trackers.close(timeout_seconds=PATIENCE_SECONDS)
    # One that is not installed, or fails, is told no more, and stops no other.
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text.split(":")[0] for text in told] == ["tracker wandb is told nothing more"] * 2
    client = MlflowClient(store_in(tmp_path / "mlflow"))
    experiment = client.get_experiment_by_name("job_1")
    assert experiment is not None
    runs = {run.data.tags["trial"]: run for run in client.search_runs([experiment.experiment_id])}
    assert {number: run.info.status for number, run in runs.items()} == {"0": "FINISHED", "1": "RUNNING"}
    assert runs["0"].data.params["lr"] == "0.01"
    history = client.get_metric_history(runs["0"].info.run_id, "validation_loss")
    assert [(point.step, point.value) for point in history] == [(10, 0.1), (20, 0.05)]
    events = EventAccumulator(str(tmp_path / "tensorboard" / "job_1" / "trial-00000"))
    events.Reload()
    assert [point.step for point in events.Scalars("validation_loss")] == [10, 20]
    assert sorted(path.name for path in (tmp_path / "tensorboard" / "job_1").iterdir()) == [
        "trial-00000",
        "trial-00001",
    ]


def test_a_job_says_which_trackers_it_has(sqlite_database: Database, tmp_path: Path) -> None:
    job_id = submit_external(sqlite_database, trackers=["tensorboard"])
    with sqlite_database.reading() as session:
        trackers = trackers_of(JobRepository(session).get(job_id), tmp_path)
    trackers.measured(0, CONFIG, measured(10, 0.5))
    trackers.close(timeout_seconds=PATIENCE_SECONDS)
    assert (tmp_path / "tensorboard" / job_id / "trial-00000").is_dir()
    with sqlite_database.reading() as session:
        assert trackers_of(JobRepository(session).get(submit_external(sqlite_database)), tmp_path)._names == []
    assert Run(sqlite_database).state == "running"
