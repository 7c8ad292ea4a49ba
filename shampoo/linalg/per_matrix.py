"""A function of stacked matrices, on the CPU distributed over threads: one thread for each matrix.

Multi-threaded LAPACK and BLAS wait for their threads by spinning, and a busy neighbouring process can make this a
hundred times as slow. One thread for each matrix is immune to that, and no slower over a stack.
`tests.benchmarks.steps.busy_neighbour` measures it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from shampoo.linalg.single_threads import Jobs

Call: TypeAlias = tuple[Callable[..., tuple[Tensor, ...]], tuple[Tensor, ...]]
"""A function and the stacks it is called with."""

# Small matrices are shared out in one call for each thread. Each matrix of this many elements or more is a share of its
# own: if another process holds up a thread, the other threads take the rest of the stack. One such matrix takes
# milliseconds.
_SHARE_ELEMENTS = 256 * 256


def per_matrix(function: Callable[..., tuple[Tensor, ...]], *stacks: Tensor) -> tuple[Tensor, ...]:
    """The result of `function(*stacks)`, of stacks (K, ...) of K equally shaped matrices each.

    `function` treats every matrix of the stack alone and gives tensors (K, ...). On the CPU it is called on shares of
    the stack, in `torch.get_num_threads()` threads that each compute with one thread; elsewhere once, here. It runs
    without gradients. Safe to call from several threads at once. In a forked process it starts its own threads. But if
    the parent process has computed with OpenMP, PyTorch hangs in the next large operation of the forked one, such as
    joining the shares of a large stack.
    """
    (result,) = per_matrix_together([(function, stacks)])
    return result


def per_matrix_together(calls: Sequence[Call]) -> list[tuple[Tensor, ...]]:
    """The results of `per_matrix` for several calls that share the threads. If they ran one after the other, all
    threads but one would wait for the last matrix of each call."""
    num_threads = torch.get_num_threads()
    if num_threads == 1 or any(stacks[0].device.type != "cpu" for _, stacks in calls):
        return [solve(call) for call in calls]
    parts = [shares(call, num_threads) for call in calls]
    jobs, results = Jobs(), [Parts(len(of_call)) for of_call in parts]
    for of_call, result in zip(parts, results, strict=True):
        for index, part in enumerate(of_call):
            jobs.add(functools.partial(result.solve, index, part))
    jobs.run(min(num_threads, sum(map(len, parts))))
    return [result.joined() for result in results]


class Parts:
    """The result of a call whose shares are solved in several threads."""

    def __init__(self, num_shares: int) -> None:
        self._found: dict[int, tuple[Tensor, ...]] = {}
        self._num_shares = num_shares

    def solve(self, index: int, share: Call) -> None:
        """Solves one share."""
        self._found[index] = solve(share)

    def joined(self) -> tuple[Tensor, ...]:
        """The result of the call."""
        if self._num_shares == 1:
            return self._found[0]
        in_order = [self._found[index] for index in range(self._num_shares)]
        return tuple(torch.cat(outputs) for outputs in zip(*in_order, strict=True))


def shares(call: Call, num_threads: int) -> list[Call]:
    """The call in parts that threads can take: large matrices one by one."""
    function, stacks = call
    rows = max(1, _SHARE_ELEMENTS // max(1, math.prod(stacks[0].shape[1:])))
    num_shares = max(num_threads, math.ceil(len(stacks[0]) / rows))
    return [(function, share) for share in zip(*(stack.chunk(num_shares) for stack in stacks), strict=True)]


def solve(call: Call) -> tuple[Tensor, ...]:
    """The result of a call, in this thread."""
    function, stacks = call
    with torch.no_grad():
        return function(*stacks)
