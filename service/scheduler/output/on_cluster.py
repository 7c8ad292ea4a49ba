"""The files of ranks on the machines of an existing cluster: read by a small actor on each machine."""

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
"""Seconds that a machine may take to read; the next reading asks it again."""


class ClusterOutput:
    """The files of a job's ranks, on each machine where it has any; they outlive ranks and runs."""

    def __init__(self, job_id: str, nodes: Callable[[], set[str]]) -> None:
        """Prepares reading.

        Args:
            nodes: the ids of the machines on which the job has ranks now.
        """
        self._job_id = job_id
        self._nodes = nodes
        self._readers: dict[str, Any] = {}
        """By the machine's id. Each lives for the whole run: Ray soon ends the process of a task if a rank has the
        machine's processors, so with tasks each reading would start a process and import again."""

    def read(self, kept: Mapping[str, int]) -> list[Piece]:
        for node in self._nodes() - self._readers.keys():
            self._readers[node] = _reader_on(node, self._job_id)
        if not self._readers:
            return []
        calls = {reader.read.remote(dict(kept)): node for node, reader in sorted(self._readers.items())}
        done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=READING_SECONDS)
        pieces = list[Piece]()
        for call in done:
            try:
                pieces += ray.get(call)
            except RayError as error:  # the machine is gone, and with it the unread part of its files
                logger.info("cannot read what ranks printed on machine %s: %s", calls[call], error)
                del self._readers[calls[call]]
        return pieces

    def remove(self) -> None:
        calls = [reader.remove.remote() for reader in self._readers.values()]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=READING_SECONDS)


class _Reader:
    """Reads and removes the files of a job's ranks on the machine where it lives."""

    def __init__(self, job_id: str) -> None:
        self._directory = directory_of(None, job_id)

    def read(self, kept: Mapping[str, int]) -> list[Piece]:
        return read_output(self._directory, kept)

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def _reader_on(node: str, job_id: str) -> Any:
    """A Ray actor on one machine, in addition to whatever trains there."""
    here = NodeAffinitySchedulingStrategy(node, soft=False)
    options: Any = ray.remote(num_cpus=0, scheduling_strategy=here)  # type: ignore[call-overload]
    return options(_Reader).remote(job_id)  # Ray's types know no affinity
