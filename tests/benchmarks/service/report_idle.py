"""How long ranks idle between two measurements, waiting for the driver to deal with the first.

    python -m tests.benchmarks.service.report_idle --intervals 5,1,0.2 --reports 12

A job of the service (policy, pruner, recorder on SQLite, Ray Tune) trains trials of two ranks. Idle is, on rank 0, from
the end of an evaluation to the first batch of the next interval: waiting, and the loop's own bookkeeping and the
checkpoint's copy, which are the same either way. `ahead`: as it is, training on meanwhile. `in_step`: each interval
waits for the driver, as it would without. `--busy 0.1` makes the driver take so much longer over each report, as one
with many trials does.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.report import report
from tests.benchmarks.service.trial_start import REPOSITORY, install_workloads
from tests.benchmarks.training.tuning_stack import ENVIRONMENT

NUM_STEPS = 10
"""Steps of an interval."""
WORLD_SIZE = 2


def measure(interval: float, num_reports: int, *, ahead: bool, busy: float, directory: Path) -> list[float]:
    """Seconds of idleness after each report of a trial but the first and the last."""
    from ray import tune

    from service.scheduler.cluster.group_size import GroupSize
    from service.scheduler.tune.messages import TrialOrder, TrialReport
    from service.scheduler.tune.trainable import WarmTrainable, trial_resources
    from tests.benchmarks.training.tuning_stack import database, run_job

    size = GroupSize(WORLD_SIZE, 0.5, 0.0)

    class InStep(WarmTrainable):
        """Trains nothing ahead."""

        def _begin(self, order: TrialOrder) -> None:
            super()._begin(replace(order, until_step=0))

    idle: list[float] = []
    times: list[tuple[float, float]] = []

    class Clock(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            measurement = TrialReport.from_tune(result).measurement
            assert measurement is not None, result
            times.append((measurement.metrics["went_on_at"], measurement.metrics["measured_at"]))
            time.sleep(busy)

        def __getstate__(self) -> dict[str, Any]:
            return {}

    specification = {
        "workload": {"name": "paced-digits", "options": {"seconds_per_step": interval / NUM_STEPS}},
        "search_space": {
            "optimizer": "adamw",
            "parameters": [{"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "scale": "log", "default": 1e-3}],
        },
        "budget": {"num_trials": 1},
        "training": {"num_steps": NUM_STEPS * (num_reports + 2), "evaluate_every": NUM_STEPS},
        "resources": {"workers_per_trial": WORLD_SIZE, "cpus_per_worker": 0.5},
        "sampler": {"name": "random"},
        "pruner": {"name": "none"},
        "baseline": None,
        "confirmation": None,
    }
    directory.mkdir()
    with database(directory) as store:
        run_job(
            store,
            specification,
            tune.with_resources(WarmTrainable if ahead else InStep, trial_resources(size)),
            size=size,
            num_parallel=1,
            directory=directory,
            callbacks=[Clock()],
        )
    idle += [later[0] - earlier[1] for earlier, later in pairwise(times)]
    return idle[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--intervals", default="5,1,0.2", help="seconds between measurements (default: 5,1,0.2)")
    parser.add_argument("--reports", type=int, default=10, help="measured for each interval, each way (default: 10)")
    parser.add_argument("--busy", type=float, default=0.0, help="seconds more that the driver takes (default: 0)")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    intervals = [float(text) for text in options.intervals.split(",")]

    directory = Path(tempfile.mkdtemp(prefix="idle-", dir="/tmp"))
    os.environ |= ENVIRONMENT | {"OMP_NUM_THREADS": "1"}
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [
            install_workloads({"paced-digits": "tests.benchmarks.training.paced_digits:DESCRIPTION"}, directory),
            str(REPOSITORY),
        ]
    )
    import ray

    ray.init(
        address="local",
        num_cpus=2 * len(intervals),  # a job's end is an exception, after which its ranks stay until Ray ends
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 * 2**20,
        _temp_dir=str(directory / "ray"),
    )
    rows: list[tuple[str | float, ...]] = []
    figures: dict[str, Any] = {"busy_seconds": options.busy, "reports": options.reports}
    ratios: dict[str, float] = {}
    try:
        for interval in intervals:
            for name in ("in_step", "ahead"):
                idle = measure(
                    interval,
                    options.reports,
                    ahead=name == "ahead",
                    busy=options.busy,
                    directory=directory / f"{name}-{interval:g}",
                )
                median = statistics.median(idle)
                print(f"{interval:g} s, {name}: {1000 * median:.1f} ms", file=sys.stderr)
                ratios[f"{name}_idle_over_total_at_{interval:g}_seconds"] = median / (median + interval)
                figures[f"{name}_idle_seconds_at_{interval:g}_seconds"] = idle
                rows.append((interval, name, 1000 * median, 1000 * max(idle), 100 * median / (median + interval)))
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)
    report(
        "report_idle",
        columns=("interval s", "ranks", "idle ms", "most ms", "% of the time"),
        rows=rows,
        figures=figures,
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
