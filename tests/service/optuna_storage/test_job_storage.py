"""Jobs as studies of Optuna's: what each shows, live and read-only, on both databases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import TrialState
from sqlalchemy import event, insert

from service import domain
from service.domain import FailureReason, Phase
from service.optuna_storage import JobStorage, NoDatabase, StudyIsReadOnly
from service.specification.identity import StoredIdentity
from service.store.models import MeasurementRow
from service.store.packing import pack
from service.store.repositories import MeasurementRepository
from service.store.session import Database
from service.use_cases.leases import release_job
from service.use_cases.steer_trials import propose_trial, retry_trial
from tests.support.readmes import README, blocks
from tests.support.service.scenarios import (
    NOW,
    begin_trial,
    claim,
    claimed_job,
    end_trial,
    fork_trial,
    measure,
    repeat_trial,
    run_trial,
    store_trials,
    submit,
)
from tests.support.service.stories.jobs import Story

BASELINES = [{"search_space": "adamw"}, {"search_space": "muon"}]
SEED = 2**62
"""One that needs all of its 64 bits."""


@contextmanager
def opened(url: str) -> Iterator[JobStorage]:
    storage = JobStorage(url)
    try:
        yield storage
    finally:
        storage.remove_session()


@pytest.fixture
def storage(database: Database) -> Iterator[JobStorage]:
    with opened(database.url) as storage:
        yield storage


def load(storage: JobStorage, name: str) -> optuna.Study:
    return optuna.load_study(storage=storage, study_name=name)


@contextmanager
def statements(storage: JobStorage) -> Iterator[list[str]]:
    """The statements that a storage runs meanwhile."""
    seen: list[str] = []

    def see(*told: Any) -> None:
        seen.append(told[2])

    event.listen(storage._database.engine, "before_cursor_execute", see)
    try:
        yield seen
    finally:
        event.remove(storage._database.engine, "before_cursor_execute", see)


def test_each_part_of_a_job_is_a_study_and_the_newest_job_comes_first(database: Database, storage: JobStorage) -> None:
    lease = claimed_job(database, baselines=BASELINES, budget={"num_trials": 12}, model="my-net")
    newer = submit(database, baselines=[])
    run_trial(database, lease, 0, 0.2, identity=StoredIdentity("abc", None, {}))
    job = lease.job_id
    assert [study.study_name for study in storage.get_all_studies()] == [newer, job, f"{job}/adamw", f"{job}/muon"]
    repeat_trial(database, lease, 1, 0.3, confirms=0, seed=1)
    found = storage.get_all_studies()
    assert [study.study_name for study in found][1:] == [job, f"{job}/adamw", f"{job}/muon", f"{job}/confirmation"]
    search, adamw, _, confirmation = found[1:]
    assert search.user_attrs == {
        "job": job,
        "name": "my-net",
        "state": "running",
        "phase": "search",
        "objectives": ["validation_loss"],
        "workload": "digits-mlp",
        "model": "my-net",
        "fingerprint": "abc",
    }
    assert adamw.user_attrs == search.user_attrs | {"phase": "baseline", "optimizer": "adamw"}
    assert confirmation.user_attrs == search.user_attrs | {"phase": "confirmation"}
    for study in found:
        assert storage.get_study_id_from_name(study.study_name) == study._study_id < 2**53
        assert storage.get_study_name_from_id(study._study_id) == study.study_name
        assert storage.get_study_user_attrs(study._study_id) == study.user_attrs
        assert storage.get_study_directions(study._study_id) == [StudyDirection.MINIMIZE]
    with opened(database.url) as another:
        assert another.get_all_studies() == found


def test_a_trial_shows_what_is_known_of_it(database: Database, storage: JobStorage) -> None:
    lease = claimed_job(database, training={"num_steps": 40, "evaluate_every": 10, "seed": SEED})
    run_trial(database, lease, 0, 0.4, Phase.BASELINE)
    begin_trial(database, lease, 1, now=NOW)
    for step in (10, 20, 30, 40):
        measure(database, lease, 1, step, 8 / step)
    end_trial(database, lease, 1, now=NOW + timedelta(seconds=60), detail="a remark")
    [trial] = load(storage, lease.job_id).trials
    assert (trial.number, trial.state, trial.value) == (0, TrialState.COMPLETE, 0.2)
    assert trial.intermediate_values == {10: 0.8, 20: 0.4, 30: 8 / 30, 40: 0.2}
    assert trial.user_attrs == {
        "trial": 1,
        "state": "completed",
        "phase": "search",
        "optimizer": "shampoo",
        "seed": SEED,
        "step": 40,
        "seconds": 0.4,
        "detail": "a remark",
    }
    assert trial.datetime_start is not None
    assert trial.datetime_start.astimezone() == NOW  # Optuna's times are local and have no zone
    assert trial.duration == timedelta(seconds=60)
    assert set(trial.params) == set(trial.distributions) > {"lr"}
    assert trial.distributions["lr"] == FloatDistribution(1e-4, 1e-1, log=True)
    [other] = load(storage, f"{lease.job_id}/adamw").trials
    assert (other.number, other.user_attrs["trial"], other._trial_id) == (0, 0, trial._trial_id - 1)
    assert storage.get_trial(trial._trial_id) == trial
    assert storage.get_trial_id_from_study_id_trial_number(load(storage, lease.job_id)._study_id, 0) == trial._trial_id


def test_every_state_of_a_trial_is_one_that_optuna_accepts(database: Database, storage: JobStorage) -> None:
    lease = claimed_job(database, budget={"num_trials": 20})
    run_trial(database, lease, 0, 0.2)
    for number in range(1, 7):
        begin_trial(database, lease, number)
        measure(database, lease, number, 10, 0.9)
    end_trial(database, lease, 1, domain.TrialState.PRUNED)
    measure(database, lease, 2, 20, math.inf)
    end_trial(database, lease, 2, domain.TrialState.FAILED, reason=FailureReason.DIVERGED, detail="not finite")
    end_trial(database, lease, 3, domain.TrialState.CANCELLED)
    measure(database, lease, 4, 40, math.nan)
    end_trial(database, lease, 4)  # without a number
    end_trial(database, lease, 5, domain.TrialState.FAILED, reason=FailureReason.ERROR)
    with database.writing() as session:
        release_job(session, lease, now=NOW, crash=None)
        propose_trial(session, lease.job_id, phase=Phase.SEARCH, parameters={}, idempotency_key=None, now=NOW)
        retry_trial(session, lease.job_id, 5, now=NOW)
    again = claim(database, lease.worker_id, now=NOW)
    assert again is not None
    begin_trial(database, again, 8)
    study = load(storage, lease.job_id)
    states = [(trial.user_attrs["state"], trial.state, trial.value) for trial in study.trials]
    assert states == [
        ("completed", TrialState.COMPLETE, 0.2),
        ("pruned", TrialState.PRUNED, 0.9),
        ("failed", TrialState.FAIL, None),
        ("cancelled", TrialState.FAIL, None),
        ("completed", TrialState.PRUNED, None),
        ("queued", TrialState.WAITING, None),  # to be trained anew
        ("queued", TrialState.RUNNING, None),  # to go on, as one that is paused
        ("queued", TrialState.WAITING, None),  # proposed
        ("running", TrialState.RUNNING, None),
    ]
    diverged, proposed = study.trials[2], study.trials[7]
    assert (diverged.user_attrs["reason"], diverged.user_attrs["detail"]) == ("diverged", "not finite")
    assert diverged.intermediate_values[10] == 0.9
    assert math.isnan(diverged.intermediate_values[20])
    assert proposed.user_attrs["proposed"] is True
    assert study.best_trial.number == 0
    optuna.create_study().add_trials(study.trials)  # which checks each of them
    assert [trial.number for trial in study.get_trials(states=[TrialState.WAITING])] == [5, 7]


def test_a_second_look_sees_what_came_since(database: Database, storage: JobStorage) -> None:
    lease = claimed_job(database)
    study = load(storage, lease.job_id)
    assert study.trials == []
    begin_trial(database, lease, 0)
    measure(database, lease, 0, 10, 0.9)
    [before] = study.trials
    assert before.intermediate_values == {10: 0.9}
    measure(database, lease, 0, 20, 0.8)
    [after] = study.trials
    assert after.intermediate_values == {10: 0.9, 20: 0.8}
    assert before.intermediate_values == {10: 0.9}
    end_trial(database, lease, 0)
    fork_trial(database, lease, 1, parent=0, step=10, lr=0.02)
    ended, fork = study.trials
    assert (ended.state, ended.value) == (TrialState.COMPLETE, 0.8)
    assert (fork.params["lr"], fork.intermediate_values, fork.user_attrs["forked_from"]) == (0.02, {10: 0.9}, 0)


def test_a_value_beyond_the_bounds_widens_the_range_of_all_trials(database: Database, storage: JobStorage) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.2)
    study = load(storage, lease.job_id)
    assert study.trials[0].distributions["lr"] == FloatDistribution(1e-4, 1e-1, log=True)
    with database.writing() as session:
        propose_trial(
            session,
            lease.job_id,
            phase=Phase.SEARCH,
            parameters={"lr": 0.7},
            beyond_bounds=True,
            idempotency_key=None,
            now=NOW,
        )
    assert [trial.distributions["lr"] for trial in study.trials] == [FloatDistribution(1e-4, 0.7, log=True)] * 2
    assert study.trials[1].params["lr"] == 0.7


def test_several_objectives_have_directions_names_and_a_front(database: Database, storage: JobStorage) -> None:
    lease = claimed_job(database, objectives=[{"metric": "validation_loss"}, {"metric": "validation_accuracy"}])
    run_trial(database, lease, 0, 0.3)
    run_trial(database, lease, 1, 0.2)
    begin_trial(database, lease, 2)
    measure(database, lease, 2, 10, 0.1)
    end_trial(database, lease, 2, domain.TrialState.PRUNED)
    study = load(storage, lease.job_id)
    assert study.directions == [StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE]
    assert study.metric_names == ["validation_loss", "validation_accuracy"]
    assert [trial.values for trial in study.trials] == [[0.3, 1 / 1.3], [0.2, 1 / 1.2], None]
    assert [trial.number for trial in study.best_trials] == [1]


def test_the_confirmation_tells_whose_configs_it_repeats(database: Database, storage: JobStorage) -> None:
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.2)
    run_trial(database, lease, 1, 0.4, Phase.BASELINE)
    for number, source in ((2, 0), (3, 1)):
        repeat_trial(database, lease, number, 0.3, confirms=source, seed=SEED + 1)
    found = load(storage, lease.job_id)
    assert [trial.value for trial in found.trials] == [0.2]
    ours, theirs = load(storage, f"{lease.job_id}/confirmation").trials
    assert ours.params == found.trials[0].params
    [baseline] = load(storage, f"{lease.job_id}/adamw").trials
    assert theirs.params == {f"adamw/{name}": value for name, value in baseline.params.items()}
    assert [trial.user_attrs["confirms"] for trial in (ours, theirs)] == [0, 1]
    assert [trial.user_attrs["seed"] for trial in (ours, theirs)] == [SEED + 1] * 2
    assert storage.get_trial(theirs._trial_id) == theirs


WRITES: dict[str, tuple[object, ...]] = {
    "create_new_study": ([StudyDirection.MINIMIZE], "mine"),
    "delete_study": (8,),
    "set_study_user_attr": (8, "key", 1),
    "set_study_system_attr": (8, "key", 1),
    "create_new_trial": (8,),
    "set_trial_param": (2**20, "lr", 0.1, FloatDistribution(0, 1)),
    "set_trial_state_values": (2**20, TrialState.FAIL),
    "set_trial_intermediate_value": (2**20, 1, 0.1),
    "set_trial_user_attr": (2**20, "key", 1),
    "set_trial_system_attr": (2**20, "key", 1),
}


def test_nothing_can_be_written(sqlite_database: Database) -> None:
    assert {name for name in BaseStorage.__abstractmethods__ if not name.startswith("get_")} == set(WRITES)
    lease = claimed_job(sqlite_database)
    run_trial(sqlite_database, lease, 0, 0.2)
    with opened(sqlite_database.url) as storage:
        study = load(storage, lease.job_id)
        before = study.trials
        for name, arguments in WRITES.items():
            with pytest.raises(StudyIsReadOnly, match="read-only"):
                getattr(storage, name)(*arguments)
        with pytest.raises(StudyIsReadOnly, match="no trial can be added"):
            study.ask()
        assert study.trials == before


def test_what_is_not_there_is_a_key_error(sqlite_database: Database) -> None:
    job = submit(sqlite_database)
    with opened(sqlite_database.url) as storage:
        for name in ("nothing", f"{job}/muon", f"{job}/confirmation", f"{job}/search", f"{job}/"):
            with pytest.raises(KeyError):
                load(storage, name)
        search = storage.get_study_id_from_name(job)
        for study_id in (search - 1, search + 5, search + 8, -1):
            with pytest.raises(KeyError):
                storage.get_all_trials(study_id)
        with pytest.raises(KeyError):
            storage.get_trial(2**20)


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "service.sqlite3"
    with pytest.raises(NoDatabase, match="there is no database yet"):
        JobStorage(f"sqlite:///{path}")
    assert not path.parent.exists()
    with pytest.raises(NoDatabase, match="must be sqlite"):
        JobStorage("mysql://somewhere")
    monkeypatch.setenv("SHAMPOO_TUNER_DATABASE_URL", f"sqlite:///{tmp_path / 'empty.sqlite3'}")
    (tmp_path / "empty.sqlite3").touch()
    with pytest.raises(NoDatabase, match="shampoo-tuner migrate"):
        JobStorage()


@pytest.mark.slow
def test_many_trials_take_as_many_statements_as_few(database: Database, storage: JobStorage) -> None:
    sizes = (3, 700)
    jobs = [submit(database, budget={"num_trials": 1000}) for _ in sizes]
    for job, num_trials in zip(jobs, sizes, strict=True):
        store_trials(database, job, [{"value": 0.5, "metrics": {"validation_loss": 0.5}}] * num_trials)
        rest = {"epoch": 1.0, "seconds": 0.1, "recorded_at": NOW}
        with database.writing() as session:
            measurements = MeasurementRepository(session)
            metrics = {"validation_loss": 1 / 20}
            measurements.put(f"{job}_0", step=20, epoch=1.0, seconds=0.1, metrics=metrics, recorded_at=NOW)
            stored = measurements.find(f"{job}_0", 20)
            assert stored is not None
            measured = [
                {
                    "trial_id": f"{job}_{number}",
                    "step": step,
                    "metric_set_id": stored.metric_set_id,
                    "packed_values": pack([1 / step]),
                    **rest,
                }
                for number in range(num_trials)
                for step in (20, 40)
            ]
            session.execute(insert(MeasurementRow), measured[1:])
    for job, num_trials in zip(jobs, sizes, strict=True):
        study = load(storage, job)
        with statements(storage) as first:
            assert [trial.intermediate_values for trial in study.trials] == [{20: 0.05, 40: 0.025}] * num_trials
        with statements(storage) as second:
            assert len(study.trials) == num_trials
        # The isolation of PostgreSQL's transactions is asked for beside them.
        assert [len([one for one in told if "FROM" in one]) for told in (first, second)] == [4, 2]
    with statements(storage) as told:
        assert len(storage.get_all_studies()) == 4
    assert len([one for one in told if "FROM" in one]) == 1


@pytest.mark.slow
def test_optunas_own_tools_take_a_job_as_the_readme_says(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story(sqlite_database, now=NOW)
    for number in range(20):
        story.run(number)
    monkeypatch.setenv("SHAMPOO_TUNER_DATABASE_URL", sqlite_database.url)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"job": story.job_id}
    snippet = next(block for block in blocks(f"service/{README}", "python") if "load_study" in block)
    exec(compile(snippet, README, "exec"), names)
    study: optuna.Study = names["study"]
    assert str(study.best_params) in capsys.readouterr().out
    assert (tmp_path / "slice.html").stat().st_size > 0
    for plot in (
        optuna.visualization.plot_optimization_history,
        optuna.visualization.plot_intermediate_values,
        optuna.visualization.plot_parallel_coordinate,
        optuna.visualization.plot_timeline,
    ):
        assert plot(study).data, plot.__name__
    study._storage.remove_session()
