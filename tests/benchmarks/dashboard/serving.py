"""Two dashboards on one database, each a process of its own, and what a visit costs them."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import psutil

from service.settings import ENV_PREFIX
from tests.benchmarks.api.process import ApiProcess
from tests.support.waiting import LONG_PATIENCE_SECONDS, started

HEADERS = {"Accept-Encoding": "gzip"}


@dataclass(frozen=True, slots=True)
class Visit:
    """A page with all that it asks for to draw what it shows first; without scripts and styles, which browsers keep."""

    processor_seconds: float
    """Processor time of the server."""
    num_bytes: int
    """Bytes as they are sent, compressed."""
    whole_bytes: int
    """Bytes before they are compressed."""


@contextmanager
def peer_on(database_url: str) -> Iterator[ApiProcess]:
    """`optuna-dashboard` on the jobs of a database."""
    environment = {**os.environ, f"{ENV_PREFIX}DATABASE_URL": database_url}
    command = [sys.executable, "-m", "service", "optuna-dashboard", "--port", "0"]
    with started(command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()  # "optuna-dashboard is at ADDRESS ..."
        yield ApiProcess(line.split()[3], psutil.Process(process.pid))


def visit(server: ApiProcess, paths: Sequence[str], known: dict[str, str] | None = None) -> Visit:
    """One visit; every path is answered.

    Args:
        known: the `ETag` of what the browser has, by path; filled with what it is given.
    """
    tags = {} if known is None else known
    sent = whole = 0
    with httpx.Client(
        base_url=server.address, headers=HEADERS, timeout=LONG_PATIENCE_SECONDS, trust_env=False
    ) as client:
        before = server.all_seconds()
        for path in paths:
            answer = client.get(path, headers={"If-None-Match": tags[path]} if known and path in tags else {})
            if answer.status_code not in (httpx.codes.OK, httpx.codes.NOT_MODIFIED):
                raise RuntimeError(f"{path} was answered with {answer.status_code}")
            sent, whole = sent + answer.num_bytes_downloaded, whole + len(answer.content)
            if "ETag" in answer.headers:
                tags[path] = answer.headers["ETag"]
        return Visit(server.all_seconds() - before, sent, whole)


def mean_of(server: ApiProcess, paths: Sequence[str], *, visits: int, known: dict[str, str] | None = None) -> Visit:
    """The mean processor time of so many visits, which is told in hundredths of a second; bytes of the last one."""
    found = [visit(server, paths, known) for _ in range(visits)]
    mean = statistics.mean(each.processor_seconds for each in found)
    return Visit(mean, found[-1].num_bytes, found[-1].whole_bytes)


def study_path(peer: ApiProcess, job_id: str) -> str:
    """Where the page of the job's search asks for all of its trials."""
    listed = httpx.get(f"{peer.address}/api/studies", timeout=LONG_PATIENCE_SECONDS, trust_env=False).json()
    (found,) = (each["study_id"] for each in listed["study_summaries"] if each["study_name"] == job_id)
    return f"/api/studies/{found}"
