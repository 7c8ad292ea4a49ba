"""What a million trials on ten thousand GPUs would need of a job's driver and of SQL, and what breaks first.

    python -m tests.benchmarks.scheduler_scale --sides ours --sampler random --json one.json
    python -m tests.benchmarks.scheduler_scale --sides ours --sampler random --num-reports 10 --json ten.json
    python -m tests.benchmarks.cluster_needs --one-report one.json --ten-reports ten.json

Multiplies what those two and a timed decision of `auto` say; nothing here ran on a cluster. Everything of the driver is
one thread, so what counts is its CPU seconds per second of the job: 1 is saturated, and ranks wait from well below.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from service.domain import Direction, TrialState
from service.scheduler.searching.auto import AutoSearch
from service.scheduler.searching.samplers import Outcome
from tests.benchmarks.curve_families import NUM_UNITS, space_sample, task
from tests.benchmarks.report import report

NUM_KNOWN = 400
"""Trials known when a decision is timed: beyond those `auto` keeps in its model."""
MEAN_SHARE = 0.35
"""Of a whole training, what a trial of `auto` trains on average: most end at 15% or 40% of it."""
DECISIONS_PER_TRIAL = 1.5
"""One to start it, and half of them to go on."""
USABLE = 0.5
"""CPU seconds per second that a driver may spend before ranks are seen to wait for it."""
USABLE_BYTES = 16 * 2**30


@dataclass(frozen=True, slots=True)
class Costs:
    """Of the service's driver."""

    seconds_per_trial: float
    """Starting and ending it, without its measurements and the search."""
    seconds_per_report: float
    seconds_per_decision: float
    bytes_per_trial: float
    """Of the driver's memory."""
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
    """Of a whole training."""
    report_seconds: float
    """Between measurements of a trial."""

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
    """Of a tuning, if it were one job."""

    driver_load: float
    """CPU seconds per second."""
    driver_bytes: float
    stored_bytes: float
    num_jobs: int
    """Into which it must be split, so that each one's driver keeps up and fits into memory."""

    @classmethod
    def of(cls, tuning: Tuning, costs: Costs) -> Self:
        per_trial = costs.seconds_per_trial + DECISIONS_PER_TRIAL * costs.seconds_per_decision
        load = tuning.trials_per_second * per_trial + tuning.reports_per_second * costs.seconds_per_report
        num_bytes = tuning.num_trials * costs.bytes_per_trial
        reports = tuning.num_trials * MEAN_SHARE * tuning.training_seconds / tuning.report_seconds
        stored = tuning.num_trials * costs.stored_bytes_per_trial + reports * costs.stored_bytes_per_report
        return cls(load, num_bytes, stored, max(1, math.ceil(load / USABLE), math.ceil(num_bytes / USABLE_BYTES)))


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
            search.finish(number, Outcome(TrialState.COMPLETED, None, curve[-1][1], curve))
    seconds = []
    for number in range(NUM_KNOWN, NUM_KNOWN + 20):
        start = time.process_time()
        search.choose(number, may_start=True)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


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
                f"{needs.driver_load:.2f}",
                f"{needs.driver_bytes / 2**30:.1f}",
                f"{needs.stored_bytes / 2**30:.1f}",
                needs.num_jobs,
            )
        )
    report(
        "cluster_needs",
        columns=(
            *("GPUs", "ranks/trial", "trials", "report every", "running", "hours", "reports/s"),
            *("driver CPU s/s", "driver GB", "SQL GB", "jobs"),
        ),
        rows=rows,
        figures={
            "milliseconds_per_trial": 1e3 * costs.seconds_per_trial,
            "milliseconds_per_report": 1e3 * costs.seconds_per_report,
            "milliseconds_per_decision": 1e3 * costs.seconds_per_decision,
            "training_seconds": TUNINGS[0].training_seconds,
            "num_jobs": [row[-1] for row in rows],
        },
        ratios={},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
