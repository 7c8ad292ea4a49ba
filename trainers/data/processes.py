"""Preparing data in several processes: each is `python -m MODULE`, with a job on its standard input.

They are not children of `multiprocessing`. Those are either forks of a process that has threads, or import the main
module again: a user's script without a guard would start the training a second time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

Job: TypeAlias = dict[str, Any]
"""JSON-able values, and so is the result."""

REFUSED = 2
"""Exit status of a process whose job raised a ValueError; standard error has the message."""

PARENT_CHECK_SECONDS = 0.5
"""Time between looks whether the process that started this one is still there."""


def run_jobs(module: str, work: Callable[[Job], Job], jobs: Sequence[Job]) -> list[Job]:
    """The results of `work` on each job, as many at once as this process may use processors; one job is done here.

    `module` calls `serve(work)` when run; it should not import torch, which would be most of the time.

    Raises:
        ValueError: a job raised one.
        RuntimeError: a process failed otherwise, e.g. was killed; the message has the end of what it said.
    """
    if len(jobs) <= 1:
        return [work(job) for job in jobs]
    failed = threading.Event()

    def run(job: Job) -> Job:
        if failed.is_set():
            return {}  # of no interest any more
        try:
            return _run_process(module, job)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(max_workers=min(len(jobs), _num_processors())) as executor:
        futures = [executor.submit(run, job) for job in jobs]
    # The error that stopped the others comes first, whichever job it was of.
    for future in futures:
        if (error := future.exception()) is not None:
            raise error
    return [future.result() for future in futures]


def serve(work: Callable[[Job], Job]) -> int:
    """Does the job on standard input, writes its result to standard output, and gives the exit status.

    Ends at once if the process that gave the job does: a training run that is killed leaves nothing at work behind.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    try:
        result = work(json.load(sys.stdin))
    except ValueError as error:
        sys.stderr.write(str(error))
        return REFUSED
    sys.stdout.write(json.dumps(result))
    return 0


def _run_process(module: str, job: Job) -> Job:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if process.returncode == REFUSED:
        raise ValueError(process.stderr)
    if process.returncode != 0:
        said = process.stderr[-2000:]
        raise RuntimeError(f"a process of {module} ended with status {process.returncode}: {said}")
    result: Job = json.loads(process.stdout)
    return result


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)


def _num_processors() -> int:
    """The number of processors that this process may run on, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
