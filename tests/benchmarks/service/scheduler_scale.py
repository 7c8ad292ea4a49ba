"""Costs of the driver per trial, and how they grow: the service's against Ray Tune with its own OptunaSearch.

    python -m tests.benchmarks.service.scheduler_scale --num-trials 1000
    python -m tests.benchmarks.service.scheduler_scale --num-trials 10000 --sampler random
    python -m tests.benchmarks.service.scheduler_scale --num-reports 20

Trials are instant: a trainable that reports a value, or several, and is done. Ours has the policy, the searcher, the
pruner and the recorder on SQLite; the peer has OptunaSearch in memory, and stores nothing. Each side has a process and
a local Ray of its own, and Tune's file loggers off. `growth`: milliseconds per trial in the last tenth over the first
tenth. `cpu milliseconds per trial` are the driver's own, which other processes on the machine change little.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.report import report

NUM_PARALLEL = 2
LOW, HIGH = 1e-5, 1e-1
DISCARDED = 10
"""Trials at the start that are not counted: actors start."""


def loss(lr: float) -> float:
    """Smooth, with its least at 1e-3."""
    return (math.log10(lr) + 3.0) ** 2


class Clock:
    """Notes when each trial ended, the driver's CPU seconds, and its memory now and then."""

    def __init__(self) -> None:
        self.ended: list[float] = []
        self.cpu: list[float] = []
        self.rss: list[int] = []
        self.database_bytes = 0

    def tick(self) -> None:
        self.ended.append(time.perf_counter())
        self.cpu.append(time.process_time())
        if len(self.ended) % 50 == DISCARDED:
            self.rss.append(psutil.Process().memory_info().rss)

    def as_json(self) -> dict[str, list[float]]:
        return {
            "ended": self.ended,
            "cpu": self.cpu,
            "rss": [float(value) for value in self.rss],
            "database": [self.database_bytes],
        }


def _ticking(clock: Clock) -> Any:
    """Has Tune tell a clock of each trial's end."""
    from ray import tune

    class Ticks(tune.Callback):
        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            clock.tick()

        def __getstate__(self) -> dict[str, Any]:
            return {}

    return Ticks()


def run_ours(num_trials: int, num_reports: int, sampler: str, directory: Path) -> Clock:
    from ray import tune

    from service.scheduler.cluster.group_size import GroupSize
    from service.scheduler.tune.messages import TrialOrder, TrialReport
    from tests.benchmarks.training.tuning_stack import DATABASE, database, run_job
    from trainers.config import Measurement

    class Instant(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self._order = TrialOrder.from_tune(config)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._order = TrialOrder.from_tune(new_config)
            return True

        def step(self) -> dict[str, Any]:
            lr = self._order.config.optimizer.arguments["lr"]
            assert isinstance(lr, float)
            value = loss(lr)
            done = self.iteration + 1
            measured = Measurement(10 * done, 1.0, 0.01, {"validation_loss": value})
            return TrialReport("completed" if done == num_reports else "measured", measured).to_tune()

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {}

        def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
            pass

    clock = Clock()
    space = {"type": "float", "name": "lr", "low": LOW, "high": HIGH, "scale": "log", "default": 1e-2}
    specification = {
        "workload": {"name": "digits-mlp"},
        "search_space": {"optimizer": "adamw", "parameters": [space]},
        "budget": {"num_trials": num_trials},
        "training": {"num_steps": 10 * num_reports, "evaluate_every": 10},
        "sampler": {"name": sampler},
        "pruner": {"name": None if sampler == "auto" else "none"},
        "baseline": None,
        "confirmation": None,
    }
    with database(directory) as store:
        size = GroupSize(1, 1.0, 0.0)
        run_job(
            store,
            specification,
            tune.with_resources(Instant, tune.PlacementGroupFactory([size.rank_bundle])),
            size=size,
            num_parallel=NUM_PARALLEL,
            directory=directory,
            callbacks=[_ticking(clock)],
        )
    clock.database_bytes = (directory / DATABASE).stat().st_size
    return clock


def run_stock(num_trials: int, num_reports: int, sampler: str, directory: Path) -> Clock:
    from optuna.samplers import RandomSampler, TPESampler
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    class Instant(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self._lr = config["lr"]

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._lr = new_config["lr"]
            return True

        def step(self) -> dict[str, Any]:
            return {"validation_loss": loss(self._lr), "done": self.iteration + 1 == num_reports}

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {}

        def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
            pass

    clock = Clock()
    tune.Tuner(
        tune.with_resources(Instant, tune.PlacementGroupFactory([{"CPU": 1.0}])),
        param_space={"lr": tune.loguniform(LOW, HIGH)},
        tune_config=tune.TuneConfig(
            metric="validation_loss",
            mode="min",
            search_alg=OptunaSearch(sampler=RandomSampler(seed=0) if sampler == "random" else TPESampler(seed=0)),
            num_samples=num_trials,
            max_concurrent_trials=NUM_PARALLEL,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(storage_path=str(directory / "tune"), verbose=0, callbacks=[_ticking(clock)]),
    ).fit()
    return clock


def child(side: str, num_trials: int, num_reports: int, sampler: str, directory: Path) -> None:
    """Runs one side in this process and prints what its clock noted."""
    import ray

    logging.disable(logging.WARNING)
    ray.init(
        address="local",
        num_cpus=NUM_PARALLEL,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 * 2**20,
        _temp_dir=str(directory / "ray"),
    )
    clock = (run_ours if side == "ours" else run_stock)(num_trials, num_reports, sampler, directory)
    assert len(clock.ended) == num_trials, len(clock.ended)
    print(json.dumps(clock.as_json()), flush=True)
    ray.shutdown()


def measure(side: str, num_trials: int, num_reports: int, sampler: str) -> dict[str, float]:
    """Milliseconds per trial and megabytes of one side."""
    from tests.benchmarks.training.tuning_stack import ENVIRONMENT

    environment = {**os.environ, **ENVIRONMENT}
    if side == "stock":
        del environment["TUNE_GLOBAL_CHECKPOINT_S"]  # what nobody sets
    directory = Path(tempfile.mkdtemp(prefix="scale-", dir="/tmp"))
    command = [sys.executable, "-m", "tests.benchmarks.service.scheduler_scale", "--child", side]
    command += ["--num-trials", str(num_trials), "--num-reports", str(num_reports), "--sampler", sampler]
    command += ["--directory", str(directory)]
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    noted = json.loads(done.stdout.splitlines()[-1])
    ended, cpu, rss = noted["ended"][DISCARDED:], noted["cpu"][DISCARDED:], noted["rss"]
    gaps = [1000 * (later - earlier) for earlier, later in pairwise(ended)]
    tenth = max(1, len(gaps) // 10)
    first, last = statistics.fmean(gaps[:tenth]), statistics.fmean(gaps[-tenth:])
    return {
        "milliseconds_per_trial": statistics.fmean(gaps),
        "cpu_milliseconds_per_trial": 1000 * (cpu[-1] - cpu[0]) / len(gaps),
        "first_tenth": first,
        "last_tenth": last,
        "growth": last / first,
        "megabytes": rss[-1] / 2**20,
        "database_kilobytes_per_trial": noted["database"][0] / 2**10 / num_trials,
        "kilobytes_per_trial": (rss[-1] - rss[0]) / 2**10 / (50 * max(1, len(rss) - 1)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-trials", type=int, default=1000)
    parser.add_argument("--num-reports", type=int, default=1, help="measurements of each trial")
    parser.add_argument("--sampler", choices=["tpe", "random", "auto"], default="tpe", help="auto: the peer has TPE")
    parser.add_argument("--sides", default="ours,stock")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    parser.add_argument("--child", choices=["ours", "stock"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.num_trials < 100 or options.num_reports < 1:
        parser.error("--num-trials must be at least 100, --num-reports at least 1")
    if options.child is not None:
        child(options.child, options.num_trials, options.num_reports, options.sampler, options.directory)
        return
    asked = options.num_trials, options.num_reports, options.sampler
    sides = {}
    for side in options.sides.split(","):
        sides[side] = measure(side, *asked)
        print(f"{side}: {json.dumps(sides[side])}", file=sys.stderr, flush=True)  # the other side can take an hour
    names = list(next(iter(sides.values())))
    report(
        "scheduler_scale",
        columns=("side", *(name.replace("_", " ") for name in names)),
        rows=[(side, *found.values()) for side, found in sides.items()],
        figures={**dict(zip(("num_trials", "num_reports", "sampler"), asked, strict=True)), **sides},
        ratios={
            **{f"{side}_growth": found["growth"] for side, found in sides.items()},
            **(
                {"stock_over_ours": sides["stock"]["milliseconds_per_trial"] / sides["ours"]["milliseconds_per_trial"]}
                if len(sides) == 2
                else {}
            ),
        },
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
