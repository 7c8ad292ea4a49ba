"""Takes figures one after the other in another process, within limits: of each figure, and of all together.

A figure that hangs is ended with its process and all that descends from it, and so is what a process that died has
left; the figures after it are taken in a new one. The processes are copies of one that has imported torch and done
nothing else, so that a new one costs no second.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from service.scheduler.cluster import process_tree
from tests.gpu.results import Figure, Measured, Results, figure_key
from trainers.processes.orphans import adopt_orphans

START_SECONDS = 180.0
"""For a process that imports torch and looks at the device."""
FIGURE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Task:
    """A figure to be taken."""

    group: str
    name: str
    """Within its group."""
    function: Callable[..., Measured]
    """Importable."""
    arguments: tuple[Any, ...] = ()
    limit_seconds: float = FIGURE_SECONDS
    is_alone: bool = False
    """In a process that takes no other: what it does to a process, others should not meet."""

    @property
    def key(self) -> str:
        return figure_key(self.group, self.name)


class _Ended(Exception):
    """The process that takes figures has ended, or was ended."""


class _Slow(_Ended):
    """It took too long."""


class _Process:
    """A process that takes figures when asked."""

    def __init__(self, context: multiprocessing.context.ForkServerContext, environment: Callable[[], Any]) -> None:
        self._connection, theirs = context.Pipe()
        self._process: ForkServerProcess = context.Process(target=_serve, args=(theirs, environment))
        self._process.start()
        theirs.close()

    def receive(self, seconds: float) -> Any:
        """Its next message.

        Raises:
            _Slow: there was none in time.
            _Ended: it has died.
        """
        if not self._connection.poll(seconds):
            raise _Slow(f"hung: there was no value after {seconds:.0f} s")
        try:
            return self._connection.recv()
        except EOFError as error:
            self._process.join(10)
            raise _Ended(f"its process died: exit status {self._process.exitcode}") from error

    def ask(self, task: Task) -> None:
        self._connection.send((task.function, task.arguments))

    def stop(self) -> None:
        """Ends it, in good order if it waits to be asked."""
        try:
            self._connection.send(None)
            self._process.join(5)
        except OSError:  # it has died
            pass
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()


def take(
    tasks: Sequence[Task],
    results: Results,
    *,
    deadline: float,
    environment: Callable[[], Mapping[str, object]],
    tell: Callable[[Figure], None] = lambda _figure: None,
) -> None:
    """Takes the figures in order and adds each to the results; what there was no time for is named there.

    Args:
        deadline: by `time.monotonic`; no figure is begun later, and one that is under way then is ended.
        environment: describes the machine; called in the process that takes the figures.
        tell: is called with each figure.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([function.__module__ for function in {task.function for task in tasks}])
    adopt_orphans()
    if time.monotonic() < deadline:  # it imports for seconds, and nobody would ask it for a process
        multiprocessing.forkserver.ensure_running()
    own = process_tree.descendants()
    process: _Process | None = None
    for task in tasks:
        if time.monotonic() >= deadline:
            results.left_out[task.key] = "the time was up"
            continue
        started = time.monotonic()
        try:
            if process is not None and task.is_alone:
                process.stop()
                process = None
            if process is None:
                process = _Process(context, environment)
                results.environment = process.receive(min(START_SECONDS, max(1.0, deadline - started)))
                started = time.monotonic()
            process.ask(task)
            measured, failure = process.receive(min(task.limit_seconds, max(1.0, deadline - started)))
        except (_Ended, OSError) as error:
            measured, failure = None, str(error)
            if isinstance(error, _Slow) and time.monotonic() >= deadline:
                results.left_out[task.key] = f"the time was up {time.monotonic() - started:.0f} s after it was begun"
            if process is not None:
                process.kill()
            process = None
        if process is not None and task.is_alone:
            process.stop()
            process = None
        if process is None:
            process_tree.end_descendants(spare=own)
        if task.key in results.left_out:
            continue
        figure = Figure(task.group, task.name, time.monotonic() - started, measured, failure)
        results.add(figure)
        tell(figure)
    if process is not None:
        process.stop()
    process_tree.end_descendants(spare=own)
    results.is_complete = True
    results.write()


def _serve(connection: Connection, environment: Callable[[], Any]) -> None:
    # What a figure prints belongs to nobody's table.
    os.dup2(2, 1)
    connection.send(environment())
    while True:
        try:
            call = connection.recv()
            if call is None:
                return
            function, arguments = call
            connection.send((function(*arguments), None))
        except EOFError:  # whoever asks is gone
            return
        except ModuleNotFoundError as error:
            connection.send((None, f"needs the package {error.name}, which is not installed here"))
        except Exception:  # noqa: BLE001  # a process boundary: the traceback is in the results
            connection.send((None, traceback.format_exc()))
