"""Needs of a million trials on ten thousand GPUs, of a job's driver and of SQL, and what breaks first.

    python -m tests.benchmarks.service.scheduler_scale --sides ours --sampler random --json one.json
    python -m tests.benchmarks.service.scheduler_scale --sides ours --sampler random --num-reports 10 --json ten.json
    python -m tests.benchmarks.service.cluster_needs --one-report one.json --ten-reports ten.json

Multiplies what those two and a timed decision of `auto` say; nothing here ran on a cluster. Everything of the driver is
one thread, so what counts is its CPU seconds per second of the job: 1 is saturated, and ranks wait from well below.
What a database takes is measured with as many runs as write at once: measurements stored per second, one in each
transaction.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from service.domain import Direction, TrialState
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import TrialOutcome
from service.specification.job import MAX_TRIALS
from service.store.migrate import migrate
from service.store.session import Database
from service.use_cases.run import TrialMeasurements, record_measurements
from tests.benchmarks.report import report
from tests.benchmarks.search.curve_families import NUM_UNITS, space_sample, task
from tests.support.postgresql import controlled_postgresql_server
from tests.support.service.scenarios import NOW, add_worker, begin_trial, claim, submit
from trainers.config import Measurement

NUM_KNOWN = 400
"""Trials known when a decision is timed: beyond those `auto` keeps in its model."""
MEAN_SHARE = 0.35
"""The share of a whole training that a trial of `auto` trains on average: most end at 15% or 40% of it."""
DECISIONS_PER_TRIAL = 1.5
"""One to start it, and half of them to go on."""
USABLE = 0.5
"""CPU seconds per second that a driver may spend before ranks are seen to wait for it."""


STORING_SECONDS = 4.0
NUM_RUNS = 8
"""Runs that write to PostgreSQL at once."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of the service's driver."""

    seconds_per_trial: float
    """Starting and ending it, without its measurements and the search."""
    seconds_per_report: float
    seconds_per_decision: float
    bytes_per_trial: float
    """The driver's memory for each trial."""
    stored_bytes_per_trial: float
    stored_bytes_per_report: float

    @classmethod
    def measured(cls, one: dict[str, float], ten: dict[str, float], seconds_per_decision: float) -> Self:
        """From `scheduler_scale`'s figures of this service with one report in a trial, and with ten."""
        per_report = (ten["cpu_milliseconds_per_trial"] - one["cpu_milliseconds_per_trial"]) / 9e3
        stored = (ten["database_kilobytes_per_trial"] - one["database_kilobytes_per_trial"]) * 2**10 / 9
        return cls(
            seconds_per_trial=one["cpu_milliseconds_per_trial"] / 1e3 - per_report,
            seconds_per_report=per_report,
            seconds_per_decision=seconds_per_decision,
            bytes_per_trial=one["kilobytes_per_trial"] * 2**10,
            stored_bytes_per_trial=one["database_kilobytes_per_trial"] * 2**10 - stored,
            stored_bytes_per_report=stored,
        )


@dataclass(frozen=True, slots=True)
class Tuning:
    """Trials on a cluster."""

    num_gpus: int
    ranks_per_trial: int
    num_trials: int
    training_seconds: float
    """Length of a whole training."""
    report_seconds: float
    """Time between measurements of a trial."""

    @property
    def num_running(self) -> int:
        return self.num_gpus // self.ranks_per_trial

    @property
    def trials_per_second(self) -> float:
        return self.num_running / (MEAN_SHARE * self.training_seconds)

    @property
    def reports_per_second(self) -> float:
        return self.num_running / self.report_seconds

    @property
    def hours(self) -> float:
        return self.num_trials / self.trials_per_second / 3600


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of a tuning."""

    load: float
    """CPU seconds per second of all drivers together."""
    num_jobs: int
    """Jobs into which it must be split, so that each one's driver keeps up; a job has `MAX_TRIALS` at most."""
    bytes_per_driver: float
    stored_bytes: float

    @classmethod
    def of(cls, tuning: Tuning, costs: Costs) -> Self:
        per_trial = costs.seconds_per_trial + DECISIONS_PER_TRIAL * costs.seconds_per_decision
        load = tuning.trials_per_second * per_trial + tuning.reports_per_second * costs.seconds_per_report
        num_jobs = max(1, math.ceil(load / USABLE), math.ceil(tuning.num_trials / MAX_TRIALS))
        reports = tuning.num_trials * MEAN_SHARE * tuning.training_seconds / tuning.report_seconds
        stored = tuning.num_trials * costs.stored_bytes_per_trial + reports * costs.stored_bytes_per_report
        return cls(load, num_jobs, tuning.num_trials / num_jobs * costs.bytes_per_trial, stored)


TUNINGS = (
    Tuning(8, 1, 1_000, 3600, 60),
    Tuning(64, 8, 1_000, 3600, 60),
    Tuning(1_000, 1, 100_000, 3600, 60),
    Tuning(1_000, 8, 10_000, 3600, 60),
    Tuning(10_000, 1, 1_000_000, 3600, 60),
    Tuning(10_000, 8, 1_000_000, 3600, 60),
    Tuning(10_000, 8, 1_000_000, 3600, 5),
)


def decision_seconds() -> float:
    """CPU seconds of a decision of `auto` once its model is as large as it gets, median of 20."""
    plain = task("plain", 0)
    search = AutoSearch(plain.space, direction=Direction.MAXIMIZE, max_steps=NUM_UNITS["plain"])
    for number, parameters in enumerate(space_sample(plain.space, NUM_KNOWN)):
        search.begin(number, parameters)
        curve = list(enumerate(plain.objective(parameters), start=1))
        rung = search.until(number) or 0
        for step, value in curve if number % 4 == 0 else curve[:rung]:
            search.report(number, step, value)
        if number % 4 == 0:
            search.finish(number, TrialOutcome(TrialState.COMPLETED, None, (curve[-1][1],), curve))
    seconds = []
    for number in range(NUM_KNOWN, NUM_KNOWN + 20):
        start = time.process_time()
        search.choose(number, may_start=True)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def stored_per_second(url: str, *, num_runs: int) -> float:
    """Measurements that so many runs, each with a job of its own, store per second."""
    database = Database(url)
    try:
        migrate(database)
        counts, stop = [0] * num_runs, threading.Event()
        worker = add_worker(database)

        def write(run: int) -> None:
            submit(database)
            lease = claim(database, worker, lease_seconds=1e6)
            assert lease is not None
            begin_trial(database, lease, 0)
            while not stop.is_set():
                counts[run] += 1
                reported = Measurement(counts[run], 1.0, 0.01 * counts[run], {"validation_loss": 1.0})
                with database.writing() as session:
                    record_measurements(session, lease, [TrialMeasurements(0, [reported])], now=NOW)

        threads = [threading.Thread(target=write, args=(run,)) for run in range(num_runs)]
        for thread in threads:
            thread.start()
        time.sleep(STORING_SECONDS / 4)  # until all have begun
        before, start = sum(counts), time.perf_counter()
        time.sleep(STORING_SECONDS)
        found = (sum(counts) - before) / (time.perf_counter() - start)
        stop.set()
        for thread in threads:
            thread.join()
        return found
    finally:
        database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one-report", type=Path, required=True, help="scheduler_scale's --json with one report")
    parser.add_argument("--ten-reports", type=Path, required=True, help="and with --num-reports 10")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    figures = [json.loads(path.read_text())["figures"] for path in (options.one_report, options.ten_reports)]
    if [found["num_reports"] for found in figures] != [1, 10]:
        parser.error("the files must be of --num-reports 1 and 10")
    costs = Costs.measured(figures[0]["ours"], figures[1]["ours"], decision_seconds())
    print(f"{1e3 * costs.seconds_per_trial:.1f} ms of the driver's CPU per trial", end=", ")
    print(f"{1e3 * costs.seconds_per_report:.1f} per report, {1e3 * costs.seconds_per_decision:.0f} per decision;")
    print(f"{costs.bytes_per_trial / 2**10:.0f} kB of its memory per trial; in SQL", end=" ")
    print(
        f"{costs.stored_bytes_per_trial / 2**10:.1f} kB per trial, {costs.stored_bytes_per_report:.0f} B per report\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        sqlite = stored_per_second(f"sqlite:///{directory}/needs.sqlite3", num_runs=1)
    with controlled_postgresql_server() as server:
        postgresql = {num_runs: stored_per_second(server.url, num_runs=num_runs) for num_runs in (1, NUM_RUNS)}
    print(f"SQLite stores {sqlite:.0f} measurements a second, PostgreSQL {postgresql[1]:.0f} of one run", end=" ")
    print(f"and {postgresql[NUM_RUNS]:.0f} of {NUM_RUNS} runs\n")
    rows = []
    for tuning in TUNINGS:
        needs = Needs.of(tuning, costs)
        rows.append(
            (
                f"{tuning.num_gpus:,}",
                tuning.ranks_per_trial,
                f"{tuning.num_trials:,}",
                f"{tuning.report_seconds:.0f} s",
                f"{tuning.num_running:,}",
                f"{tuning.hours:,.0f}",
                f"{tuning.reports_per_second:,.1f}",
                f"{needs.load:.2f}",
                needs.num_jobs,
                f"{needs.bytes_per_driver / 1e9:.2f}",
                f"{needs.stored_bytes / 1e9:.1f}",
            )
        )
    report(
        "cluster_needs",
        columns=(
            *("GPUs", "ranks/trial", "trials", "report every", "running", "hours", "reports/s"),
            *("drivers' CPU s/s", "jobs", "GB/driver", "GB in SQL"),
        ),
        rows=rows,
        figures={
            "milliseconds_per_trial": 1e3 * costs.seconds_per_trial,
            "milliseconds_per_report": 1e3 * costs.seconds_per_report,
            "milliseconds_per_decision": 1e3 * costs.seconds_per_decision,
            "stored_per_second": {"sqlite": sqlite, **{f"postgresql_{n}_runs": each for n, each in postgresql.items()}},
            "training_seconds": TUNINGS[0].training_seconds,
            "num_jobs": [row[8] for row in rows],
        },
        ratios={},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
