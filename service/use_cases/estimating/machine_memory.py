"""The memory of this machine, and the trials that it is too small for."""

from __future__ import annotations

import os
from pathlib import Path

from service.specification.resources import Resources

FAR_BEYOND = 2.0
"""Trials of CPU ranks that need this many times the machine's memory are not launched. What is predicted leaves
activations and the process out, so once would do; but a system with swap may hold a little more, and weights that
nobody writes to take no memory."""


def memory_of_this_machine(cgroup_limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int:
    """Bytes of memory of this machine, or of the container if it may have less.

    Args:
        cgroup_limit: of the control group, as version 2 has it.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(cgroup_limit.read_text()))
    except (OSError, ValueError):  # none is set: there is no such file, or it says "max"
        return machine


def machine_limit_bytes(resources: Resources) -> int | None:
    """Bytes of each rank beyond which trials that train on this machine are not launched, where the job names no limit
    of its own; None: all are launched, or another limit counts."""
    if resources.gpus_per_worker or resources.memory_per_worker is not None or resources.beyond_memory:
        return None
    return int(FAR_BEYOND * memory_of_this_machine() / resources.workers_per_trial)
