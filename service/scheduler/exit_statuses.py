"""Exit statuses of processes: who caused the end, and the end in words. Pure."""

from __future__ import annotations

import signal

OWN_SIGNALS = frozenset(
    {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP}
)
"""Signals that a process gets because of its own actions."""


def is_own_doing(exit_status: int) -> bool:
    """True if a process ended because of its own code, and not because others ended it."""
    return exit_status >= 0 or -exit_status in OWN_SIGNALS


def may_be_of_memory(exit_status: int | None) -> bool:
    """True if the kernel may have ended a process because its machine had no memory left. None: nothing is known."""
    return exit_status in (None, -signal.SIGKILL)


def in_words(exit_status: int) -> str:
    """The end of a process, for a person."""
    if exit_status >= 0:
        return f"it left with exit status {exit_status}, as by `os._exit`"
    number = -exit_status
    try:
        name = f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time one
        name = f"signal {number}"
    if may_be_of_memory(exit_status):
        return f"it was killed by {name}, as by the kernel for memory: the machine's kernel log tells"
    return f"it was killed by {name}"
