"""Workloads by name over HTTP: nobody's code is imported in the service, and what is wrong names the field."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.settings import Settings
from service.specification import workloads
from service.store.session import Database
from tests.support.service.live import running
from tests.support.waiting import PATIENCE_SECONDS

MINE = """
class Mine:
    title = "Mine"
    metrics = {"validation_loss": "minimize"}
    default_objective = "validation_loss"
    default_num_steps = 10
    default_evaluate_every = 5
    default_batch_size = 12

    def __init__(self, *, scale: float = 1.0) -> None: ...
"""
"""Describable workloads. Without torch: a process that describes it would import that for two core-seconds."""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the module `mine` in it."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def post(database: Database, name: str, *, options: dict[str, Any] | None = None, **settings: Any) -> httpx.Response:
    with (
        running(database, **{"allow_code": True, **settings}) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        return http.post("/v1/jobs", json={"workload": {"name": name, "options": options or {}}})


@pytest.mark.processes
@pytest.mark.usefixtures("mine")
def test_a_class_in_the_services_directory_makes_a_job_and_is_not_imported(sqlite_database: Database) -> None:
    answer = post(sqlite_database, "mine:Mine", options={"scale": 2.0})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert (job["workload"], job["name"], job["num_steps"]) == ("mine:Mine", "mine:Mine", 10)
    assert job["objectives"] == [{"metric": "validation_loss", "direction": "minimize"}]
    assert "mine" not in sys.modules


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "options", "field", "message"),
    [
        ("import no_such_library", {}, "workload.name", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("class Mine: ...", {}, "workload.name", "mine:Mine lacks the class attributes title, metrics"),
        (MINE, {"depth": 3}, "workload.options.depth", "unknown option of mine:Mine (known: scale), got 3"),
        (MINE, {"scale": "big"}, "workload.options.scale", "mine:Mine takes number, got 'big'"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_with_the_reason(
    sqlite_database: Database, mine: Path, program: str, options: dict[str, Any], field: str, message: str
) -> None:
    (mine / "mine.py").write_text(program)
    answer = post(sqlite_database, "mine:Mine", options=options)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert message in error["message"]


@pytest.mark.processes
def test_a_class_whose_import_is_killed_may_be_asked_for_again(sqlite_database: Database, mine: Path) -> None:
    (mine / "mine.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    answer = post(sqlite_database, "mine:Mine")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["detail"] == "mine:Mine: its import ended the process with signal SIGKILL"


@pytest.mark.usefixtures("mine")
def test_a_class_is_refused_unless_it_is_allowed(sqlite_database: Database) -> None:
    answer = post(sqlite_database, "mine:Mine", allow_code=False)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["value"]) == ("workload.name", "mine:Mine")
    assert "SHAMPOO_TUNER_ALLOW_CODE=true" in error["message"]
    assert post(sqlite_database, "digits-mlp", allow_code=False).status_code == 201
    assert not Settings().allow_code


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("os.path:Mine", "'os.path:Mine' is of Python's standard library"),
        ("antigravity:Mine", "is of Python's standard library"),
        ("nowhere:Mine", "there is no module 'nowhere' among the installed packages and "),
        ("a:b:c", "unknown workload 'a:b:c' (known: click-log, digits-autoencoder"),
        ("../mine:Mine", "unknown workload '../mine:Mine'"),
        ("--installed", "unknown workload '--installed'"),
    ],
)
def test_other_names_are_refused(sqlite_database: Database, name: str, message: str) -> None:
    answer = post(sqlite_database, name)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "workload.name"
    assert message in error["message"]


@pytest.mark.processes
def test_installed_classes_are_listed_and_a_broken_package_hides_no_other(
    sqlite_database: Database, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = mine / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[shampoo_tuner.workloads]\nmy-mine = mine:Mine\nlost = nowhere:X\n")
    monkeypatch.syspath_prepend(mine)
    with (
        running(sqlite_database) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        listed = {one["name"]: one for one in http.get("/v1/workloads").json()["items"]}
    assert listed["my-mine"]["title"] == "Mine"
    assert {"digits-mlp", "stdlib-gpt"} <= listed.keys()
    assert "lost" not in listed
    assert post(sqlite_database, "my-mine", host="0.0.0.0", access="open").status_code == 201
    refused = post(sqlite_database, "lost")
    assert refused.status_code == 422
    assert "nowhere:X cannot be imported" in refused.json()["errors"][0]["message"]
    assert "mine" not in sys.modules


@pytest.mark.processes
def test_describing_a_class_loads_no_torch_here(mine: Path) -> None:
    (mine / "mine.py").write_text(f"import torch\n{MINE}")
    code = f"""
import sys
from {workloads.__name__} import describe_workload, known_workloads
assert describe_workload("mine:Mine").title == "Mine"
known_workloads()
sys.exit(str({{"torch", "mine", "numpy"}} & sys.modules.keys() or ""))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=mine,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stderr.strip() == ""


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_path_without_data_is_refused_where_trials_would_read_it(
    sqlite_database: Database, tmp_path: Path, dry_run: bool
) -> None:
    path = str(tmp_path / "corpus.txt")
    body = {"workload": {"name": "text-lm", "options": {"path": path}}}
    with running(sqlite_database, data_are_here=True) as url:
        answer = httpx.post(f"{url}/v1/jobs", json=body, params={"dry_run": str(dry_run).lower()}, verify=False)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["value"]) == ("workload.options.path", path)
    assert error["message"] == f"there is nothing at {path!r}"


def test_another_machine_may_have_data_where_the_service_has_none(sqlite_database: Database, tmp_path: Path) -> None:
    answer = post(sqlite_database, "text-lm", options={"path": str(tmp_path / "corpus.txt")})
    assert answer.status_code == 201, answer.text


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
@pytest.mark.parametrize("dry_run", [False, True])
def test_what_the_workload_refuses_is_refused_by_a_submission_as_by_a_dry_run(
    sqlite_database: Database, tmp_path: Path, dry_run: bool
) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("too short")
    body = {"workload": {"name": "text-lm", "options": {"path": str(path)}}}
    with running(sqlite_database, data_are_here=True) as url:
        asked = {"dry_run": str(dry_run).lower()}
        answer = httpx.post(f"{url}/v1/jobs", json=body, params=asked, verify=False, timeout=PATIENCE_SECONDS)
    if answer.status_code != 422:  # a slow machine gives up
        assert not dry_run or "takes too long" in answer.json()["memory"]["problem"]
    else:
        (error,) = answer.json()["errors"]
        assert error["field"] == "workload.options"
        assert "the number of training tokens (9)" in error["message"]
