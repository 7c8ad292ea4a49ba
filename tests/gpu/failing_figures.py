"""Figures that fail in every way, taken as any others: `python -m tests.gpu.failing_figures FILE PIDS`.

Two stages: FILE is the first's, beside it `late.json` that of one whose time is up in the middle of a figure. PIDS is
a file that lists processes which figures have started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.gpu.results import Comparison, Figure, Results
from tests.gpu.runner import Task, take

SECONDS = 3.0
"""Until something that hangs is ended."""


def right() -> Comparison:
    return Comparison(1e-7, 1e-5)


def wrong() -> Comparison:
    return Comparison(float("nan"), 1e-5)


def hangs(pids: Path) -> Comparison:
    """Waits for a process that it has started, in a session of its own, and that never ends."""
    with subprocess.Popen(["sleep", "100000"], start_new_session=True) as sleeper:
        with pids.open("a") as file:
            file.write(f"{os.getpid()}\n{sleeper.pid}\n")
        sleeper.wait()
    return right()


def dies() -> Comparison:
    os._exit(9)


def raises() -> Comparison:
    raise ValueError("of a figure")


def misses_a_package() -> Comparison:
    import a_package_that_is_nowhere  # type: ignore[import-not-found]  # noqa: F401

    return right()


def environment() -> dict[str, object]:
    return {"device": "none"}


def main() -> None:
    path, pids = map(Path, sys.argv[1:])

    def read(_: Figure) -> None:
        """Prints how many figures the file has after each of them."""
        print(len(json.loads(path.read_text())["figures"]))

    tasks = [
        Task("good", "before", right),
        Task("bad", "hangs", hangs, (pids,), limit_seconds=SECONDS),
        Task("bad", "dies", dies),
        Task("bad", "raises", raises),
        Task("bad", "misses", misses_a_package),
        Task("bad", "wrong", wrong),
        Task("good", "alone", right, is_alone=True),
        Task("good", "after", right),
    ]
    take(tasks, Results(path, "failing", {}), deadline=time.monotonic() + 1e4, environment=environment, tell=read)
    late = [Task("good", "begun", hangs, (pids,), limit_seconds=1e4), Task("good", "not begun", right)]
    results = Results(path.with_name("late.json"), "late", {})
    take(late, results, deadline=time.monotonic() + SECONDS, environment=environment)


if __name__ == "__main__":
    main()
