"""The Ray cluster of a job's run: a local one of its own, or one that runs already."""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.util
from ray.exceptions import RayError

from service.evidence.in_words.wording import counted, joined
from service.scheduler.cluster import process_tree
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.cluster.ray_internals import (
    free_resources_by_node,
    hearing_while_the_head_starts,
    only_what_trains,
    set_environment_of_trainables,
)
from service.settings import ENV_PREFIX
from service.use_cases.estimating.machine_memory import usable_cpus
from trainers.retry import retry

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 100 * 2**20
"""Object store of a local cluster. Only configs and measurements pass through Ray, never tensors; and a container's
/dev/shm is small."""

ANSWER_SECONDS = 120.0
"""Seconds for which a cluster that does not answer is asked again: it may be started anew. Ray would ask for many
minutes, and tell nobody."""

CONNECTION_SECONDS = 5.0
"""Seconds that one attempt to connect may take."""


class ClusterOutOfReach(Exception):
    """The cluster that the settings name cannot be used; the message says why, in a line."""


@dataclass(frozen=True, slots=True)
class Node:
    """The resources that one machine of the cluster offers to trials."""

    resources: Mapping[str, float]
    """Amounts by Ray's names: `CPU`, `GPU`, `memory` in bytes, and names that the cluster's owner has chosen."""

    def num_ranks(self, size: GroupSize) -> int:
        """The number of ranks of a trial of this size that it holds."""
        return min(_num_times(name, self.resources.get(name, 0.0), want) for name, want in size.rank_bundle.items())


def connect(
    address: str | None,
    *,
    directory: Path,
    namespace: str | None = None,
    runtime_environment: dict[str, Any] | None = None,
) -> list[Node]:
    """Connects this process to the cluster at `address`, or starts a local one; returns the cluster's machines.

    Args:
        namespace: the namespace of all ranks that are started from here, which no other job uses; None: a new one.
        directory: for the files of a local cluster. It must be a short path, because the paths of sockets in it must
            stay below 108 characters.
        runtime_environment: Ray's runtime environment for everything that is started from here on an existing cluster;
            None: the cluster's own.

    Raises:
        ClusterOutOfReach: the one at `address` does not answer, or does not let this process in.
        ConnectionError: no machine of it is alive, for instance because its processes were just killed. Ray may raise
            others.
    """
    set_environment_of_trainables(is_local=address is None)
    if address is None:
        with only_what_trains(), hearing_while_the_head_starts():
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
        try:
            _await_head(address)
            ray.init(
                address=address,
                namespace=namespace,
                runtime_env=runtime_environment,
                log_to_driver=False,
                logging_level=logging.WARNING,
            )
        except (
            OSError,
            ValueError,
            RuntimeError,
            RayError,
        ) as error:  # another version of Ray, another token
            named = f"the Ray cluster at {address}, which {ENV_PREFIX}RAY_ADDRESS or RAY_ADDRESS names"
            raise ClusterOutOfReach(f"{named}, cannot be used: {' '.join(str(error).split())}") from error
        _end_ranks_of_earlier_runs()
    nodes = living_nodes()
    if not nodes:
        raise ConnectionError("no machine of the Ray cluster lives")
    return nodes


def _await_head(address: str) -> None:
    """Waits until the head of a cluster takes connections, if its address is a host and a port.

    Raises:
        OSError: it does not.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit() or "/" in host:
        return
    retry(
        lambda: socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECTION_SECONDS).close(),
        is_temporary=lambda error: isinstance(error, OSError),
        give_up_seconds=ANSWER_SECONDS,
        first_pause_seconds=0.5,
        tell=lambda error, _pause: logger.warning("the Ray cluster at %s does not answer yet: %s", address, error),
    )


def living_nodes() -> list[Node]:
    """The machines of the connected cluster."""
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return [Node(node["Resources"]) for node in nodes if node["Alive"]]


def identity() -> str:
    """Names the connected cluster: the same name in every process that is connected to it, whatever address it used."""
    return str(ray.get_runtime_context().gcs_address)


def _end_ranks_of_earlier_runs() -> None:
    """Ends ranks in this process's namespace: those of a run of the same job that was killed a moment ago.

    Ray ends them itself when it notices, with their placement groups. But until then they would train and write
    checkpoints at the same time as the new ranks, on devices that these need.
    """
    for name in ray.util.list_named_actors():
        try:
            ray.kill(ray.get_actor(name))
        except ValueError:  # it has ended in the meantime
            continue
        logger.warning("ended %s, which an earlier run had left", name)


def own_machine_is_lost() -> bool:
    """True if the cluster considers the machine of this process lost: it then ends the machine's actors, now and
    later."""
    own = ray.get_runtime_context().get_node_id()
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return not any(node["NodeID"] == own and node["Alive"] for node in nodes)


def end_local_ranks() -> None:
    """Ends the ranks in this process's own local cluster, whatever they are doing, and the processes that could start
    others.

    The head stays until `leave`: without it, Ray ends this process after a minute, even if it still has to write
    something.
    """
    process_tree.end_descendants(spare=process_tree.children_named("gcs_server"))


def leave(address: str | None) -> None:
    """Ends everything that this process started in the cluster, or a local cluster itself, whatever its ranks are
    doing."""
    if address is None:
        process_tree.end_descendants()  # `ray.shutdown()` takes a second or more
    else:
        ray.shutdown()


def max_parallel_trials(nodes: Iterable[Node], size: GroupSize) -> int:
    """The number of trials of this size that the cluster can hold at once; 0: not even one."""
    return sum(node.num_ranks(size) for node in nodes) // size.world_size


def dominant_share(nodes: Iterable[Node], size: GroupSize) -> float:
    """The part of the cluster that a trial takes, for the resource of which it takes the largest part; at most 1."""
    machines = list(nodes)
    total = {name: sum(node.resources.get(name, 0.0) for node in machines) for name in size.rank_bundle}
    parts = [amount * size.world_size / total[name] for name, amount in size.rank_bundle.items() if total[name] > 0]
    return min(1.0, max(parts, default=1.0))


def describe_shortage(nodes: Iterable[Node], size: GroupSize) -> str:
    """The reason why the cluster cannot hold a trial, for a person."""
    names = dict.fromkeys(["CPU", "GPU", *size.rank_bundle])
    wanted = _amounts({name: size.rank_bundle.get(name, 0.0) for name in names})
    machines = _machines(nodes, names)
    return f"the cluster cannot hold a trial of {_ranks(size, wanted)}; its machines: {machines}"


def describe_wait(size: GroupSize) -> str | None:
    """Describes what a trial waits for in the connected cluster, e.g. `needs 4 GPUs, 3 free`; None: it could start now.

    The rest is taken by other trials, of this job or another one. Call it again later; it takes milliseconds.
    """
    free = _free_nodes()
    if max_parallel_trials(free, size):
        return None
    short = _shortage(free, size)
    if short:
        return "needs " + " and ".join(
            f"{_amount(name, needed)}, {_number(name, available)} free" for name, (needed, available) in short.items()
        )
    # Enough in total, but not on one machine where a rank could use it.
    wanted = _amounts(size.rank_bundle)
    return f"needs {_ranks(size, wanted)}; free on its machines: {_machines(free, size.rank_bundle)}"


def short_of(size: GroupSize) -> frozenset[str]:
    """The resources of which the connected cluster has too little free for another trial, by Ray's names."""
    return frozenset(_shortage(_free_nodes(), size))


def _free_nodes() -> list[Node]:
    return [Node(resources) for resources in free_resources_by_node()]


def _shortage(free: Iterable[Node], size: GroupSize) -> dict[str, tuple[float, float]]:
    """(needed, free) by resource name, for each resource that all machines together have too little of for a trial."""
    machines = list(free)
    found = {}
    for name, want in size.rank_bundle.items():
        needed, available = want * size.world_size, sum(node.resources.get(name, 0.0) for node in machines)
        if needed > available:
            found[name] = needed, available
    return found


def _num_times(name: str, available: float, want: float) -> int:
    """The number of times that `want` fits; a fraction of a GPU must come from a single GPU."""
    tolerance = 1e-6  # 0.3 / 0.1 is below 3
    if name == "GPU" and want < 1:
        return int(available + tolerance) * int(1 / want + tolerance) + int(available % 1 / want + tolerance)
    return int(available / want + tolerance)


def _ranks(size: GroupSize, wanted: str) -> str:
    """`2 ranks with 1 CPU and 1 GPU each`."""
    return f"{counted(size.world_size, 'rank')} with {wanted}{'' if size.world_size == 1 else ' each'}"


def _machines(nodes: Iterable[Node], names: Iterable[str]) -> str:
    alike = Counter(_amounts({name: node.resources.get(name, 0.0) for name in names}) for node in nodes)
    return ", ".join(text if count == 1 else f"{count} times {text}" for text, count in alike.items()) or "none"


def _amounts(resources: Mapping[str, float]) -> str:
    """`2 CPUs, 1 tpu and 8.00 GiB of memory`."""
    return joined(_amount(name, amount) for name, amount in resources.items())


def _amount(name: str, amount: float) -> str:
    match name:
        case "CPU" | "GPU":
            return f"{_number(name, amount)} {name}{'' if amount == 1 else 's'}"
        case "memory":
            return f"{_number(name, amount)} of memory"
        case _:
            return f"{_number(name, amount)} {name}"


def _number(name: str, amount: float) -> str:
    return f"{amount / 2**30:.2f} GiB" if name == "memory" else f"{round(amount, 4):g}"
