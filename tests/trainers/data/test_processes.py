"""Jobs in processes of their own: results in order, errors as they were, and none that outlives who gave it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.waiting import started, wait_until
from trainers.data.processes import Job, run_jobs

pytestmark = pytest.mark.processes

MODULE = """
import os, sys, time
from pathlib import Path
from trainers.data.processes import serve

def work(job):
    n = job["n"]
    if n == 13:
        raise ValueError("thirteen is refused")
    if n == 9:
        os.kill(os.getpid(), 9)
    if n == 100:
        Path(job["pid_file"]).write_text(str(os.getpid()))
        time.sleep(1e6)
    return {"square": n * n, "has_torch": "torch" in sys.modules}

if __name__ == "__main__":
    sys.exit(serve(work))
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "square_job.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


def here(job: Job) -> Job:
    return {"square": job["n"] ** 2, "pid": os.getpid()}


def test_results_come_in_the_order_of_jobs_from_processes_without_torch() -> None:
    results = run_jobs("square_job", here, [{"n": n} for n in range(4)])
    assert results == [{"square": n * n, "has_torch": False} for n in range(4)]


def test_a_single_job_is_done_here() -> None:
    assert run_jobs("square_job", here, [{"n": 7}]) == [{"square": 49, "pid": os.getpid()}]
    assert run_jobs("square_job", here, []) == []


def test_a_value_error_is_raised_here() -> None:
    with pytest.raises(ValueError, match=r"^thirteen is refused$"):
        run_jobs("square_job", here, [{"n": 1}, {"n": 13}])


def test_a_process_that_is_killed_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="a process of square_job ended with status -9"):
        run_jobs("square_job", here, [{"n": 9}, {"n": 1}])


def test_a_process_ends_with_the_one_that_gave_the_job(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    jobs = json.dumps([{"n": 100, "pid_file": str(pid_file)}, {"n": 1}])
    code = f"from trainers.data.processes import run_jobs; run_jobs('square_job', None, {jobs})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with started([sys.executable, "-c", code], env=environment) as giver:
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), "the job to begin")
        giver.send_signal(signal.SIGKILL)
    worker = int(pid_file.read_text())

    def has_ended() -> bool:
        try:  # without a parent it may stay as a zombie, where nobody takes its status
            return psutil.Process(worker).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    wait_until(has_ended, "the end of the job's process")
