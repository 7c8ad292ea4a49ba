"""A job as MLflow's store and as TensorBoard's event files, opened again by MLflow and TensorBoard themselves."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from service.store.session import Database
from tests.support.service.live import finished_job, running
from trainers.trackers.protocol import SafeNames


@pytest.mark.processes  # MLflow asks one for the kind of processor
# Of MLflow's tables, with SQLAlchemy 2.1.
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_a_job_is_opened_by_mlflow_tensorboard_and_a_spreadsheet(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Imported here: all processes that collect this file would wait for them, a second each.
    from mlflow.tracking import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    monkeypatch.chdir(tmp_path)
    job = finished_job(sqlite_database)

    def export(*options: str) -> str:
        result = CliRunner().invoke(app, ["export", job, "--url", url, *options])
        assert result.exit_code == 0, result.output
        return result.output

    with running(sqlite_database) as url:
        assert export("--format", "mlflow", "-o", "flow") == f"4 trials of job {job} are in flow\n"
        told = json.loads(export("--format", "tensorboard", "-o", "board", "--json"))
        assert told == {"job_id": job, "path": "board", "num_trials": 4}
        export("--table", "measurements")
        assert export("-o", "-").startswith("number,phase,")
        for made, name in (("flow", "mlflow"), ("board", "tensorboard")):
            again = CliRunner().invoke(app, ["export", job, "--url", url, "--format", name, "-o", made])
            assert (again.exit_code, "already" in again.output) == (1, True)

    with (tmp_path / f"{job}-measurements.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 16
    assert not list(tmp_path.glob("*.part"))

    client = MlflowClient(f"sqlite:///{tmp_path}/flow/mlflow.db")
    experiment = client.get_experiment_by_name(job)
    assert experiment is not None
    runs = sorted(client.search_runs([experiment.experiment_id]), key=lambda run: run.info.run_name)
    assert [run.info.run_name for run in runs] == [f"trial-{number:05d}" for number in range(4)]
    assert [run.info.status for run in runs] == ["FINISHED"] * 4
    assert runs[1].data.tags["phase"] == "baseline"
    history = client.get_metric_history(runs[2].info.run_id, "validation_loss")
    assert [(point.step, point.value) for point in history] == [(10, 0.8), (20, 0.4), (30, 0.2 * 40 / 30), (40, 0.2)]
    assert float(runs[2].data.params["lr"]) > 0
    assert "betas_1_" in runs[2].data.params or "betas_0_" in runs[2].data.params

    events = EventAccumulator(str(tmp_path / "board" / job / "trial-00002"))
    events.Reload()
    assert [(point.step, round(point.value, 6)) for point in events.Scalars("validation_loss")][-1] == (40, 0.2)
    begun = events.SummaryMetadata("_hparams_/session_start_info")
    data = HParamsPluginData.FromString(begun.plugin_data.content)
    assert data.session_start_info.hparams["lr"].number_value > 0


def test_hostile_names_are_safe_and_stay_apart() -> None:
    names = SafeNames()
    given = ["../../etc/passwd", "..\\..\\etc\\passwd", "loss/a", "loss:a", "", "..", "a\0b", "é"]
    safe = [names.of(name) for name in given]
    assert len(set(safe)) == len(given)
    assert all(not set(name) & set("/\\\0:") and name.strip(".") for name in safe)
    assert names.of("loss/a") == "loss_a"
