"""The processes that read data for this one, according to the operating system."""

from __future__ import annotations

import psutil


def worker_processes() -> list[psutil.Process]:
    """The worker processes of this process that run."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "trainers.data.loading_worker" in child.cmdline()
    ]


def num_worker_processes() -> int:
    return len(worker_processes())
