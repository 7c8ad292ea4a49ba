"""The CPUs and the memory of this machine, and the trials that it is too small for."""

from __future__ import annotations

import dataclasses
import math
import os
import sys

from service.evidence.in_words.wording import counted
from service.specification.estimate import MemoryEstimate
from service.specification.resources import Resources
from service.use_cases.estimating.control_groups import ControlGroups

FAR_BEYOND = 2.0
"""Trials of CPU ranks that need this many times the machine's memory are not launched. Predictions leave out
activations and the process, so a factor of one would be enough; but a system with swap may hold a little more, and
weights that nobody writes to take no memory."""


def usable_cpus(groups: ControlGroups | None = None) -> int:
    """The CPUs that this process may use at once: the machine's, unless its affinity or its container allows fewer.

    Fractions are rounded up. Ray's own count rounds a quota down, half a CPU to 0, and ignores the affinity.

    Args:
        groups: None: this process's.
    """
    cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = (groups or ControlGroups()).cpu_quota()
    return cpus if quota is None else min(cpus, math.ceil(quota))


def memory_of_this_machine(groups: ControlGroups | None = None) -> int:
    """Bytes of memory of this machine, or of the container if it may have less.

    Args:
        groups: None: this process's.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = (groups or ControlGroups()).memory_limit()
    return machine if limit is None else min(machine, limit)


def machine_limit_bytes(resources: Resources) -> int | None:
    """Bytes of each rank above which trials that train on this machine are not launched, if the job names no limit of
    its own; None: all are launched, or another limit counts."""
    if resources.gpus_per_worker or resources.memory_per_worker is not None or resources.beyond_memory:
        return None
    return int(FAR_BEYOND * memory_of_this_machine() / resources.workers_per_trial)


def cpus_hold(resources: Resources) -> int:
    """The number of a job's trials of CPU ranks that this machine's CPUs hold at once; 0: not even one."""
    return int(usable_cpus() / resources.cpus_per_worker) // resources.workers_per_trial


def shortage_here(resources: Resources, *, has_gpu: bool = True) -> str | None:
    """The reason why this machine cannot hold a single trial, for a person; None: its devices can."""
    ranks, cpus = resources.workers_per_trial, resources.cpus_per_worker
    if not cpus_hold(resources):
        taken = f"{ranks * cpus:g} CPUs ({counted(ranks, 'rank')} of {cpus:g})"
        return f"it takes {taken}, and the machine has {usable_cpus()}"
    return "it takes a GPU, and torch sees none on the machine" if resources.gpus_per_worker and not has_gpu else None


def memory_holds(bytes_per_rank: int, *, num_ranks: int, machine_bytes: int) -> int:
    """The number of trials that a machine's memory holds at once, at least one: a single larger trial is judged
    separately."""
    return max(1, machine_bytes // max(1, bytes_per_rank * num_ranks))


def on_this_machine(estimate: MemoryEstimate, resources: Resources) -> MemoryEstimate:
    """Adds to an estimate this machine's memory, the number of trials that train on it at once, and their total need;
    does nothing for ranks with a GPU."""
    if resources.gpus_per_worker:
        return estimate
    machine = memory_of_this_machine()
    estimate = dataclasses.replace(estimate, machine_bytes=machine)
    if resources.memory_per_worker is not None:
        return estimate
    fitting, ranks = max(1, cpus_hold(resources)), resources.workers_per_trial
    kept = max(space.default_bytes for space in estimate.spaces.values())
    by_memory = memory_holds(kept, num_ranks=ranks, machine_bytes=machine)
    is_limited = resources.parallel_trials is None and not resources.beyond_memory and by_memory < fitting
    at_once = by_memory if is_limited else min(fitting, resources.parallel_trials or fitting)
    needed = max(space.default_bytes + (space.activation_bytes or 0) for space in estimate.spaces.values())
    return dataclasses.replace(
        estimate,
        parallel_trials=at_once,
        is_limited_by_memory=is_limited,
        together_bytes=at_once * ranks * needed,
    )
