"""Studies of Optuna: their direction, where they are kept, that nothing is written there, and what cannot be read."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest

from tests.service.imports.importing import imported, refused


def _make_study(url: str, name: str, *, direction: Literal["minimize", "maximize"] = "minimize") -> None:
    """A study with a completed trial for each of three learning rates, which are their values."""
    storage = optuna.storages.RDBStorage(url)
    study = optuna.create_study(storage=storage, study_name=name, direction=direction)
    distributions: dict[str, Any] = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 1),
        "weight_decay": optuna.distributions.FloatDistribution(0, 0.5),
    }
    for lr in (0.2, 0.9, 0.1):
        params = {"lr": lr, "weight_decay": 0.0}
        study.add_trial(optuna.create_trial(params=params, distributions=distributions, value=lr))
    storage.engine.dispose()


@pytest.mark.slow
def test_a_study_of_two_objectives_is_refused(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(storage=source, study_name="both", directions=["minimize", "maximize"])
    assert "--study: 'both' has 2 objectives: only a study with one can be imported" in refused(tmp_path, source)


@pytest.mark.slow
def test_a_study_of_the_other_direction_is_refused(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/study.db"
    _make_study(source, "max", direction="maximize")
    told = refused(tmp_path, source)
    assert "the study 'max' maximizes, and the job minimizes validation_loss" in told
    assert "A job whose objective is maximized, as validation_accuracy, can begin with it" in told
    # What it advises works, and the best there is the best here.
    found, _ = imported(tmp_path, source, "--pin", "1", objectives=[{"metric": "validation_accuracy"}])
    assert found["pinned"] == [{"lr": 0.9, "weight_decay": 0.0}]
    _make_study(source, "min")
    told = refused(tmp_path, source, "--study", "min", objectives=[{"metric": "validation_accuracy"}])
    assert "the study 'min' minimizes, and the job maximizes validation_accuracy" in told
    assert "--study: must say which study: max, min" in refused(tmp_path, source)
    assert "--study: there is no study 'mix'" in refused(tmp_path, source, "--study", "mix")


@pytest.mark.slow
def test_a_sqlite_file_of_optuna_is_known_by_its_first_bytes_and_not_written_to(tmp_path: Path) -> None:
    file = tmp_path / "100% {my} study#1?.db"
    _make_study("sqlite:///" + str(tmp_path / "plain.db"), "mine")
    (tmp_path / "plain.db").rename(file)
    before = file.read_bytes()
    found, _ = imported(tmp_path, str(file), "--pin", "1")
    assert found["pinned"] == [{"lr": 0.1, "weight_decay": 0.0}]
    assert found["imported"][0]["source"] == f"{file.name}: mine"
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, "job.yaml", "new.json"]


@pytest.mark.slow
def test_a_study_is_read_while_its_program_writes(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    _make_study(f"sqlite:///{file}", "mine")
    writer = sqlite3.connect(file, isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE trial_values SET value = 7")
    found, _ = imported(tmp_path, f"sqlite:///{file}?timeout=1", "--pin", "1")
    writer.execute("ROLLBACK")
    writer.close()
    assert found["pinned"] == [{"lr": 0.1, "weight_decay": 0.0}]


@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite:///file:{}?uri=true&mode=rwc", "{}"])
def test_a_database_without_studies_gets_no_tables_of_optuna(tmp_path: Path, form: str) -> None:
    file = tmp_path / "foreign.sqlite3"
    foreign = sqlite3.connect(file)
    foreign.execute("CREATE TABLE customers (name)")
    foreign.commit()
    foreign.close()
    before = file.read_bytes()
    assert "holds no study of Optuna's: there are no such tables" in refused(tmp_path, form.format(file))
    assert file.read_bytes() == before


@pytest.mark.parametrize("form", ["sqlite:///{}", "sqlite:///file:{}?uri=true&mode=rwc", "{}"])
def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, form: str) -> None:
    file = tmp_path / "none.sqlite3"
    refused(tmp_path, form.format(file))
    assert not file.exists()


@pytest.mark.parametrize("database_kind", [pytest.param("postgresql", marks=pytest.mark.processes)])
def test_a_server_without_studies_gets_no_tables_of_optuna(tmp_path: Path, empty_database_url: str) -> None:
    source = empty_database_url
    assert "holds no study of Optuna's" in refused(tmp_path, source)
    assert "holds no study of Optuna's" in refused(tmp_path, source)  # it did not make them
    _make_study(source, "mine")
    found, _ = imported(tmp_path, source, "--pin", "1")
    assert found["pinned"] == [{"lr": 0.1, "weight_decay": 0.0}]
    assert found["imported"][0]["source"] == "Optuna: mine"


@pytest.mark.slow
def test_a_database_of_another_version_of_optuna_is_told(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    _make_study(f"sqlite:///{file}", "mine")
    newer = sqlite3.connect(file)
    newer.execute("UPDATE alembic_version SET version_num = 'v99.0.0'")
    newer.commit()
    newer.close()
    assert "no longer compatible with the table schema" in refused(tmp_path, str(file))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("sqlite:///job.yaml", "sqlite:///job.yaml: file is not a database"),
        ("sqlite://", "sqlite://: is no file: a path follows sqlite:///"),
        ("sqlite:///:memory:", "sqlite:///:memory:: is no file: a path follows sqlite:///"),
        ("mysql://me:geheim@127.0.0.1/x", "mysql://me:***@127.0.0.1/x: its driver is not installed: No module named"),
        ("nonsense://x", "nonsense://x: SQLAlchemy knows no such kind of database"),
        ("redis://:geheim@127.0.0.1/0", "redis://:***@127.0.0.1/0: SQLAlchemy knows no such kind of database"),
        ("://geheim", "://...: is no URL of a database"),
        ("postgresql://me:geheim", "postgresql://...: is no URL of a database"),
        ("postgresql://me:ge@heim@x/y", "postgresql://...: has an @ in its user or password, which is written %40"),
    ],
)
def test_an_address_of_no_database_is_told_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = refused(tmp_path, source)
    assert said.startswith(told)
    assert "heim" not in said


@pytest.mark.parametrize("query", ["", "?password=geheim"])
def test_a_server_that_is_not_there_is_told_without_the_password(tmp_path: Path, query: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    said = refused(tmp_path, f"postgresql://me:geheim@127.0.0.1:{port}/x{query}")
    assert said.startswith(f"postgresql://me:***@127.0.0.1:{port}/x: ")
    assert "Connection refused" in said
    assert "geheim" not in said


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = refused(tmp_path, f"postgresql://me:geheim@127.0.0.1:{port}/x?connect_timeout=2")
    assert "timeout" in said


@pytest.mark.parametrize(
    "content",
    [
        b"workload: x\nbudget: y\n",
        b'{"a": 1}\n',
        b"1\n",
        b'{"op_code": 99}\n',
        b'{"op_code": 4}\n',
        b"\x80\xff\x00\n",
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_file_that_is_no_journal_is_told(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.log"
    file.write_bytes(content)
    told = "is no journal of Optuna's and no SQLite file; the name of a table ends with .csv"
    assert refused(tmp_path, str(file)) == f"{file}: {told}"


@pytest.mark.parametrize("content", [b"", b"what may be a line that is not written yet"])
def test_a_journal_without_studies_is_told(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file.log"
    file.write_bytes(content)
    assert refused(tmp_path, str(file)) == f"{file}: holds no study of Optuna's"
