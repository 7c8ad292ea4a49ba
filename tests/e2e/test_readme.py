"""The first commands run as they stand: those at the top of README.md, and that of a trial without the service."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from service.store.repositories import JobRepository
from service.store.session import Database
from tests.support.readmes import README, ROOT, blocks
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS, slowness

DEMO_LIMIT_SECONDS = 120.0


def _copy_of_the_project(directory: Path) -> Path:
    """The tracked and new files of the project, as a clone would have them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, directory / name)
    return directory


@pytest.mark.always
@pytest.mark.patient(minutes=2.5)
def test_the_first_command_installs_and_tunes_on_a_fresh_machine(tmp_path: Path) -> None:
    command = blocks(README, "sh")[0].strip()
    install, separator, demo = command.rpartition(" && ")
    assert (separator, demo) == (" && ", ".venv/bin/shampoo-tuner demo")
    project = _copy_of_the_project(tmp_path / "project")
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "XDG_DATA_HOME": str(tmp_path / "home" / "data")}
    environment.pop("OMP_NUM_THREADS")  # set for the tests alone
    # pip keeps its cache: what is measured and shown is the installed product.
    environment["PIP_CACHE_DIR"] = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    subprocess.run(install, shell=True, cwd=project, env=environment, check=True, timeout=LONG_PATIENCE_SECONDS)

    shared = tmp_path / "of others"
    environment["SHAMPOO_TUNER_CHECKPOINT_DIRECTORY"] = str(shared)  # of a service, and the demo is none's
    slowness_before = slowness()
    started = time.monotonic()
    shown = subprocess.run(demo, shell=True, cwd=project, env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert re.search(r"Dashboard: http://127\.0\.0\.1:\d+/jobs/job_\w+", shown.stdout)
    # Seeds that contradict each other end the comparison early, and a config that fails gives way to another one.
    assert re.search(r"succeeded · (\d+)/\1 trials", shown.stdout)
    assert re.search(r"\d+ trials: search 10 \(.*\); baseline 10 \(.*\); confirmation \d+ \(", shown.stdout)
    title = shown.stdout.index("# Shampoo for digits-autoencoder")
    evidence = re.search(r"\n(Confirmed[ a-z]+|Refuted): Shampoo has ", shown.stdout)
    assert evidence is not None
    snippet = shown.stdout[title : evidence.start()]
    ast.parse(snippet)
    assert "from shampoo import Shampoo" in snippet
    assert "optimizer = Shampoo(" in snippet
    assert re.search(
        r"Shampoo (beats|falls short of|and) AdamW|\d new seeds do not tell Shampoo from AdamW", shown.stdout
    )
    assert "Best of the AdamW baseline" in shown.stdout
    assert re.search(r"\nTrial \d+, moved from digits-", shown.stdout)
    assert "favours the search" not in shown.stdout
    assert re.search(r"Over \d new seeds, the improvement lies between", shown.stdout)
    # The promise is 120 s on two quiet cores; a shared machine gets as much again before this calls it broken.
    limit = 2 * DEMO_LIMIT_SECONDS * max(slowness_before, slowness())
    assert seconds < limit, f"the demo took {seconds:.0f} s"

    again = re.search(r"shampoo-tuner serve --data-dir (.*)$", shown.stdout, re.MULTILINE)
    assert again is not None
    (data_dir,) = shlex.split(again.group(1))
    database = Database(f"sqlite:///{data_dir}/shampoo-tuner.sqlite3")
    with database.reading() as session:
        assert [job.state for job in JobRepository(session).page(project=None, limit=10)] == ["succeeded"]
    database.close()
    assert _processes_of(data_dir) == []
    assert not shared.exists()
    shutil.rmtree(project)  # gigabytes


def _processes_of(data_dir: str) -> list[psutil.Process]:
    """Processes that were told of `data_dir` by their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get("SHAMPOO_TUNER_DATA_DIR") == data_dir:
                found.append(process)
    return found


def test_the_second_command_is_what_ci_runs() -> None:
    command = blocks(README, "sh")[1].strip()
    assert os.access(ROOT / command, os.X_OK)
    ci = (ROOT / ".ci" / "run").read_text().splitlines()
    assert {line.split(" -")[0] for line in ci if line.startswith(command)} == {command}


@pytest.mark.processes
def test_the_example_of_a_trial_trains(tmp_path: Path) -> None:
    block = next(block for block in blocks("trainers/README.md", "sh") if "trainers.run" in block)
    config = re.search(r"<<'JSON'\n(.*?)\nJSON", block, re.DOTALL)
    assert config is not None
    (tmp_path / "config.json").write_text(config.group(1))
    command = next(line for line in block.splitlines() if line.startswith("python -m trainers.run"))
    shown = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    measurements = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [measurement["step"] for measurement in measurements] == [20, 40, 60, 80, 100]
