"""Functions that worker processes run in the tests of loading; light to import, because each of them does."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def square(task: int) -> int:
    return task * task


def uneven(task: int) -> tuple[int, int]:
    """Every third task takes long; also returns the process."""
    time.sleep(0.05 if task % 3 == 0 else 0)
    return task, os.getpid()


def pid_and_task(task: int) -> tuple[int, int]:
    time.sleep(0.02)
    return os.getpid(), task


def arrays(task: int) -> dict[str, Any]:
    random = np.random.default_rng(task)
    return {
        "task": task,
        "bytes": random.integers(0, 256, (task, 5, 3), dtype=np.uint8),
        "every_other": random.standard_normal((6, task))[::2, ::-1],
        "transposed": random.standard_normal((4, 3), dtype=np.float32).T,
        "empty": np.empty((0, 7), dtype=np.int64),
        "scalar": np.float64(0.5),
    }


def arrays_and_num_open_files(task: int) -> tuple[dict[str, Any], int]:
    return arrays(task), len(list(Path("/dev/fd").iterdir()))


def large_at_5(task: int) -> np.ndarray[Any, Any]:
    return np.zeros(2**20 if task == 5 else 2**10, dtype=np.uint8)


def only_empty_arrays(task: int) -> np.ndarray[Any, Any]:
    return np.empty((0, task))


def fail_at_5(task: int) -> int:
    if task == 5:
        raise LookupError(f"nothing at {task}")
    return task


class Unpicklable(Exception):
    """An error that cannot be sent as it is."""

    def __init__(self, one: str, another: str) -> None:
        super().__init__(one)


def fail_in_an_unpicklable_way(_task: int) -> int:
    raise Unpicklable("one", "another")


def exit_at_5(task: int) -> int:
    if task == 5:
        sys.exit("enough")
    return task


def die_at_5(task: int) -> int:
    if task == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def die_half_of_the_time(task: tuple[int, str]) -> int:
    """Each task's first reader dies; the file of its name remembers."""
    number, directory = task
    try:
        (Path(directory) / str(number)).touch(exist_ok=False)
    except FileExistsError:
        return number
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def never_ends(task: int) -> int:
    if task > 0:
        time.sleep(1000)
    return os.getpid()


def prints(_task: int) -> bool:
    print("\x00\xff noise", flush=True)  # noqa: T201
    os.write(1, b"\x00\xff noise")
    return "torch" in sys.modules


class Fragile:
    """Can be pickled, and not read again."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return _refuse, ("no such thing here",)

    def __call__(self, task: int) -> int:
        raise AssertionError


def _refuse(reason: str) -> None:
    raise LookupError(reason)
