"""The manual's command for recipes, with small sets of data: at its full size each is a job that a service takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.cli.job_file import read_job_file
from service.store.session import Database
from tests.benchmarks.training.recipe_costs import RECIPES
from tests.support.service.commands import run
from tests.support.service.live import running
from tests.support.trainers import small_data


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def paths(root: Path) -> dict[str, dict[str, Any]]:
    return small_data.of_recipes(root)


@pytest.fixture
def service(sqlite_database: Database, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with running(sqlite_database, data_are_here=True, data_roots=(root,)) as url:
        monkeypatch.setenv("SHAMPOO_TUNER_URL", url)
        yield


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.usefixtures("service", "warm_process")
@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_a_dry_run_of_a_recipe_says_what_it_would_cost(name: str, paths: dict[str, dict[str, Any]]) -> None:
    file = RECIPES / f"{name}.yaml"
    workload = read_job_file(file).content["workload"]["name"]
    options = {**paths[workload], **({"tokenizer": "byte"} if workload == "text-lm" else {})}
    given = [f"workload.options.{option}={value}" for option, value in options.items()]
    result = run("submit", str(file), "--dry-run", *(word for each in given for word in ("--set", each)))
    assert result.exit_code == 0, result.output
    assert " trials (search " in result.stdout
    if "cannot be predicted" not in result.stdout:  # a slow machine gives up
        assert "Weights, gradients and optimizer of a trial of the search need " in result.stdout
    assert "no jobs" in run("jobs").stderr
    elsewhere = run("submit", str(file), "--dry-run")
    assert elsewhere.exit_code == 1
    assert "workload.options.path" in elsewhere.stderr
