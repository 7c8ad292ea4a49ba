"""The demo: from nothing to a config to paste, and nothing left running."""

from __future__ import annotations

import ast
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from service.cli import app
from service.store.repositories import JobRepository
from service.store.session import Database


def _command(data_dir: Path, num_trials: int = 4) -> list[str]:
    return [sys.executable, "-m", "service", "demo", "--trials", str(num_trials), "--data-dir", str(data_dir)]


@pytest.mark.slow
def test_the_demo_ends_with_a_config_and_honest_evidence_and_leaves_no_process(tmp_path: Path) -> None:
    data_dir = tmp_path / "a demo"
    demo = subprocess.run(_command(data_dir), capture_output=True, text=True, timeout=600, check=False)
    log = data_dir / "service.log"
    assert demo.returncode == 0, f"{demo.stdout}\n{demo.stderr}\n{log.read_text() if log.exists() else ''}"
    assert re.search(r"Dashboard: http://127\.0\.0\.1:\d+/jobs/job_\w+", demo.stdout)
    assert "4/4 trials" in demo.stdout
    snippet = demo.stdout[demo.stdout.index("# shampoo for digits-mlp") : demo.stdout.index("Best of the search")]
    ast.parse(snippet)
    assert "optimizer = Shampoo(" in snippet
    assert re.search(r"Verdict: shampoo (is better|is WORSE|and adamw are equal)", demo.stdout)
    assert re.search(r"4 trials: search 3 \(.*\); baseline 1 \(", demo.stdout)
    assert f"shampoo-tuner serve --data-dir '{data_dir}'" in demo.stdout

    database = Database(f"sqlite:///{data_dir / 'shampoo-tuner.sqlite3'}")
    with database.reading() as session:
        assert [job.state for job in JobRepository(session).page(limit=10)] == ["succeeded"]
    database.close()
    assert not _processes_of(data_dir)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_stopped_in_the_middle_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(_command(tmp_path / "demo", num_trials=100), stdout=subprocess.PIPE, text=True) as demo:
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
        status = demo.wait(timeout=120)
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 130)
        deadline = time.monotonic() + 120
        while left := [found for found in descendants if found.is_running()]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)


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
