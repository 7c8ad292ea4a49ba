"""Probes, on databases that are well, empty and gone."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import fastapi
import httpx
import pytest
from sqlalchemy import text

from service.monitoring.readiness import check_files
from service.settings import Settings
from service.store.migrate import downgrade
from service.store.session import VERSION_TABLE, Database
from tests.support.service.databases.full_database import full_disk
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, Clock, add_worker, specification, submit
from tests.support.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]


def _get(url: str) -> httpx.Response:
    return httpx.get(url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)


def test_a_migrated_database_is_ready_and_live_workers_are_counted(database: Database) -> None:
    clock = Clock()
    add_worker(database, now=NOW)
    add_worker(database, now=NOW - timedelta(hours=1))
    with running(database, clock=clock) as url:
        checked = ["database", "migrations", "disk"]
        assert _get(f"{url}/readyz").json() == {"status": "ready", "num_workers": 1, "checked": checked}
        assert _get(f"{url}/healthz").json() == {"status": "ok", "version": version("shampoo-tuner")}
        clock.advance(3600)
        assert _get(f"{url}/readyz").json() == {"status": "degraded", "num_workers": 0, "checked": checked}


def test_each_thing_that_is_not_ready_is_named(sqlite_database: Database, tmp_path: Path) -> None:
    downgrade(sqlite_database, "base")
    occupied = tmp_path / "occupied"
    occupied.write_text("a file")
    with running(sqlite_database, data_are_here=True, data_dir=tmp_path, checkpoint_directory=str(occupied)) as url:
        problem = _get(f"{url}/readyz").json()
    assert [error["field"] for error in problem["errors"]] == ["migrations", "checkpoints"]
    assert problem["detail"] == "; ".join(f"{error['field']}: {error['message']}" for error in problem["errors"])
    assert str(tmp_path) not in str(problem)


def test_a_full_disk_is_not_ready(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "not-made-yet")
    assert [check.why_not for check in check_files(settings, data_are_here=True)] == [None, None]
    for check in check_files(settings, data_are_here=True, least_free_bytes=2**60):
        assert "MiB are free" in str(check.why_not), check.name


def test_a_job_that_waits_for_room_says_so(sqlite_database: Database, tmp_path: Path) -> None:
    occupied = tmp_path / "occupied"
    occupied.write_text("a file")
    submit(sqlite_database)
    with running(sqlite_database, data_are_here=True, data_dir=tmp_path, checkpoint_directory=str(occupied)) as url:
        [job] = _get(f"{url}/v1/jobs").json()["items"]
        pages = [_get(f"{url}{page}").text for page in ("/", f"/jobs/{job['id']}", "/cluster")]
    why = "no job is begun until there is room: checkpoints: the directory cannot be written to"
    assert job["waiting"]["for"] == why
    assert [why in page for page in pages] == [True] * 3


def test_a_database_that_is_not_migrated_is_not_ready_but_the_process_is_alive(database: Database) -> None:
    downgrade(database, "base")
    with running(database) as url:
        answer = _get(f"{url}/readyz")
        assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
        assert "shampoo-tuner migrate" in answer.json()["detail"]
        assert _get(f"{url}/healthz").json()["status"] == "ok"


def test_a_database_of_a_newer_version_is_not_ready_and_is_not_to_be_migrated(sqlite_database: Database) -> None:
    with sqlite_database.writing() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with running(sqlite_database) as url:
        problem = _get(f"{url}/readyz").json()
    (error,) = problem["errors"]
    assert error["field"] == "migrations"
    assert error["message"].startswith("the database is of a newer version of shampoo-tuner: revision 9999, and this")
    assert error["message"].endswith("Install that version, and start it in place of this one")


def test_an_unreachable_database_is_unavailable_not_an_internal_error() -> None:
    database = Database("postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=2")
    with running(database) as url:
        for path in ("/readyz", "/v1/jobs", "/v1/jobs/job_1/events"):
            answer = _get(f"{url}{path}")
            assert answer.status_code == 503, path
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.headers["Retry-After"]
            assert "127.0.0.1" not in answer.text
        assert _get(f"{url}/healthz").status_code == 200
    database.close()


def test_a_database_file_that_is_gone_is_unavailable_until_it_is_put_back(
    sqlite_database: Database, tmp_path: Path
) -> None:
    file = Path(str(sqlite_database.engine.url.database))
    job = specification().model_dump(mode="json", exclude_unset=True)
    with running(sqlite_database) as url, httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, verify=False) as http:
        answered = http.post("/v1/jobs", json=job)
        assert answered.status_code == 201, answered.text
        kept = answered.json()["id"]
        file.rename(tmp_path / "elsewhere")
        for answer in (http.post("/v1/jobs", json=job), http.get("/v1/jobs"), http.get("/readyz")):
            assert answer.status_code == 503
            assert answer.json()["detail"].removeprefix("database: ") == "the database is out of reach"
            assert str(file.parent) not in answer.text
        assert [error["field"] for error in http.get("/readyz").json()["errors"]] == ["database"]
        (tmp_path / "elsewhere").rename(file)
        assert http.get("/readyz").status_code == 200
        new = http.post("/v1/jobs", json=job).json()["id"]
        assert {shown["id"] for shown in http.get("/v1/jobs").json()["items"]} == {kept, new}


def test_a_service_whose_writes_fail_is_not_ready_until_one_succeeds(sqlite_database: Database) -> None:
    job = specification().model_dump(mode="json", exclude_unset=True)
    with running(sqlite_database) as url, httpx.Client(base_url=url, timeout=PATIENCE_SECONDS, verify=False) as http:
        with full_disk(sqlite_database):
            assert http.get("/readyz").status_code == 200  # nothing was written
            refused = http.post("/v1/jobs", json=job)
            assert refused.status_code == 503
            assert refused.json()["detail"].startswith("the disk of the database fails")
            for _ in range(2):
                problem = http.get("/readyz")
                assert problem.status_code == 503
                [error] = problem.json()["errors"]
                assert error["field"] == "database"
                assert error["message"].startswith("the last write failed: the disk of the database fails")
                assert "/" not in error["message"]
            assert http.get("/v1/jobs").status_code == 200
        assert http.get("/readyz").status_code == 200  # without a write of anybody else's
        assert http.post("/v1/jobs", json=job).status_code == 201


@pytest.mark.processes
def test_a_checkout_that_was_never_installed_can_be_served(tmp_path: Path) -> None:
    for installed in Path(fastapi.__file__).parents[1].iterdir():
        if "shampoo" not in installed.name:
            (tmp_path / installed.name).symlink_to(installed)
    program = f"""
import sys
sys.path += [{str(tmp_path)!r}, {str(ROOT)!r}]
from service.server.app import create_app
from service.settings import Settings
print(create_app(Settings()).version)
"""
    shown = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == "unknown\n"
