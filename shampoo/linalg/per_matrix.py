"""A function of stacked matrices, on the CPU shared out over threads: one thread to a matrix.

Multi-threaded LAPACK and BLAS wait for their threads by spinning, which another busy process can make a hundred times
as long. One thread to a matrix is immune, and no slower over a stack. `tests.benchmarks.steps.busy_neighbour` measures
it.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor

Call: TypeAlias = tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]
"""A function and the stacks it is called with."""

# A share of small matrices is one call; of matrices of this many elements or more each is a share of its own, so that
# a thread which another process holds up leaves the rest of the stack to its neighbours. One takes milliseconds.
_SHARE_ELEMENTS = 256 * 256


def per_matrix(function: Callable[..., tuple[Tensor, ...]], *stacks: Tensor) -> tuple[Tensor, ...]:
    """The result of `function(*stacks)`, of stacks (K, ...) of K equally shaped matrices each.

    `function` treats every matrix of the stack alone and gives tensors (K, ...). On the CPU it is called on shares of
    the stack, in as many threads as `torch.get_num_threads()`, each of which computes with one thread; elsewhere once,
    here. It runs without gradients. Safe to call from several threads at once, and in a forked process.
    """
    (result,) = per_matrix_together([(function, stacks)])
    return result


def per_matrix_together(calls: Sequence[Call]) -> list[tuple[Tensor, ...]]:
    """The results of `per_matrix` for calls that share the threads: one after the other, the last matrix of
    each would keep all threads but one waiting."""
    num_threads = torch.get_num_threads()
    if num_threads == 1 or any(stacks[0].device.type != "cpu" for _, stacks in calls):
        return [solve(call) for call in calls]
    parts = [shares(call, num_threads) for call in calls]
    done = single_threads(num_threads).map(solve, itertools.chain.from_iterable(parts))
    return [joined([next(done) for _ in of_call]) for of_call in parts]


def shares(call: Call, num_threads: int) -> list[Call]:
    """The call in parts that threads can take: large matrices one by one."""
    function, stacks = call
    rows = max(1, _SHARE_ELEMENTS // max(1, math.prod(stacks[0].shape[1:])))
    num_shares = max(num_threads, math.ceil(len(stacks[0]) / rows))
    return [(function, share) for share in zip(*(stack.chunk(num_shares) for stack in stacks), strict=True)]


def joined(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The result of a call, of those of its shares."""
    return parts[0] if len(parts) == 1 else tuple(torch.cat(outputs) for outputs in zip(*parts, strict=True))


def solve(call: Call) -> tuple[Tensor, ...]:
    """The result of a call, in this thread."""
    function, stacks = call
    with torch.no_grad():
        return function(*stacks)


def single_threads(num_threads: int) -> ThreadPoolExecutor:
    """Threads that compute with one thread each and without gradients, all of them started; kept, because each costs a
    setting that must be put back."""
    process_id = os.getpid()
    # Two threads that ask for the first time at once would each start a pool, one of which nobody would use.
    with _starting.setdefault(process_id, threading.Lock()):
        return _threads(process_id, num_threads)


_starting: dict[int, threading.Lock] = {}
"""By process, held while a pool starts: a forked child inherits the parent's lock, but no thread to release it."""


@cache
def _threads(process_id: int, num_threads: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """The process is part of the key: a forked child inherits the pool but none of its threads."""
    pool = ThreadPoolExecutor(
        num_threads, "shampoo-matrices", initializer=_compute_with_one_thread, initargs=(threading.Lock(),)
    )
    # All start here: one that started beside later work would change, for a moment, what others' threads begin with.
    all_started = threading.Barrier(num_threads)
    try:
        started = [pool.submit(all_started.wait) for _ in range(num_threads)]
    except RuntimeError:  # there is no room for so many
        all_started.abort()
        raise
    wait(started)
    return pool


def _compute_with_one_thread(one_at_a_time: threading.Lock) -> None:
    torch.set_grad_enabled(False)  # each thread has its own gradient mode, on when it starts
    # PyTorch, OpenMP and MKL keep the number of threads per calling thread, but torch.set_num_threads also makes it
    # what threads that start later begin with. The default is known to a thread that has just started, as this one
    # has, and can be put back without a change to this one only from another.
    with one_at_a_time:
        default = torch.get_num_threads()
        torch.set_num_threads(1)
        put_back = threading.Thread(target=torch.set_num_threads, args=(default,))
        put_back.start()
        put_back.join()
