"""The time until a process answers: the API its first request, the command line `--version` and `--help`.

    python -m tests.benchmarks.service.api_start

Medians over some starts, each of a new process, after one that is not counted. The API has an empty SQLite database;
it is asked for a list of jobs as soon as it listens.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from service.store.migrate import migrate
from service.store.session import Database
from tests.benchmarks.api.process import serving
from tests.benchmarks.report import report

FIRST_REQUEST = "/v1/jobs"


def start_of_the_api(database_url: str, directory: Path) -> tuple[float, float]:
    """Wall and processor seconds until the first answer."""
    began = time.monotonic()
    with serving(database_url, directory) as api:
        httpx.get(api.address + FIRST_REQUEST, trust_env=False).raise_for_status()
        return time.monotonic() - began, api.own_seconds()


def command(*arguments: str) -> tuple[float, float]:
    """Wall and processor seconds of a whole command."""
    before, began = os.times(), time.monotonic()
    subprocess.run([sys.executable, "-m", "service", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=5, help="starts of each (default: 5)")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="api-start-") as directory:
        url = f"sqlite:///{Path(directory) / 'start.sqlite3'}"
        database = Database(url)
        migrate(database)
        database.close()
        measured: dict[str, Callable[[], tuple[float, float]]] = {
            "first_answer": lambda: start_of_the_api(url, Path(directory)),
            "version": lambda: command("--version"),
            "help": lambda: command("--help"),
        }
        figures: dict[str, object] = {"starts": options.starts}
        rows: list[tuple[str | float, ...]] = []
        for name, start in measured.items():
            found = [start() for _ in range(options.starts + 1)][1:]
            wall, processor = (statistics.median(values) for values in zip(*found, strict=True))
            figures |= {f"{name}_seconds": wall, f"{name}_processor_seconds": processor}
            rows.append((name.replace("_", " "), wall, processor))
    report(
        "api_start",
        columns=("", "seconds", "processor s"),
        rows=rows,
        figures=figures,
        ratios={},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
