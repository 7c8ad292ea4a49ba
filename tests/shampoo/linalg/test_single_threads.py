"""The order of jobs, the threads that do them, and the settings of those."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from shampoo.linalg import native_threads
from shampoo.linalg.native_threads import is_settable, one_thread
from shampoo.linalg.single_threads import Jobs
from tests.support.waiting import PATIENCE_SECONDS


def _noting(seen: list[str], name: str) -> Callable[[], None]:
    return lambda: seen.append(name)


def test_jobs_begin_in_the_order_of_their_ranks_and_then_as_they_were_added() -> None:
    seen: list[str] = []
    jobs = Jobs()
    for name, rank in (("c", 1), ("a", 0), ("d", 1), ("b", 0)):
        jobs.add(_noting(seen, name), rank=rank)

    jobs.run(1)

    assert seen == ["a", "b", "c", "d"]


def test_the_calling_thread_and_others_share_the_jobs() -> None:
    # Each waits for the two others, so that no thread can do two.
    together = threading.Barrier(3, timeout=PATIENCE_SECONDS)
    seen: set[int] = set()

    def job() -> None:
        seen.add(threading.get_ident())
        together.wait()

    jobs = Jobs()
    for _ in range(3):
        jobs.add(job)
    jobs.run(3)

    assert len(seen) == 3
    assert threading.get_ident() in seen


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_job_in_turn_begins_when_all_before_it_are_done(num_threads: int) -> None:
    seen: list[str] = []
    jobs = Jobs()
    first = [_noting(seen, f"first {number}") for number in range(5)]
    jobs.add_in_turn(first, _noting(seen, "then"), ranks=(1, 0))
    jobs.add_in_turn([], _noting(seen, "at once"), ranks=(1, 0))

    jobs.run(num_threads)

    assert sorted(seen) == ["at once", *sorted(f"first {number}" for number in range(5)), "then"]
    assert seen.index("then") > max(seen.index(name) for name in seen if name.startswith("first"))


def test_threads_wait_for_jobs_that_running_ones_may_add() -> None:
    together = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    jobs = Jobs()

    def add_two() -> None:
        for _ in range(2):
            jobs.add(lambda: together.wait() and None)

    jobs.add(add_two)
    jobs.run(2)  # the second thread has nothing at first, and without it nobody passes the barrier

    assert together.n_waiting == 0


@pytest.mark.parametrize("num_threads", [1, 2])
def test_after_a_failure_nothing_begins_and_it_is_raised(num_threads: int) -> None:
    seen: list[str] = []
    jobs = Jobs()

    def fail() -> None:
        raise ArithmeticError("of a job")

    def begin() -> None:
        seen.append("began")
        threading.Event().wait(0.01)

    jobs.add(fail)
    for number in range(50):
        jobs.add(begin, rank=1 + number)

    with pytest.raises(ArithmeticError, match="of a job"):
        jobs.run(num_threads)

    assert len(seen) < 50


@pytest.mark.parametrize("num_threads", [1, 3])
def test_jobs_compute_with_one_thread_without_gradients_and_settings_stay(num_threads: int) -> None:
    before = torch.get_num_threads()
    seen: list[tuple[int, bool]] = []
    of_new_threads: list[int] = []

    def job() -> None:
        seen.append((torch.get_num_threads(), torch.is_grad_enabled()))
        with ThreadPoolExecutor(1) as pool:
            of_new_threads.append(pool.submit(torch.get_num_threads).result())

    jobs = Jobs()
    for _ in range(6):
        jobs.add(job)
    torch.set_num_threads(3)
    try:
        jobs.run(num_threads)
        assert seen == [(1, False)] * 6
        assert of_new_threads == [3] * 6
        assert torch.get_num_threads() == 3
        assert torch.is_grad_enabled()
    finally:
        torch.set_num_threads(before)


def test_where_no_number_can_be_set_the_calling_thread_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_threads, "_functions", lambda: None)
    seen: list[tuple[int, int]] = []
    jobs = Jobs()
    for _ in range(4):
        jobs.add(lambda: seen.append((threading.get_ident(), torch.get_num_threads())))

    jobs.run(3)

    assert seen == [(threading.get_ident(), torch.get_num_threads())] * 4
    with pytest.raises(RuntimeError, match="for the whole process alone"), one_thread():
        pass


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts the threads of the process in /proc")
def test_threads_of_openmp_end_before_jobs_begin_and_start_again_after_them() -> None:
    script = """
import os, torch
from shampoo.linalg.single_threads import Jobs
def threads():
    return set(os.listdir("/proc/self/task"))
torch.set_num_threads(3)
before = threads()
A = torch.ones(1000, 1000)
of_openmp = threads() - before
assert len(of_openmp) == 2
jobs, seen = Jobs(), []
for _ in range(2):
    jobs.add(lambda: seen.append(threads()))
jobs.run(2)
assert not of_openmp & seen[-1]
begun = threads()
assert A.mul_(2).sum() == 2_000_000
assert len(threads() - begun) == 2
"""
    subprocess.run([sys.executable, "-c", script], timeout=PATIENCE_SECONDS, check=True)


def test_here_the_number_of_a_thread_can_be_set() -> None:
    assert is_settable()
