"""The time of a dry run: the first of an API process, which its warm process has to import for, and those after it.

    python -m tests.benchmarks.service.dry_run --workload digits-mlp --busy 4

Starts an API of its own on an empty database and asks it what a job would cost. Processor seconds are those of the
API and of all that it starts. `--busy` lets so many processes compute beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from service.store.migrate import migrate
from service.store.session import Database
from tests.benchmarks.api.process import serving
from tests.benchmarks.report import report

PATIENCE_SECONDS = 120.0


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that compute."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", default="digits-mlp", help="workload of the job (default: digits-mlp)")
    parser.add_argument("--options", type=json.loads, default={}, help="options of the workload, in JSON")
    parser.add_argument("--questions", type=int, default=10, help="questions after the first (default: 10)")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside it (default: 0)")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()

    job = {"workload": {"name": options.workload, "options": options.options}, "training": {"num_steps": 1000}}
    walls: list[float] = []
    processor: list[float] = []
    with tempfile.TemporaryDirectory(prefix="dry-run-") as directory, neighbours(options.busy):
        url = f"sqlite:///{Path(directory) / 'dry-run.sqlite3'}"
        database = Database(url)
        migrate(database)
        database.close()
        with serving(url, Path(directory)) as api:
            for _ in range(options.questions + 1):
                before, began = api.all_seconds(), time.monotonic()
                answer = httpx.post(
                    f"{api.address}/v1/jobs?dry_run=true", json=job, trust_env=False, timeout=PATIENCE_SECONDS
                )
                walls.append(time.monotonic() - began)
                processor.append(api.all_seconds() - before)
                problem = answer.raise_for_status().json()["memory"]["problem"]
                if problem is not None:
                    raise RuntimeError(f"the memory was not told: {problem}")
    warm = {"seconds": statistics.median(walls[1:]), "processor_seconds": statistics.median(processor[1:])}
    report(
        "dry_run",
        columns=("", "seconds", "longest", "processor s"),
        rows=[
            ("the first", walls[0], walls[0], processor[0]),
            (f"the {options.questions} after it", warm["seconds"], max(walls[1:]), warm["processor_seconds"]),
        ],
        figures={
            "workload": options.workload,
            "busy": options.busy,
            "first_seconds": walls[0],
            "first_processor_seconds": processor[0],
            "seconds": warm["seconds"],
            "longest_seconds": max(walls[1:]),
            "processor_seconds": warm["processor_seconds"],
        },
        ratios={"first_over_next": walls[0] / warm["seconds"]},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
