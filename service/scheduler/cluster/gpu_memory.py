"""The memory of a cluster's GPUs, which Ray does not know: the machines are asked."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0
"""Time for all machines together to start one process each and answer."""
MAX_MACHINES = 16
"""The most machines that are asked among those that do not name the kind of their GPUs."""
_KIND = "accelerator_type:"
"""Ray's prefix of a resource that names the kind of a machine's GPUs."""
_QUESTION = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


def largest_gpu_bytes() -> int | None:
    """The memory of the largest GPU in the connected cluster, as reported by one machine of each kind; None: no machine
    knew.

    A process may use some hundred MiB less.
    """
    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    asked = machines_to_ask((str(node["NodeID"]), node["Resources"]) for node in nodes if node["Alive"])
    task: Any = ray.remote(num_cpus=0, max_retries=0)(gpu_bytes_here)
    answers = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)).remote()
        for node_id in asked
    ]
    if not answers:
        return None
    came, late = ray.wait(answers, num_returns=len(answers), timeout=ANSWER_SECONDS)
    for answer in late:
        ray.cancel(answer, force=True)
    found: list[int] = []
    for answer in came:
        try:
            num_bytes = ray.get(answer)
        except RayError as error:
            logger.warning("a machine could not be asked for the memory of its GPUs: %s", error)
            continue
        found += [] if num_bytes is None else [num_bytes]
    return max(found, default=None)


def machines_to_ask(machines: Iterable[tuple[str, Mapping[str, float]]]) -> list[str]:
    """One machine for each kind of GPU, and some of those that do not name a kind.

    Args:
        machines: ids and resources.
    """
    by_kind: dict[str, str] = {}
    nameless: list[str] = []
    for node_id, resources in machines:
        if not resources.get("GPU"):
            continue
        kind = next((name for name in resources if name.startswith(_KIND)), None)
        if kind is None:
            nameless.append(node_id)
        else:
            by_kind.setdefault(kind, node_id)
    return [*by_kind.values(), *nameless[:MAX_MACHINES]]


def gpu_bytes_here() -> int | None:
    """The memory of this machine's largest GPU as its driver reports it; None: there is no such report."""
    try:
        report = subprocess.run(_QUESTION, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True).stdout
        return max(int(line) for line in report.split()) * 2**20
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logger.info("nvidia-smi does not tell the memory of GPUs: %s", error)
        return None
