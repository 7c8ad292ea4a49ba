"""How long a job takes from the queue to its first step, by stages, and what its run costs in processor time.

    python -m tests.benchmarks.service.job_start
    python -m tests.benchmarks.service.job_start --jobs 5 --idle 10

A worker of its own database runs small jobs (one trial of one rank on the digits) one after the other; each is queued
when nothing of the one before it is left. The first is queued `--idle` seconds after the worker was started (default:
0, so that it waits for the worker's start and the launcher's imports). The stages: *claim*, until the worker has it;
*run*, until its run has a cluster and has chosen a trial; *trainable*, until Tune has a process for it; *rank*, until
the measurement after its first step is in SQL. `second_seconds`: all of it for the second job.

CPU seconds are those of the processes below the worker, as last seen: of each, up to 50 ms are missed. They hold the
job's end, too; what the worker and its launcher have spent up to the first claim stands apart.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psutil

from service.domain import DEFAULT_PROJECT, JobState
from service.specification.job import JobSpecification
from service.store.migrate import migrate
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.submit import create_job
from tests.benchmarks.report import report

NUM_STEPS = 5
POLL_SECONDS = 0.05
JOB = {
    "workload": {"name": "digits-mlp"},
    "search_space": {
        "optimizer": "adamw",
        "parameters": [{"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "scale": "log", "default": 1e-3}],
    },
    "budget": {"num_trials": 1},
    "training": {"num_steps": NUM_STEPS, "evaluate_every": 1},
    "pruner": {"name": "none"},
    "baselines": [],
    "confirmation": None,
}
STAGES = ("claim", "run", "trainable", "rank")


@dataclass
class Processes:
    """The processor time of a process and of all below it, those that have ended included."""

    root: psutil.Process
    seconds: dict[psutil.Process, float] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Looks at them until `end`."""
        while not self._ended.wait(POLL_SECONDS):
            self.look()

    def look(self) -> float:
        """Seconds of all up to now."""
        with suppress(psutil.NoSuchProcess):
            for process in [self.root, *self.root.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    self.seconds[process] = times.user + times.system
        return sum(self.seconds.values())

    def end(self) -> None:
        self._ended.set()


def submit(database: Database) -> str:
    """Queues a job; its id."""
    with database.writing() as session:
        job, _ = create_job(
            session,
            JobSpecification.model_validate(JOB),
            name=None,
            tags={},
            project=DEFAULT_PROJECT,
            owner=None,
            priority=0,
            idempotency_key=None,
            now=datetime.now(UTC),
        )
        return job.id


def stages_of(database: Database, job_id: str) -> dict[str, float]:
    """Seconds of each stage of a job that has succeeded."""
    with database.reading() as session:
        job = JobRepository(session).get(job_id)
        [trial] = TrialRepository(session).with_measurements(job_id)
    assert job.state is JobState.SUCCEEDED, job.failure
    assert job.started_at is not None
    assert trial.started_at is not None
    measured = trial.measurements[0]
    assert measured.step == 1
    moments = (job.created_at, job.started_at, trial.created_at, trial.started_at, measured.recorded_at)
    spans = ((later - earlier).total_seconds() for earlier, later in pairwise(moments))
    return dict(zip(STAGES, spans, strict=True))


def is_final(database: Database, job_id: str) -> bool:
    with database.reading() as session:
        return JobRepository(session).get(job_id).state.is_final


def measure(num_jobs: int, idle_seconds: float, directory: Path) -> tuple[list[dict[str, float]], list[float], float]:
    """The stages of each job; the CPU seconds of each; those of the worker and its launcher up to the first claim."""
    database = Database(f"sqlite:///{directory / 'benchmark.sqlite3'}")
    migrate(database)
    worker = subprocess.Popen(
        [sys.executable, "-m", "service.scheduler.worker"],
        env={
            **os.environ,
            "SHAMPOO_TUNER_DATA_DIR": str(directory),
            "SHAMPOO_TUNER_DATABASE_URL": database.url,
        },
        stderr=(directory / "worker.log").open("wb"),
    )
    processes = Processes(psutil.Process(worker.pid))
    watch = threading.Thread(target=processes.watch)
    watch.start()
    stages, spent = [], []
    try:
        time.sleep(idle_seconds)
        before = at_first = processes.look()
        for _ in range(num_jobs):
            job_id = submit(database)
            while not is_final(database, job_id) or list(Path("/tmp").glob(f"shampoo-{worker.pid}-*")):
                assert worker.poll() is None, (directory / "worker.log").read_text()
                time.sleep(POLL_SECONDS)
            stages.append(stages_of(database, job_id))
            spent.append(processes.look() - before)
            before += spent[-1]
    finally:
        processes.end()
        watch.join()
        worker.terminate()
        worker.wait()
        database.close()
    return stages, spent, at_first


def main() -> None:
    """Prints the stages of each job, and their sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=3, help="jobs of the worker, one after the other (default: 3)")
    parser.add_argument("--idle", type=float, default=0.0, help="seconds of the worker before the first (default: 0)")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="job-start-", dir="/tmp"))
    try:
        stages, spent, at_first = measure(options.jobs, options.idle, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    report(
        "job_start",
        columns=("job", *(f"{stage} s" for stage in STAGES), "queued to first step s", "CPU s"),
        rows=[
            (str(number), *of_job.values(), sum(of_job.values()), cpu)
            for number, (of_job, cpu) in enumerate(zip(stages, spent, strict=True), start=1)
        ],
        figures={
            "stages": stages,
            "first_seconds": sum(stages[0].values()),
            **({"second_seconds": sum(stages[1].values())} if len(stages) > 1 else {}),
            "cpu_seconds": spent,
            "cpu_seconds_before_the_first_job": at_first,
            "idle_seconds": options.idle,
        },
        ratios={},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
