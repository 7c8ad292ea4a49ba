"""Worker processes, real ones: order, hand-over, death, end."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.support.elsewhere import PYTHON_ELSEWHERE
from tests.support.file_size_limit import files_end_at
from tests.support.trainers import readers
from tests.support.trainers.worker_processes import worker_processes
from tests.support.waiting import PATIENCE_SECONDS, started, wait_until
from trainers.data.loading import MAX_DEATHS, WorkersKeepDying, read_in_order
from trainers.data.loading_worker import TASKS_AHEAD

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    num_descriptors = psutil.Process().num_fds()
    yield
    assert worker_processes() == []
    assert psutil.Process().num_fds() == num_descriptors


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_results_come_in_order_and_then_end(num_workers: int) -> None:
    assert list(read_in_order(readers.square, range(20), num_workers=num_workers)) == [task**2 for task in range(20)]
    assert list(read_in_order(readers.square, [], num_workers=num_workers)) == []


def test_slow_tasks_change_nothing_of_the_order_and_all_workers_work() -> None:
    results = list(read_in_order(readers.uneven, range(24), num_workers=3))
    assert [task for task, _ in results] == list(range(24))
    processes = {process for _, process in results}
    assert len(processes) == 3
    assert os.getpid() not in processes


@pytest.mark.parametrize("num_workers", [0, 2])
def test_arrays_arrive_as_they_are_and_can_be_written_to(num_workers: int) -> None:
    for task, result in enumerate(read_in_order(readers.arrays, range(6), num_workers=num_workers)):
        for name, expected in readers.arrays(task).items():
            np.testing.assert_array_equal(result[name], expected)
            assert getattr(result[name], "dtype", None) == getattr(expected, "dtype", None)
        result["bytes"][:] = 0


def test_an_answer_of_nothing_but_empty_arrays_arrives() -> None:
    shapes = [result.shape for result in read_in_order(readers.only_empty_arrays, range(5), num_workers=2)]
    assert shapes == [(0, task) for task in range(5)]


def test_arrays_outlive_the_worker_processes() -> None:
    results = list(read_in_order(readers.arrays, range(4), num_workers=2))
    np.testing.assert_array_equal(results[3]["bytes"], readers.arrays(3)["bytes"])


def test_no_more_is_read_ahead_than_is_said() -> None:
    tasks = count()
    results = read_in_order(readers.square, tasks, num_workers=2)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    # Three are given, and each of two workers has two more.
    assert next(tasks) == 3 + 2 * TASKS_AHEAD
    results.close()


def test_workers_are_light_and_do_not_write_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(read_in_order(readers.prints, range(2), num_workers=1)) == [False, False]  # no torch
    output = capfd.readouterr()
    assert output.out == ""
    assert "noise" in output.err


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_is_raised_in_its_turn(num_workers: int) -> None:
    results = read_in_order(readers.fail_at_5, range(9), num_workers=num_workers)
    assert list(islice(results, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(LookupError, match="nothing at 5") as caught:
        next(results)
    if num_workers > 0:
        assert "In a worker process:\nTraceback" in caught.value.__notes__[0]
        assert 'raise LookupError(f"nothing at {task}")' in caught.value.__notes__[0]
    assert list(results) == []


def test_an_error_that_cannot_be_sent_is_described() -> None:
    with pytest.raises(RuntimeError, match="Unpicklable: one") as caught:
        next(read_in_order(readers.fail_in_an_unpicklable_way, count(), num_workers=1))
    assert "fail_in_an_unpicklable_way" in caught.value.__notes__[0]


def test_a_reader_that_workers_cannot_build_says_so() -> None:
    with pytest.raises(LookupError, match="no such thing here"):
        next(read_in_order(readers.Fragile(), count(), num_workers=2))


def test_a_reader_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError), match=r"(?i)pickle|local object"):
        next(read_in_order(lambda task: task, count(), num_workers=1))


@pytest.mark.parametrize("num_killed", [1, 2])
def test_killed_workers_are_replaced_and_nothing_is_lost(num_killed: int, caplog: pytest.LogCaptureFixture) -> None:
    num_restarts = count()
    results = read_in_order(readers.pid_and_task, range(40), num_workers=2, on_restart=lambda: next(num_restarts))
    found = list(islice(results, 6))
    killed = worker_processes()[:num_killed]
    for worker in killed:
        worker.kill()
    found += list(results)
    assert [task for _, task in found] == list(range(40))
    assert next(num_restarts) == num_killed
    assert len({process for process, _ in found}) == 2 + num_killed
    assert [record.getMessage() for record in caplog.records] == [
        "a worker process ended unasked, by SIGKILL; another takes its place"
    ] * num_killed


def test_each_task_may_cost_a_worker(tmp_path: Path) -> None:
    tasks = ((number, str(tmp_path)) for number in range(8))
    restarts: list[int] = []
    results = read_in_order(readers.die_half_of_the_time, tasks, num_workers=2, on_restart=lambda: restarts.append(1))
    assert list(results) == list(range(8))
    assert len(restarts) == 8


def test_a_task_that_kills_every_worker_is_named() -> None:
    results = read_in_order(readers.die_at_5, range(9), num_workers=2)
    assert list(islice(results, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(
        WorkersKeepDying, match=r"3 worker processes ended over the same task, the last one by SIGKILL: 5"
    ):
        next(results)


def test_a_reader_that_calls_exit_is_named() -> None:
    with pytest.raises(WorkersKeepDying, match=r"the last one with status 1: 5"):
        list(read_in_order(readers.exit_at_5, range(9), num_workers=1))


def test_workers_that_die_over_and_over_end_the_loading(tmp_path: Path) -> None:
    tasks = ((number, str(tmp_path)) for number in count())
    results = read_in_order(readers.die_half_of_the_time, tasks, num_workers=2)
    with pytest.raises(WorkersKeepDying, match=f"{MAX_DEATHS} worker processes ended unasked, the last one by SIGKILL"):
        list(results)


def test_close_ends_busy_workers_at_once() -> None:
    results = read_in_order(readers.never_ends, count(), num_workers=2)
    next(results)
    assert len(worker_processes()) == 2
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < PATIENCE_SECONDS  # each sleeps a thousand
    assert worker_processes() == []


def test_workers_end_by_themselves_when_the_trainer_is_killed() -> None:
    program = (
        "from itertools import count\n"
        "from tests.support.trainers import readers\n"
        "from trainers.data.loading import read_in_order\n"
        "for process, _ in read_in_order(readers.pid_and_task, count(), num_workers=2):\n"
        "    print(process, flush=True)\n"
    )
    with started([sys.executable, "-c", program], stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        processes = {int(trainer.stdout.readline()) for _ in range(8)}
        trainer.send_signal(signal.SIGKILL)
    assert len(processes) == 2
    wait_until(lambda: not any(psutil.pid_exists(process) for process in processes), "the workers' end")


def test_ctrl_c_is_left_to_the_trainer() -> None:
    results = read_in_order(readers.pid_and_task, count(), num_workers=1)
    process, _ = next(results)
    os.kill(process, signal.SIGINT)
    assert [next(results) for _ in range(4)] == [(process, task) for task in range(1, 5)]
    results.close()


def test_two_streams_at_once_keep_apart() -> None:
    streams: list[Any] = [read_in_order(readers.square, range(n, n + 9), num_workers=2) for n in (0, 100)]
    both = list(zip(*streams, strict=True))
    assert both == [(task**2, (100 + task) ** 2) for task in range(9)]


@pytest.mark.parametrize(("platform", "num_kept_open"), [("linux", 0), ("darwin", TASKS_AHEAD)])
def test_without_memory_files_arrays_arrive_as_they_are(
    platform: str, num_kept_open: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.delattr(socket, "MSG_CMSG_CLOEXEC", raising=False)
    monkeypatch.syspath_prepend(PYTHON_ELSEWHERE)
    monkeypatch.setenv("TEST_PLATFORM", platform)
    open_files = []
    results = read_in_order(readers.arrays_and_num_open_files, range(9), num_workers=1)
    for task, (result, num_open) in enumerate(results):
        for name, expected in readers.arrays(task).items():
            np.testing.assert_array_equal(result[name], expected)
        result["bytes"][:] = 0
        open_files.append(num_open)
    assert max(open_files) - min(open_files) == open_files[-1] - open_files[0] == num_kept_open


def test_a_result_for_which_there_is_no_room_is_an_error_in_its_turn() -> None:
    with files_end_at(2**19):
        results = read_in_order(readers.large_at_5, range(6), num_workers=2)
        assert [len(next(results)) for _ in range(5)] == [2**10] * 5
        with pytest.raises(OSError, match="File too large"):
            next(results)
