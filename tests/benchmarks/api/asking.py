"""Clients of the API: what each request took, with one after the other, and at a pace that the answers do not set."""

from __future__ import annotations

import http.client
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

PATIENCE_SECONDS = 300.0

Paths = Callable[[int], str]
"""The path that the request of this number asks for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and what came of it."""

    status: int
    seconds: float
    """Time from when it was due, or sent where nothing says when it is."""
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Series:
    """The answers to many requests."""

    answers: Sequence[Asked]
    seconds: float
    """Time from the first request to the last answer."""

    @property
    def per_second(self) -> float:
        return len(self.answers) / self.seconds

    @property
    def failures(self) -> int:
        return sum(answer.status != 200 for answer in self.answers)

    def milliseconds(self, percentile: int) -> float:
        """The time that so many percent of the requests took at most."""
        return 1000 * statistics.quantiles([answer.seconds for answer in self.answers], n=100)[percentile - 1]


class Client:
    """One connection that is kept open."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS)

    def ask(self, path: str, *, due: float | None = None) -> Asked:
        """Args: due: when the request should have been sent, on `time.monotonic`."""
        began = time.monotonic() if due is None else due
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        content = answer.read()
        return Asked(answer.status, time.monotonic() - began, len(content))

    def close(self) -> None:
        self._connection.close()


def one_after_the_other(address: str, paths: Paths, *, requests: int) -> Series:
    """A single client."""
    client = Client(address)
    began = time.monotonic()
    answers = [client.ask(paths(number)) for number in range(requests)]
    took = time.monotonic() - began
    client.close()
    return Series(answers, took)


def closed_loop(address: str, paths: Paths, *, clients: int, seconds: float) -> Series:
    """Clients each of which asks again as soon as it is answered."""
    numbers = count()
    until = time.monotonic() + seconds

    def asked(client: Client) -> Iterator[Asked]:
        while time.monotonic() < until:
            yield client.ask(paths(next(numbers)))

    return _together(address, asked, clients=clients)


def open_loop(address: str, paths: Paths, *, clients: int, per_second: float, seconds: float) -> Series:
    """Clients that together send so many requests a second, however long the answers take. A client that waits for an
    answer sends the next one late; what that one takes is counted from when it was due."""
    lock = threading.Lock()
    numbers = iter(range(round(per_second * seconds)))
    start = time.monotonic()

    def asked(client: Client) -> Iterator[Asked]:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            due = start + number / per_second
            time.sleep(max(0.0, due - time.monotonic()))
            yield client.ask(paths(number), due=due)

    return _together(address, asked, clients=clients)


def _together(address: str, asked: Callable[[Client], Iterator[Asked]], *, clients: int) -> Series:
    def run(_index: int) -> list[Asked]:
        client = Client(address)
        answers = list(asked(client))
        client.close()
        return answers

    with ThreadPoolExecutor(clients) as pool:
        began = time.monotonic()
        answers = [answer for found in pool.map(run, range(clients)) for answer in found]
        return Series(answers, time.monotonic() - began)
