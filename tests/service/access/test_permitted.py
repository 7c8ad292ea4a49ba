"""Names in a job that must be allowed: code, and paths, wherever in the job they stand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.access.caller import ANYBODY, Caller, Scope
from service.access.permitted import check_paths, refuse_code_switched_off, refuse_user_code
from service.errors import CodeForbidden, InvalidInput
from service.settings import Settings
from service.specification.job import JobSpecification, SamplerChoice, WorkloadChoice
from service.specification.planning import plan_job
from service.store.session import Database
from tests.support.service.live import running

OUTSIDE = "/etc/shadow"


@pytest.mark.parametrize(
    ("allowed", "caller", "may"),
    [
        (True, ANYBODY, True),
        (False, ANYBODY, False),
        (True, Caller("ada", "default", frozenset({Scope.SUBMIT, Scope.ADMIN})), False),
        (True, Caller("ada", "default", frozenset({Scope.CODE})), True),
        (False, Caller("ada", "default", frozenset({Scope.CODE})), False),
    ],
)
def test_code_needs_the_setting_and_where_there_are_tokens_the_scope(allowed: bool, caller: Caller, may: bool) -> None:
    settings = Settings(allow_code=allowed)
    named, sampler = SamplerChoice.model_validate({"name": "mine:Mine"}), SamplerChoice()
    refuse_user_code(WorkloadChoice(name="digits-mlp"), sampler, settings, caller=caller)
    for workload in (WorkloadChoice(name="mine:Mine"), WorkloadChoice(name="digits-mlp")):
        choice = sampler if workload.name == "mine:Mine" else named
        if may:
            refuse_user_code(workload, choice, settings, caller=caller)
            continue
        expected, message = (CodeForbidden, "the scope 'code'") if allowed else (InvalidInput, "ALLOW_CODE")
        with pytest.raises(expected, match=message):
            refuse_user_code(workload, choice, settings, caller=caller)
        if not allowed:
            with pytest.raises(InvalidInput, match="ALLOW_CODE"):
                refuse_code_switched_off(workload, choice, settings)


def _space(**parts: Any) -> dict[str, Any]:
    return {"optimizer": "adamw", **parts}


def _choices(path: str) -> dict[str, Any]:
    return {"type": "categorical", "name": "workload.tokenizer", "choices": ["byte", path]}


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"workload": {"name": "text-lm", "options": {"path": OUTSIDE}}}, "workload.options.path"),
        ({"workload": {"name": "text-lm", "options": {"path": [OUTSIDE]}}}, "workload.options.path"),
        ({"search_space": _space(fixed={"workload.tokenizer": OUTSIDE})}, "search_space.fixed['workload.tokenizer']"),
        ({"search_space": _space(parameters=[_choices(OUTSIDE)])}, "search_space.parameters[0].choices"),
        (
            {"baselines": [{"search_space": _space(parameters=[_choices(OUTSIDE)])}]},
            "baselines[0].search_space.parameters[0].choices",
        ),
    ],
)
def test_a_path_outside_is_refused_wherever_it_stands(tmp_path: Path, parts: dict[str, Any], field: str) -> None:
    settings = Settings(data_roots=(tmp_path,))
    workload = {"name": "text-lm", "options": {"path": str(tmp_path)}}
    specification = JobSpecification.model_validate({"workload": workload, "budget": {"num_trials": 8}, **parts})
    with pytest.raises(InvalidInput, match=r"'/etc/shadow' is in none of .* \(SHAMPOO_TUNER_DATA_ROOTS") as error:
        check_paths(plan_job(specification), settings.data_directories, data_are_here=False)
    assert error.value.field == field


def test_neither_a_submission_nor_a_dry_run_tells_what_lies_outside(sqlite_database: Database, tmp_path: Path) -> None:
    said = set()
    with running(sqlite_database, data_are_here=True, data_roots=(tmp_path,)) as url:
        for path in (OUTSIDE, "/etc/no-such-file", "/no/such/directory"):
            body = {"workload": {"name": "text-lm", "options": {"path": str(tmp_path), "tokenizer": path}}}
            for asked in ({}, {"dry_run": "true"}):
                answer = httpx.post(f"{url}/v1/jobs", json=body, params=asked, trust_env=False, verify=False)
                (error,) = answer.json()["errors"]
                assert (answer.status_code, error["field"]) == (422, "workload.options.tokenizer")
                assert error["value"] == path
                said.add(error["message"].replace(path, ""))
    assert len(said) == 1


def test_a_service_keeps_its_own_files_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SHAMPOO_TUNER_DATA_ROOTS")
    monkeypatch.chdir(tmp_path)
    settings = Settings(
        data_dir=tmp_path / "data", database_url="sqlite:///tuner.db", checkpoint_directory=str(tmp_path / "kept")
    )
    for path in ("data/logs/a.log", "kept/job/0", "tuner.db", "tuner.db-wal", ".local/x"):
        assert settings.data_directories.refusal(path) is not None, path
    assert settings.data_directories.refusal("corpus.txt") is None
    monkeypatch.setenv("HOME", "/")
    monkeypatch.chdir("/")
    assert Settings(data_dir=tmp_path / "data").data_directories.roots == ()


def test_on_macos_the_library_of_a_home_is_closed_in_whatever_case_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Library" / "Sets").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SHAMPOO_TUNER_DATA_ROOTS")
    monkeypatch.chdir(tmp_path)
    settings = Settings(data_dir=tmp_path / "data")
    assert settings.data_directories.refusal("Library/Sets") is None
    monkeypatch.setattr(sys, "platform", "darwin")
    for path in ("Library/Sets", "library/Sets", "Data/logs/a.log"):
        assert settings.data_directories.refusal(path) is not None, path
    assert settings.data_directories.refusal("corpus.txt") is None
    named = Settings(data_dir=tmp_path / "data", data_roots=(tmp_path / "Library" / "Sets",))
    assert named.data_directories.refusal("Library/Sets/corpus.txt") is None


def test_roots_come_from_the_environment_and_go_on_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHAMPOO_TUNER_DATA_ROOTS", "/data:/mnt/sets")
    settings = Settings()
    assert settings.data_roots == (Path("/data"), Path("/mnt/sets"))
    assert settings.to_environment()["SHAMPOO_TUNER_DATA_ROOTS"] == "/data:/mnt/sets"
    with pytest.raises(ValueError, match="must be an absolute path"):
        Settings(data_roots="data")  # type: ignore[arg-type]  # as from the environment
