"""How long a rank takes to start: forked from the template of a launched run, and as Ray starts it by itself.

    python -m tests.benchmarks.service.rank_start
    python -m tests.benchmarks.service.rank_start --quick

From the call that starts a Ray actor to its answer, once it has imported what a rank of several needs (torch, the
training loop, what DDP imports), one after the other in turns of two local clusters. `ray_over_ours`: the ratio of the
medians; `ray_over_ours_cpu`: that of the processor time of the rank's process alone. The launcher's own start, which
a worker has once, stands among the figures as `launcher_cpu_seconds`. `--quick`: two starts of each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from service.scheduler.cluster.run_environment import DIRECTORY_VARIABLE
from service.scheduler.cluster.worker_template import MODULES
from service.scheduler.launcher import Launcher
from service.scheduler.run_process import held_pipe
from tests.benchmarks.report import report

SIDES = ("ours", "ray")


def measure(side: str, directory: Path, *, num_starts: int) -> dict[str, float]:
    """Starts ranks in a local cluster of this process; medians of one side."""
    import ray

    from service.scheduler.cluster import ray_cluster

    def start_and_import() -> float:
        for module in MODULES:
            importlib.import_module(module)
        return time.process_time()

    seconds, cpu_seconds = [], []
    if side == "ours":
        ray_cluster.connect(None, directory=directory)
    else:
        ray.init(address="local", include_dashboard=False, log_to_driver=False, _temp_dir=str(directory))
    rank: Any = ray.remote(max_calls=1, num_cpus=1)(start_and_import)  # each call in a process of its own
    for number in range(num_starts + 1):
        began = time.monotonic()
        cpu = ray.get(rank.remote())
        if number > 0:  # the first finds files that nobody has read before
            seconds.append(time.monotonic() - began)
            cpu_seconds.append(cpu)
    ray_cluster.leave(None)
    return {"seconds": statistics.median(seconds), "cpu_seconds": statistics.median(cpu_seconds)}


def of_launched_run(arguments: Sequence[str], environment: Mapping[str, str], directory: Path) -> dict[str, float]:
    """Has a launcher run this module; what it tells, and what the launcher has taken."""
    told = directory / "told"
    with Launcher(environment) as launcher, told.open("wb") as output, held_pipe() as stdin:
        variables = {**os.environ, **environment, DIRECTORY_VARIABLE: str(directory)}
        run = launcher.launch(__spec__.name, arguments, environment=variables, stdin=stdin, output=output.fileno())
        assert run is not None, "nothing can be forked"
        times = psutil.Process(psutil.Process(run.pid).ppid()).cpu_times()
        assert run.wait() == 0, told.read_text()
    found: dict[str, float] = json.loads(told.read_text().splitlines()[-1])
    return {**found, "launcher_cpu_seconds": times.user + times.system}


def of_process(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Runs this module in a process of its own; what it tells."""
    command = [sys.executable, "-m", __spec__.name, *arguments]
    told = subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(told.splitlines()[-1])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the medians of both sides and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="measured starts of each side and turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    num_starts, num_turns = (2, 1) if options.quick else (options.starts, options.turns)
    if options.side is not None:
        print(json.dumps(measure(options.side, options.directory, num_starts=num_starts)))
        return
    environment = {
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_prestart_worker_first_driver": "0",
    }
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(num_turns):
        for side in SIDES:
            with tempfile.TemporaryDirectory(prefix="rank-start-", dir="/tmp", ignore_cleanup_errors=True) as directory:
                what = ["--side", side, "--starts", str(num_starts), "--directory", directory]
                is_launched = side == "ours"
                found[side].append(
                    of_launched_run(what, environment, Path(directory))
                    if is_launched
                    else of_process(what, environment)
                )
    medians = {
        side: {name: statistics.median(turn[name] for turn in found[side]) for name in found[side][0]} for side in SIDES
    }
    ours, ray_alone = medians["ours"], medians["ray"]
    report(
        "rank_start",
        columns=("side", "s", "CPU s of the rank"),
        rows=[(side, medians[side]["seconds"], medians[side]["cpu_seconds"]) for side in SIDES],
        figures={"num_starts": num_starts, "num_turns": num_turns, **medians},
        ratios={
            "ray_over_ours": ray_alone["seconds"] / ours["seconds"],
            "ray_over_ours_cpu": ray_alone["cpu_seconds"] / ours["cpu_seconds"],
        },
    )


if __name__ == "__main__":
    main()
