"""The demo: from nothing to a config to paste, and nothing left running."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from service.cli.demo import demo_job
from service.domain import Phase
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from service.store.repositories import JobRepository
from service.store.session import Database
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS, started, wait_until


def _command(data_dir: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "service", "demo", "--workload", "digits-mlp", "--data-dir", str(data_dir), *options]


@pytest.mark.services
@pytest.mark.slow
def test_the_demo_ends_with_a_config_and_honest_evidence_and_leaves_no_process(tmp_path: Path) -> None:
    data_dir = tmp_path / "a demo"
    command = _command(data_dir, "--trials", "4", "--seeds", "2")
    shared = tmp_path / "of others"
    environment = {**os.environ, "SHAMPOO_TUNER_CHECKPOINT_DIRECTORY": str(shared)}
    demo = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LONG_PATIENCE_SECONDS, check=False
    )
    log = data_dir / "service.log"
    assert demo.returncode == 0, f"{demo.stdout}\n{demo.stderr}\n{log.read_text() if log.exists() else ''}"
    assert re.search(r"Dashboard: http://127\.0\.0\.1:\d+/jobs/job_\w+", demo.stdout)
    assert re.search(r"([89]|10)/\1 trials", demo.stdout)  # 4, and 2 seeds of 2 or 3 configs
    snippet = demo.stdout[demo.stdout.index("# Shampoo for digits-mlp") : demo.stdout.index("\nBest of the search")]
    ast.parse(snippet)
    assert "optimizer = Shampoo(" in snippet
    assert re.search(
        r"Shampoo (beats|falls short of|and) AdamW|2 new seeds do not tell Shampoo from AdamW", demo.stdout
    )
    assert re.search(r"\d+ trials: search 2 \(.*\); baseline 2 \(.*\); confirmation [46] \(", demo.stdout)
    assert re.search(r"Over 2 new seeds, the improvement lies between", demo.stdout)
    assert f"shampoo-tuner serve --data-dir '{data_dir}'" in demo.stdout

    database = Database(f"sqlite:///{data_dir / 'shampoo-tuner.sqlite3'}")
    with database.reading() as session:
        assert [job.state for job in JobRepository(session).page(limit=10)] == ["succeeded"]
    database.close()
    assert not _processes_of(data_dir)
    assert not shared.exists()


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_stopped_in_the_middle_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    with started(_command(tmp_path / "demo", "--trials", "100"), stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if re.match(r"running .*\b[1-9]\d* (running|completed)", line):
                break
        descendants = psutil.Process(demo.pid).children(recursive=True)
        names = set()
        for found in descendants:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                names.add(found.name())
        assert "raylet" in names
        demo.send_signal(number)
        status = demo.wait(PATIENCE_SECONDS)
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 130)
        wait_until(lambda: not any(found.is_running() for found in descendants), "the end of what the demo started")


def test_the_demo_refuses_a_single_new_seed(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--seeds", "1", "--data-dir", str(tmp_path)])
    assert result.exit_code == 2
    assert "--seeds" in result.stderr
    assert not any(tmp_path.iterdir())


def test_a_demo_wants_a_new_directory(tmp_path: Path) -> None:
    (tmp_path / "shampoo-tuner.sqlite3").touch()
    result = CliRunner().invoke(app, ["demo", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "holds a database already" in result.stderr


def _processes_of(data_dir: Path) -> list[psutil.Process]:
    """Processes that were told of `data_dir` by their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SHAMPOO_TUNER_DATA_DIR") == str(data_dir):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.parametrize("num_trials", [2, 3, 4, 32])
@pytest.mark.parametrize("num_seeds", [0, 2, 3])
def test_the_demos_job_is_possible_however_small_it_is(num_trials: int, num_seeds: int) -> None:
    job = demo_job("digits-mlp", num_trials=num_trials, num_seeds=num_seeds)
    plan = plan_job(JobSpecification.model_validate(job))
    assert plan.allotments[Phase.SEARCH] + plan.allotments[Phase.BASELINE] == num_trials
    assert (Phase.CONFIRMATION in plan.allotments) == (num_seeds > 0)
