"""The Ray cluster of a job's run: a local one of its own, or one that runs already."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import ray
import ray.util

from service.scheduler import process_tree
from service.scheduler.rank_group import GroupSize

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 100 * 2**20
"""Of a local cluster. Configs and measurements pass through Ray, never tensors; and a container's /dev/shm is small."""


@dataclass(frozen=True, slots=True)
class Node:
    """What one machine of the cluster offers to trials."""

    cpus: float
    gpus: float


def connect(address: str | None, *, directory: Path, namespace: str | None = None) -> list[Node]:
    """Connects this process to the cluster at `address`, or starts a local one; the cluster's machines.

    Args:
        namespace: of all ranks that are started from here, and of no other job's; None: one of its own.
        directory: where a local cluster keeps its files. A short path: it holds sockets, whose paths must stay below
            108 characters.
    """
    if address is None:
        ray.init(
            address="local",
            namespace=namespace,
            num_cpus=usable_cpus(),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            object_store_memory=OBJECT_STORE_BYTES,
            _temp_dir=str(directory),
        )
    else:
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.WARNING)
        _end_ranks_of_earlier_runs()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    alive = (node["Resources"] for node in nodes if node["Alive"])
    return [Node(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in alive]


def _end_ranks_of_earlier_runs() -> None:
    """Ends ranks in this process's namespace: those of a run of the same job that was killed a moment ago.

    Ray ends them itself when it notices, with their placement groups. But until then they would train and write
    checkpoints beside the new ones, on devices that those need.
    """
    for name in ray.util.list_named_actors():
        try:
            ray.kill(ray.get_actor(name))
        except ValueError:  # it has ended meanwhile
            continue
        logger.warning("ended %s, which an earlier run had left", name)


def own_machine_is_lost() -> bool:
    """Whether the cluster has given up the machine of this process, whose actors it then ends, now and later."""
    own = ray.get_runtime_context().get_node_id()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return not any(node["NodeID"] == own and node["Alive"] for node in nodes)


def usable_cpus(cgroup_quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """How many CPUs this process may use at once: the machine's, unless its affinity or its container allows fewer.

    Parts count as whole ones. Ray's own count rounds a quota down, to 0 of half a CPU, and knows no affinity.
    """
    cpus = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        quota, period = cgroup_quota.read_text().split()
        return min(cpus, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such file, or the word `max`
        return cpus


def leave(address: str | None) -> None:
    """Ends all that this process started in the cluster; a local cluster itself, whatever its ranks are doing."""
    if address is None:
        process_tree.end_descendants()  # `ray.shutdown()` takes a second and more
    else:
        ray.shutdown()


def max_parallel_trials(nodes: Iterable[Node], size: GroupSize) -> int:
    """How many trials of this size the cluster can hold at once; 0: not even one."""
    return sum(_num_ranks(node, size) for node in nodes) // size.world_size


def describe_shortage(nodes: Iterable[Node], size: GroupSize) -> str:
    """Why the cluster cannot hold a trial, for a person."""
    machines = ", ".join(f"{node.cpus:g} CPUs and {node.gpus:g} GPUs" for node in nodes) or "none"
    return (
        f"the cluster cannot hold a trial of {size.world_size} ranks with {size.cpus_per_rank:g} CPUs and "
        f"{size.gpus_per_rank} GPUs each; its machines: {machines}"
    )


def _num_ranks(node: Node, size: GroupSize) -> int:
    by_cpus = node.cpus / size.cpus_per_rank
    by_gpus = node.gpus / size.gpus_per_rank if size.gpus_per_rank else math.inf
    return int(min(by_cpus, by_gpus))
