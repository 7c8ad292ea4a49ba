"""The demo: its job, what it refuses, and nothing left running when it is stopped.

`tests/e2e/test_readme.py` runs it to its end.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from service.cli.operating.demo import demo_job
from service.domain import Currency, Phase
from service.specification.job import JobSpecification
from service.specification.length import currency_of
from service.specification.planning import plan_job
from service.use_cases.estimating import machine_memory
from service.use_cases.estimating.control_groups import ControlGroups
from service.use_cases.estimating.machine_memory import cpus_hold
from tests.support.service.commands import in_one_line, run
from tests.support.service.service_process import NO_CLUSTER
from tests.support.waiting import PATIENCE_SECONDS, started, wait_until


def _command(data_dir: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "service", "demo", "--workload", "digits-mlp", "--data-dir", str(data_dir), *options]


@pytest.mark.services
@pytest.mark.parametrize(
    ("number", "after", "has_ray"),
    [
        (signal.SIGINT, r"running .*\b[1-9]\d* (running|completed)", True),
        (signal.SIGKILL, r"running .*\b[1-9]\d* (running|completed)", True),
        (signal.SIGTERM, "The service runs", False),  # which has SIGINT's handler, and no job yet
    ],
)
def test_a_demo_that_is_stopped_in_the_middle_leaves_no_process(
    tmp_path: Path, number: signal.Signals, after: str, has_ray: bool
) -> None:
    environment = {**os.environ, **({} if has_ray else {"RAY_ADDRESS": NO_CLUSTER})}
    command = _command(tmp_path / "demo", "--trials", "100")
    with started(command, stdout=subprocess.PIPE, env=environment) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if re.match(after, line):
                break
        descendants = psutil.Process(demo.pid).children(recursive=True)
        names = set()
        for found in descendants:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                names.add(found.name())
        assert names
        assert not has_ray or "raylet" in names
        demo.send_signal(number)
        last, _ = demo.communicate(timeout=PATIENCE_SECONDS)
        status = demo.returncode
        directory = tmp_path / "demo"
        assert (f"To go on with the job: shampoo-tuner serve --data-dir {directory}" in last) == (
            has_ray and number == signal.SIGINT
        )
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 130)
        wait_until(lambda: not any(found.is_running() for found in descendants), "the end of what the demo started")


def test_the_demo_refuses_a_single_new_seed(tmp_path: Path) -> None:
    result = run("demo", "--seeds", "1", "--data-dir", str(tmp_path))
    assert result.exit_code == 2
    assert "--seeds" in result.stderr
    assert "1 seed says nothing about the spread: give 0, or 2 or more" in in_one_line(result.stderr)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("cpus", "of_a_rank"), [(1, 0.5), (2, 1.0), (64, 1.0)])
def test_the_demos_ranks_share_a_single_cpu(monkeypatch: pytest.MonkeyPatch, cpus: int, of_a_rank: float) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cpus)))
    monkeypatch.setattr(machine_memory, "ControlGroups", lambda: ControlGroups(own=Path("/nonexistent")))
    job = JobSpecification.model_validate(demo_job("digits-mlp", num_trials=2, num_seeds=0, currency=Currency.STEPS))
    assert job.resources.cpus_per_worker == of_a_rank
    assert cpus_hold(job.resources) > 0


def test_a_demo_wants_a_new_directory(tmp_path: Path) -> None:
    (tmp_path / "shampoo-tuner.sqlite3").touch()
    result = run("demo", "--data-dir", str(tmp_path))
    assert result.exit_code == 1
    assert "holds a database already" in result.stderr


@pytest.mark.parametrize("num_trials", [2, 3, 4, 32])
@pytest.mark.parametrize("num_seeds", [0, 2, 3])
@pytest.mark.parametrize("currency", Currency)
def test_the_demos_job_is_possible_however_small_it_is(num_trials: int, num_seeds: int, currency: Currency) -> None:
    job = demo_job("digits-mlp", num_trials=num_trials, num_seeds=num_seeds, currency=currency)
    plan = plan_job(JobSpecification.model_validate(job))
    assert currency_of(plan.specification, plan.spaces) is currency
    assert plan.allotments[Phase.SEARCH] == plan.allotments[Phase.BASELINE] == num_trials // 2
    assert (Phase.CONFIRMATION in plan.allotments) == (num_seeds > 0)
