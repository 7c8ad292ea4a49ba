"""The threads in which an operation of PyTorch computes on the CPU: those of OpenMP, and the number that MKL takes.

`torch.set_num_threads` sets the number, too, but it also changes the number for threads that start later. And in the
whole process it keeps MKL from using fewer threads where that is faster: another optimizer's step took four times as
long.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch

from shampoo.torch_internals import EXTENSION_FILE

_SOFT = 1
"""`omp_pause_soft` of OpenMP 5.0: settings and data of the threads are kept."""


@dataclass(frozen=True, slots=True)
class _Functions:
    """Functions of the libraries that PyTorch is linked to, whatever their names."""

    set_num_threads: Callable[[int], object]
    """`omp_set_num_threads`: of the calling thread alone."""
    pause_resources: Callable[[int], object]
    """`omp_pause_resource_all`."""
    set_num_mkl_threads: Callable[[int], int]
    """`MKL_Set_Num_Threads_Local`: of the calling thread alone; returns its number before, 0 for none of its own."""


@cache
def _functions() -> _Functions | None:
    library = ctypes.CDLL(EXTENSION_FILE)
    try:
        return _Functions(
            library.omp_set_num_threads,
            getattr(library, "omp_pause_resource_all", lambda _: -1),  # OpenMP before 5.0 has none
            getattr(library, "MKL_Set_Num_Threads_Local", lambda _: 0),  # nor has PyTorch with OpenBLAS
        )
    except AttributeError:
        return None


def is_settable() -> bool:
    """True if a thread's own number can be set: where PyTorch computes with OpenMP, except on Windows, which does not
    find a function through the library that is linked to it."""
    return _functions() is not None


def compute_with_one_thread() -> None:
    """Makes the calling thread compute with one thread from now on; the settings of others stay."""
    _set_one()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within it the calling thread computes with one thread; the settings of others stay."""
    before, mkl_before = _set_one()
    try:
        yield
    finally:
        _set(before, mkl=mkl_before)


def end_spinning() -> None:
    """Ends the threads of OpenMP that work for the calling one; its next operation starts others, in some 50 µs.

    After each operation they spin for some milliseconds, waiting for the next one, on cores that other threads could
    use.

    Does nothing within a parallel operation, with OpenMP before 5.0, and in a forked process, where the threads do not
    exist and waiting for them would never end.
    """
    functions = _functions()
    if functions is not None and not _is_forked:
        functions.pause_resources(_SOFT)


def _set_one() -> tuple[int, int]:
    """Sets both numbers of the calling thread, and returns those before."""
    # Read first: when a thread first asks for its number, PyTorch sets it to that of the process.
    before = torch.get_num_threads()
    return before, _set(1, mkl=1)


def _set(num_threads: int, *, mkl: int) -> int:
    functions = _functions()
    if functions is None:
        raise RuntimeError("the number of threads can be set for the whole process alone")
    functions.set_num_threads(num_threads)
    return functions.set_num_mkl_threads(mkl)


_is_forked = False


def _after_fork() -> None:
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
