"""How long a rank takes to start: forked from a run's template process, and as Ray starts it by itself.

    python -m tests.benchmarks.rank_start
    python -m tests.benchmarks.rank_start --quick

From the call that starts a Ray actor to its answer, once it has imported what a rank of several needs (torch, the
training loop, what DDP imports), one after the other in turns of two local clusters. `ray_over_ours`: the ratio of the
medians; `ray_over_ours_cpu`: that of the processor time of the rank's process alone. The template's own start, which
a run has once and beside Ray's, stands among the figures as `template_cpu_seconds`. `--quick`: two starts of each.
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
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.benchmarks.report import report

SIDES = ("ours", "ray")


def measure(side: str, *, num_starts: int) -> dict[str, Any]:
    """Starts ranks in a local cluster of this process; medians of one side."""
    import psutil
    import ray

    from service.scheduler.cluster import ray_cluster
    from service.scheduler.cluster.worker_template import MODULES, WorkerTemplate

    def start_and_import() -> float:
        for module in MODULES:
            importlib.import_module(module)
        return time.process_time()

    directory = Path(tempfile.mkdtemp(prefix="rank-start-", dir="/tmp"))
    seconds, cpu_seconds, template_cpu = [], [], 0.0
    with WorkerTemplate(directory) if side == "ours" else nullcontext():
        if side == "ours":
            ray_cluster.connect(None, directory=directory)
        else:
            ray.init(address="local", include_dashboard=False, log_to_driver=False, _temp_dir=str(directory))
        rank: Any = ray.remote(max_calls=1, num_cpus=1)(start_and_import)  # each call in a process of its own
        for number in range(num_starts + 1):
            began = time.monotonic()
            cpu = ray.get(rank.remote())
            if number > 0:  # the first waits for the template, or finds files that nobody has read before
                seconds.append(time.monotonic() - began)
                cpu_seconds.append(cpu)
        if side == "ours":
            [template] = [p for p in psutil.Process().children() if "worker_template" in " ".join(p.cmdline())]
            times = template.cpu_times()
            template_cpu = times.user + times.system
    ray_cluster.leave(None)
    found = {"seconds": statistics.median(seconds), "cpu_seconds": statistics.median(cpu_seconds)}
    return {**found, "template_cpu_seconds": template_cpu}


def main() -> None:
    """Prints the medians of both sides and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="measured starts of each side and turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    num_starts, num_turns = (2, 1) if options.quick else (options.starts, options.turns)
    if options.side is not None:
        print(json.dumps(measure(options.side, num_starts=num_starts)))
        return
    environment = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_prestart_worker_first_driver": "0",
    }
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(num_turns):
        for side in SIDES:
            command = [sys.executable, "-m", __spec__.name, "--side", side, "--starts", str(num_starts)]
            told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            found[side].append(json.loads(told.splitlines()[-1]))
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
