"""Sharing a stack out over threads, and leaving the process's own setting alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from shampoo.linalg.per_matrix import per_matrix
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def three_threads() -> Iterator[None]:
    """Threads to share out to, which other tests may have taken away."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def _eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    values, Q = torch.linalg.eigh(A)
    return values, Q


def _num_threads_of_a_new_thread() -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def _statistics(K: int, n: int) -> Tensor:
    G = torch.randn(K, n, n, generator=torch.Generator().manual_seed(0))
    return G @ G.mT


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize(("K", "n"), [(1, 300), (2, 20), (7, 20), (7, 300), (100, 2)])
def test_a_shared_stack_gives_what_the_whole_one_gives(K: int, n: int) -> None:
    A = _statistics(K, n)
    values, Q = per_matrix(_eigh, A)
    # One thread to a matrix in both: LAPACK adds up in the same order.
    torch.set_num_threads(1)
    expected_values, expected = _eigh(A)
    torch.set_num_threads(3)
    assert torch.equal(values, expected_values)
    assert torch.equal(Q, expected)


@pytest.mark.usefixtures("three_threads")
def test_each_share_has_one_thread_and_no_gradients_while_all_others_keep_theirs() -> None:
    seen: list[tuple[int, bool]] = []
    outside: list[int] = []
    lock = threading.Lock()

    def observe(A: Tensor) -> tuple[Tensor]:
        with lock:
            seen.append((torch.get_num_threads(), torch.is_grad_enabled()))
            outside.append(_num_threads_of_a_new_thread())
        return (A,)

    per_matrix(observe, torch.zeros(6, 300, 300))
    assert seen == [(1, False)] * 6
    assert set(outside) == {3}
    assert torch.get_num_threads() == 3
    assert _num_threads_of_a_new_thread() == 3


def test_with_one_thread_the_calling_one_does_it() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        threads: list[int] = []

        def observe(A: Tensor) -> tuple[Tensor]:
            threads.append(threading.get_ident())
            return (A,)

        per_matrix(observe, torch.zeros(4, 300, 300))
        assert threads == [threading.get_ident()]
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_several_threads_at_once_get_their_own_results() -> None:
    stacks = [_statistics(4, n) for n in (10, 40, 70, 100, 260)]
    expected = [per_matrix(_eigh, A) for A in stacks]
    with ThreadPoolExecutor(5) as pool:
        for _ in range(5):
            for found, (values, Q) in zip(pool.map(lambda A: per_matrix(_eigh, A), stacks), expected, strict=True):
                assert torch.equal(found[0], values)
                assert torch.equal(found[1], Q)


@pytest.mark.usefixtures("three_threads")
def test_an_error_in_a_share_reaches_the_caller() -> None:
    def fail(A: Tensor) -> tuple[Tensor]:
        raise ArithmeticError(f"of {len(A)}")

    with pytest.raises(ArithmeticError, match="of 1"):
        per_matrix(fail, torch.zeros(3, 300, 300))


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    # The matrices are small: OpenMP itself, which PyTorch uses for large ones in the calling thread, survives no fork.
    script = """
import os, sys, torch
from shampoo.linalg.per_matrix import per_matrix
torch.set_num_threads(2)
def double(A):
    return (A * 2,)
A = torch.ones(4, 50, 50)
per_matrix(double, A)
child = os.fork()
if child == 0:
    assert torch.equal(per_matrix(double, A)[0], A * 2)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert done.stdout.strip() == "7", done.stderr


@pytest.mark.processes
@pytest.mark.usefixtures("three_threads")
def test_a_second_busy_process_does_not_make_it_collapse() -> None:
    A = _statistics(4, 128)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        torch.set_num_threads(1)
        alone = min(_seconds(A) for _ in range(5))
        torch.set_num_threads(3)
        shared = sorted(_seconds(A) for _ in range(9))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    # With LAPACK's own threads 100 times and more. Waiting for a turn on the busy cores costs some milliseconds.
    assert shared[len(shared) // 2] < 10 * alone + 0.1


def _seconds(A: Tensor) -> float:
    start = time.perf_counter()
    per_matrix(_eigh, A)
    return time.perf_counter() - start
