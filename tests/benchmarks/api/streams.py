"""Readers of streams of events, and how late they hear of one."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from service.store.repositories import EventRepository
from service.store.session import Database

QUIET_SECONDS = 2.0
"""Time for the last events to arrive."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Events that the readers of streams heard."""

    lags: list[float]
    """Seconds from when an event was stored until a reader had it, of each reader and event."""
    num_told: int
    """Events stored."""


def follow(address: str, url: str, paths: list[str], job_ids: list[str], *, per_second: float, seconds: float) -> Heard:
    """Reads a stream of each path while events of these jobs in turn are stored at that rate."""
    return asyncio.run(_follow(address, url, paths, job_ids, per_second=per_second, seconds=seconds))


async def _follow(
    address: str, url: str, paths: list[str], job_ids: list[str], *, per_second: float, seconds: float
) -> Heard:
    lags: list[float] = []
    parts = urlsplit(address)
    connections = [await asyncio.open_connection(parts.hostname, parts.port) for _ in paths]
    for (_, writer), path in zip(connections, paths, strict=True):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
    began = datetime.now(UTC)  # what was stored before is told first
    readers = [asyncio.create_task(_read(reader, began, lags)) for reader, _ in connections]
    await asyncio.sleep(QUIET_SECONDS)
    num_told = await asyncio.to_thread(_tell, url, job_ids, per_second, seconds)
    await asyncio.sleep(QUIET_SECONDS)
    for task, (_, writer) in zip(readers, connections, strict=True):
        task.cancel()
        writer.close()
    return Heard(lags, num_told)


async def _read(reader: asyncio.StreamReader, began: datetime, lags: list[float]) -> None:
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            told = datetime.fromisoformat(json.loads(line[len("data: ") :])["created_at"])
            if told >= began:
                lags.append((datetime.now(UTC) - told).total_seconds())


def _tell(url: str, job_ids: list[str], per_second: float, seconds: float) -> int:
    """Stores events; how many."""
    number, began = 0, time.monotonic()
    with closing(Database(url)) as database:
        while (passed := time.monotonic() - began) < seconds:
            if number > passed * per_second:
                time.sleep(number / per_second - passed)
            data = {"number": 0, "step": number, "value": 0.5}
            with database.writing() as session:
                job_id = job_ids[number % len(job_ids)]
                EventRepository(session).add(job_id, "trial.measured", data, datetime.now(UTC))
            number += 1
    return number
