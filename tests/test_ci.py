"""The tests that `.ci/run` runs, and failures: a few are run once more, and it says which passed only then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
FLAKY = """
import pathlib, pytest
@pytest.mark.parametrize("name", {names!r})
def test_flaky(name):
    seen = pathlib.Path(name + ".seen")
    if not seen.exists():
        seen.touch()
        pytest.fail("once")
def test_good():
    pathlib.Path("good.runs").open("a").write("x")
"""
NAMES = ["a b", "c[d]", "e::f"]
OPTIONS = """
def pytest_addoption(parser):
    parser.addoption("--draw")
def pytest_report_header(config):
    return f"drawn by {config.option.draw}"
"""


def run_ci(
    directory: Path, tests: str, *options: str, num_workers: int = 0, **linters: str
) -> subprocess.CompletedProcess[str]:
    """Runs a copy of `.ci/run` on a project of one test file, whose linters find nothing but where `linters` have a
    script instead."""
    (directory / ".ci").mkdir(exist_ok=True)
    (directory / "tests").mkdir(exist_ok=True)
    (directory / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / ".ci" / "run", directory / ".ci" / "run")
    (directory / "tests" / "test_it.py").write_text(tests)
    (directory / "tests" / "conftest.py").write_text(OPTIONS)
    (directory / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    scripts = {
        "tests/run": f'exec {sys.executable} -m pytest -p xdist -n {num_workers} "$@"',
        ".venv/bin/python": f'exec {sys.executable} "$@"',
    }
    for linter in ("ruff", "mypy", "lint-imports"):
        scripts[f".venv/bin/{linter}"] = linters.get(linter, f"echo {linter} was run")
    for name, script in scripts.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    return subprocess.run(
        [directory / ".ci" / "run", *options],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # importing the others takes long
        capture_output=True,
        text=True,
        cwd="/",
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_up_to_three_failures_are_run_again_alone_and_named(tmp_path: Path) -> None:
    ran = run_ci(tmp_path, FLAKY.format(names=NAMES), num_workers=2)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("FLAKY: ") == len(NAMES)
    assert all(f"FLAKY: tests/test_it.py::test_flaky[{name}] failed, and passed" in ran.stdout for name in NAMES)
    assert (tmp_path / "good.runs").read_text() == "x"
    assert "lint-imports was run" in ran.stdout


@pytest.mark.parametrize(
    ("tests", "told"),
    [
        pytest.param(FLAKY.format(names=[*NAMES, "g"]), "4 tests failed: none is run again", id="more than three"),
        pytest.param("def test_bad(): assert False", "1 failed", id="twice"),
        pytest.param(f"{FLAKY.format(names=NAMES)}\nimport no_such_module", "no_such_module", id="a collection error"),
    ],
)
def test_other_failures_fail(tmp_path: Path, tests: str, told: str) -> None:
    ran = run_ci(tmp_path, tests)
    assert ran.returncode != 0
    assert told in ran.stdout
    assert "FLAKY" not in ran.stdout
    assert "mypy was run" in ran.stdout


def test_what_passes_is_run_once(tmp_path: Path) -> None:
    ran = run_ci(tmp_path, "def test_good(): pass")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count(" passed in ") == 1
    assert "FLAKY" not in ran.stdout


def test_what_compiles_in_the_background_ends_with_a_run_that_a_linter_ends(tmp_path: Path) -> None:
    tests = "import pathlib, time\npathlib.Path('began').touch()\ntime.sleep(20)\npathlib.Path('went_on').touch()\n"
    finds_a_fault = "until [ -e began ]; do sleep 0.1; done; echo a fault; exit 1"
    ran = run_ci(tmp_path, tests, ruff=finds_a_fault)  # which waits for the last that holds the output
    assert ran.returncode == 1
    assert ran.stdout == f"pytest {pytest.__version__}\na fault\n"
    assert ran.stderr == ""
    assert not (tmp_path / "went_on").exists()


def test_all_is_run_unless_the_half_is_asked_for_that_the_commit_draws(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    everything = run_ci(tmp_path, "def test_good(): pass")
    assert everything.returncode == 0, everything.stdout + everything.stderr
    assert "drawn by None" in everything.stdout
    assert head not in everything.stdout
    assert f"drawn by {head}" in run_ci(tmp_path, "def test_good(): pass", "--half").stdout
