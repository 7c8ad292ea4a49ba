"""Batches read ahead by worker processes: in order, and the same whatever becomes of a worker.

What is read for a task must follow from the task alone (`trainers.data.order` says which examples are due, and random
numbers are seeded by the position in the stream). Then the number of workers, which of them reads what, and the death
of one change nothing but the time it takes.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from logging import getLogger
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from trainers.data.loading_worker import TASKS_AHEAD, aligned, contents_of, new_memory, receive_descriptor

logger = getLogger(__name__)

Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_DEATHS_OF_A_TASK = 3
"""Workers that may die over the same task: then the task is to blame, e.g. an image that crashes its decoder."""
MAX_DEATHS = 20
"""Workers that may die in all: then the machine is to blame, e.g. it lacks memory."""


class WorkersKeepDying(RuntimeError):
    """The worker processes end, over and over, without having read what they were sent."""


def read_in_order(
    read: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    num_workers: int,
    on_restart: Callable[[], object] | None = None,
) -> Generator[Result, None, None]:
    """Gives `read(task)` for each task, in order, read ahead by `num_workers` processes.

    With none, this process reads when asked. Else each worker has at most two tasks that are not given yet; one that
    dies is replaced, and what it had not answered is read again. Closing the generator ends the workers at once; should
    this process be killed, they end by themselves after the task they are at. The workers are fresh interpreters that
    share nothing with this process: no locks, no CUDA context, no torch unless `read` imports it.

    Args:
        read: pickled and sent to each worker once, so it is a function or an instance of a class in a module.
        tasks: picklable and small; there may be endlessly many.
        on_restart: called each time a worker was replaced.

    Results are pickled, but the contents of NumPy arrays in them are handed over in shared memory.

    Raises:
        WorkersKeepDying: three workers died over the same task, or twenty in all.
        Exception: what `read` raises, in its turn, with the worker's traceback as a note.
    """
    if num_workers == 0:
        for task in tasks:
            yield read(task)
        return
    pool = _Pool(read, num_workers, on_restart or _nothing)
    try:
        yield from pool.results(tasks)
    finally:
        pool.close()


def _nothing() -> None:
    pass


class _Worker:
    """One worker process, and the tasks that it has not answered."""

    def __init__(self, reader: int) -> None:
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        self.unanswered: deque[int] = deque()
        """Numbers of the tasks, in the order in which they were sent, which is that of the answers."""
        with theirs:
            inherited = (theirs.fileno(), reader)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "trainers.data.loading_worker", *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                pass_fds=inherited,
                env=_environment(),
            )

    def send(self, number: int, task: object) -> None:
        """Raises OSError if the worker is dead; the task counts as sent nevertheless."""
        self.unanswered.append(number)
        self.connection.send_bytes(pickle.dumps(task))

    def receive(self) -> tuple[int, bool, Any]:
        """The next answer: the number of its task, whether it succeeded, and the result or the error.

        Raises:
            EOFError, OSError: the worker is dead.
        """
        succeeded, body, sizes = pickle.loads(self.connection.recv_bytes())
        buffers = []
        if any(sizes):
            descriptor = receive_descriptor(self.connection)
            try:
                memory = contents_of(descriptor)  # lives as long as the arrays in it
            finally:
                os.close(descriptor)
            offset = 0
            for size in sizes:
                buffers.append(memory[offset : offset + size])
                offset += aligned(size)
        else:
            buffers = [memoryview(bytearray()) for _ in sizes]
        return self.unanswered.popleft(), succeeded, pickle.loads(body, buffers=buffers)

    def wait(self) -> None:
        """Gives a process that has closed its end of the connection a moment to end by itself, with its own status."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)

    def end(self) -> str:
        """Kills the process if it still runs, and gives how it ended."""
        self._process.kill()
        self.connection.close()
        status = self._process.wait()
        return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


class _Pool(Generic[Task, Result]):
    """The workers of one stream of tasks."""

    def __init__(self, read: Callable[[Task], Result], num_workers: int, on_restart: Callable[[], object]) -> None:
        self._on_restart = on_restart
        self._reader = new_memory("reader")
        self._workers: list[_Worker] = []
        self._pending: dict[int, Task] = {}
        """Tasks that are sent and not answered, by number."""
        self._answers: dict[int, tuple[bool, Any]] = {}
        """Those that are answered and not given yet."""
        self._deaths: Counter[int] = Counter()
        try:
            with os.fdopen(os.dup(self._reader), "wb") as file:
                pickle.dump(read, file, protocol=5)
            self._workers.extend(_Worker(self._reader) for _ in range(num_workers))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        os.close(self._reader)

    def results(self, tasks: Iterable[Task]) -> Iterator[Result]:
        numbered = enumerate(tasks)
        due = 0
        while True:
            self._hand_out(numbered)
            if due not in self._pending and due not in self._answers:
                return
            while due not in self._answers:
                self._collect()
            succeeded, result = self._answers.pop(due)
            if not succeeded:
                raise result
            due += 1
            self._hand_out(numbered)  # before the trainer goes on: the workers have work meanwhile
            yield result

    def _hand_out(self, numbered: Iterator[tuple[int, Task]]) -> None:
        while len(self._pending) + len(self._answers) < TASKS_AHEAD * len(self._workers):
            following = next(numbered, None)
            if following is None:
                return
            number, task = following
            self._pending[number] = task
            self._send(min(self._workers, key=lambda worker: len(worker.unanswered)), number)

    def _send(self, worker: _Worker, number: int) -> None:
        # To a dead worker nothing can be sent; that it is dead is noticed when its answers are collected.
        with suppress(OSError):
            worker.send(number, self._pending[number])

    def _collect(self) -> None:
        """Waits for at least one answer or death."""
        by_connection = {worker.connection: worker for worker in self._workers}
        for connection in wait(list(by_connection)):
            assert isinstance(connection, Connection)
            worker = by_connection[connection]
            try:
                number, *answer = worker.receive()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            del self._pending[number]
            self._answers[number] = (answer[0], answer[1])

    def _replace(self, worker: _Worker) -> None:
        worker.wait()
        end = worker.end()
        first = worker.unanswered[0] if worker.unanswered else -1
        self._deaths[first] += 1
        if self._deaths[first] >= MAX_DEATHS_OF_A_TASK and first >= 0:
            raise WorkersKeepDying(
                f"{MAX_DEATHS_OF_A_TASK} worker processes ended over the same task, the last one {end}: "
                f"{str(self._pending[first])[:500]}"
            )
        if self._deaths.total() >= MAX_DEATHS:
            raise WorkersKeepDying(f"{MAX_DEATHS} worker processes ended unasked, the last one {end}")
        logger.warning("a worker process ended unasked, %s; another takes its place", end)
        replacement = _Worker(self._reader)
        self._workers[self._workers.index(worker)] = replacement
        self._on_restart()
        for number in worker.unanswered:
            self._send(replacement, number)


def _environment() -> dict[str, str]:
    """The environment of this process, with its module search path, and one thread per worker."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109  # a string is wanted
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
