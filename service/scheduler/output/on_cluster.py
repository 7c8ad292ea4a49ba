"""The files of ranks on the machines of a cluster that runs already: read by a small task on each."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from service.scheduler.output.files import directory_of
from service.scheduler.output.reading import Piece, read_output

logger = logging.getLogger(__name__)

READING_SECONDS = 10.0
"""Seconds that a machine may take to read; the next look asks it again."""


class ClusterOutput:
    """The files of a job's ranks, on each machine where it has any; they end with neither rank nor run."""

    def __init__(self, job_id: str, nodes: Callable[[], set[str]]) -> None:
        """Prepares reading.

        Args:
            nodes: the ids of the machines on which the job has ranks now.
        """
        self._job_id = job_id
        self._nodes = nodes
        self._seen: set[str] = set()

    def read(self, kept: Mapping[str, int]) -> list[Piece]:
        self._seen |= self._nodes()
        if not self._seen:
            return []
        calls = {_on(node, _read_here).remote(self._job_id, dict(kept)): node for node in sorted(self._seen)}
        done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=READING_SECONDS)
        pieces = list[Piece]()
        for call in done:
            try:
                pieces += ray.get(call)
            except RayError as error:  # the machine is gone, and what was not read of its files with it
                logger.info("cannot read what ranks printed on machine %s: %s", calls[call], error)
                self._seen.discard(calls[call])
        return pieces

    def remove(self) -> None:
        calls = [_on(node, _remove_here).remote(self._job_id) for node in sorted(self._seen)]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=READING_SECONDS)


def _on(node: str, function: Callable[..., Any]) -> Any:
    """The function as a task of Ray's on one machine, beside whatever trains there."""
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    options: Any = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)  # type: ignore[call-overload]
    return options(function)  # Ray's types know no affinity


def _remove_here(job_id: str) -> None:
    shutil.rmtree(directory_of(None, job_id), ignore_errors=True)


def _read_here(job_id: str, kept: Mapping[str, int]) -> list[Piece]:
    return read_output(directory_of(None, job_id), kept)
