"""Runs the rules in a process of their own, and starts it again behind a rule in which it died or hung."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

from trainers.config import Json
from trainers.processes.starting import kill_group
from trainers.workload.user_workload import printable
from trainers.workload_check.outcome import RuleOutcome
from trainers.workloads.describe import environment_of_children

START_TIMEOUT_SECONDS = 120.0
"""Time for the process to import torch, on a busy machine."""
_SHOWN_OF_OUTPUT = 300
"""Last bytes of the output of a process that died: the line that says why."""
_CHUNK_BYTES = 65536
"""Read of the report at once: what a pipe of Linux holds by default."""


def check(
    name: str,
    options: Mapping[str, Json],
    *,
    batch_size: int,
    timeout_seconds: float,
    num_threads: int,
) -> Iterator[RuleOutcome]:
    """The outcome of each rule for a workload, as soon as it is known.

    `timeout_seconds` is for each rule. After a failure of the description or construction by death or timeout, the
    other rules are skipped.
    """
    first = 0
    while True:
        with _Child(name, options, batch_size=batch_size, num_threads=num_threads, first=first) as child:
            rules: list[dict[str, Any]] = []
            began: str | None = None
            while True:
                event = child.next_event(timeout_seconds if began else START_TIMEOUT_SECONDS)
                if isinstance(event, str):
                    break
                rules = event.get("rules", rules)
                began = event.get("began", began)
                if "outcome" in event:
                    first += 1
                    began = None
                    yield RuleOutcome(**event["outcome"])
        if rules and first == len(rules):
            return
        if began is None or not rules:
            yield RuleOutcome("start", "failed", f"the rules cannot be run: {event}")
            return
        yield RuleOutcome(began, "failed", f"{event}. {_ADVICE}")
        is_foundation = rules[first]["is_foundation"]
        first += 1
        if is_foundation:
            for rule in rules[first:]:
                yield RuleOutcome(rule["name"], "skipped", f"the process does not survive {began!r}")
            return


_ADVICE = "A rank of a trial would do the same: it must neither end its process nor take for ever"


class _Child:
    """The process that runs the rules from `first` on, and its report."""

    def __init__(
        self, name: str, options: Mapping[str, Json], *, batch_size: int, num_threads: int, first: int
    ) -> None:
        self._noise: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._report, theirs = os.pipe()
        order = {
            "name": name,
            "options": dict(options),
            "batch_size": batch_size,
            "threads": num_threads,
            "first": first,
            "descriptor": theirs,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trainers.workload_check.child", json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=self._noise,
            stderr=self._noise,
            env=environment_of_children(),
            pass_fds=[theirs],
            start_new_session=True,
        )
        os.close(theirs)
        self._buffer = b""

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self._process.pid)  # and whatever the workload has started
        self._process.wait()
        os.close(self._report)
        self._noise.close()

    def next_event(self, timeout_seconds: float) -> dict[str, Any] | str:
        """The next line of the report; or why there is none, as a phrase."""
        deadline = time.monotonic() + timeout_seconds
        while b"\n" not in self._buffer:
            seconds = deadline - time.monotonic()
            if seconds <= 0 or not select.select([self._report], [], [], seconds)[0]:
                return f"it takes more than {timeout_seconds:g} s (--timeout gives it more)"
            chunk = os.read(self._report, _CHUNK_BYTES)
            if not chunk:
                return self._how_it_ended(deadline)
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            return "it wrote into the checker's report"
        return event

    def _how_it_ended(self, deadline: float) -> str:
        try:
            status = self._process.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return "it closed the checker's report"
        how = f"with exit status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
        self._noise.seek(max(0, self._noise.seek(0, os.SEEK_END) - _SHOWN_OF_OUTPUT))
        said = printable(self._noise.read().decode(errors="replace"), limit=_SHOWN_OF_OUTPUT)
        return f"its process ended {how}" + (f"; its last output: {said}" if said else "")
