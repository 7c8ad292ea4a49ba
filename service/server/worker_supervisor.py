"""The worker beside the API: started with it, again whenever it ends, and what is known of why there is none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from datetime import datetime

import psutil

from service.evidence.in_words.wording import counted
from service.inert import one_line
from service.settings import ENV_PREFIX, Settings
from service.store.session import DATABASE_ERRORS, Database
from service.use_cases.leases import end_killed_worker
from service.use_cases.waiting import WorkerFault

WORKER_COMMAND = (sys.executable, "-m", "service", "worker", "--stop-with-stdin")
WORKER_STOP_SECONDS = 30.0  # more than the worker itself gives a run
"""A worker that has not stopped by itself after so long is killed with everything it started."""
FIRST_BACKOFF_SECONDS = 1.0
"""Time until a worker that died is started again; doubled each time, by judgement."""
LONGEST_BACKOFF_SECONDS = 30.0
"""Longest time up to which it is doubled, by judgement: jobs wait no longer for a fault that has gone."""
STABLE_SECONDS = 60.0
"""A worker that lived so long is started again without a growing pause."""
SLOW_START_SECONDS = 60.0
"""Time after which it is told where to look for what keeps a worker from taking jobs: on a busy machine its imports
take half a minute."""
LAST_WORDS_SECONDS = 1.0
"""Longest time that the last words of a worker which has ended are waited for, by judgement."""
KEPT_OUTPUT_BYTES = 4096
"""The end of a worker's log, in which its last line is looked for."""
SHOWN_CHARACTERS = 300
"""Characters of that line that are told."""
LOG_PLACE = "its log is the standard error of `shampoo-tuner serve`"

logger = logging.getLogger(__name__)


class WorkerSupervisor:
    """Keeps one worker process running."""

    def __init__(self, settings: Settings, database: Database, command: tuple[str, ...] = WORKER_COMMAND) -> None:
        self._command = command
        self._database = database
        self._environment = {**os.environ, **settings.to_environment()}
        if settings.log_format == "auto" and sys.stderr.isatty():
            self._environment[f"{ENV_PREFIX}LOG_FORMAT"] = "text"  # it sees a pipe
        self._stopping = asyncio.Event()
        self._log = _Log()
        self._began = time.monotonic()
        self._ends = 0
        self._how_last = self._last_words = ""
        self._telling: asyncio.Task[None] | None = None  # held: the loop holds no task
        self.process: asyncio.subprocess.Process | None = None

    def stop(self) -> None:
        self._stopping.set()

    def why_there_is_none(self) -> WorkerFault | None:
        """The trouble with the worker, for a person who sees none alive; None: it starts as it should.

        It tells how many have ended since one lived for long, the last line of the log, and where that is.
        """
        if self._ends:
            times = "" if self._ends == 1 else f" {counted(self._ends, 'time')} in a row, at last"
            ended = f"the service starts its worker again, which ended{times} {self._how_last}"
            return WorkerFault(ended, self._last_words, LOG_PLACE)
        if time.monotonic() - self._began > SLOW_START_SECONDS:
            return WorkerFault("the service's worker starts, but takes long", self._log.last_line, LOG_PLACE)
        return None

    async def run(self) -> None:
        """Starts the worker, again whenever it ends, until `stop`; then stops it and all it started."""
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            self._began, began_at = time.monotonic(), self._database.now()
            self.process = await self._start()
            exited = asyncio.create_task(self.process.wait())
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait({exited, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if self._stopping.is_set():
                await _stop(self.process, exited)
                await asyncio.to_thread(self._log.read_to_its_end)
                return
            if time.monotonic() - self._began > STABLE_SECONDS:
                backoff, self._ends = FIRST_BACKOFF_SECONDS, 0
            how = _end_in_words(exited.result())
            await asyncio.to_thread(self._log.read_to_its_end)
            self._how_last, self._last_words = how, self._log.last_line
            self._ends += 1
            logger.error("the worker ended %s; it starts again in %.0f s", how, backoff)
            # Not waited for: where the database is away, the next worker waits for it, too.
            self._telling = asyncio.create_task(asyncio.to_thread(self._tell_end, self.process.pid, began_at))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff)
            backoff = min(2 * backoff, LONGEST_BACKOFF_SECONDS)

    async def _start(self) -> asyncio.subprocess.Process:
        """Starts a worker, in a process group of its own: Ctrl-C in a terminal reaches this process alone, which then
        stops the worker in order. Its standard input, a pipe, tells it when this process is gone, however it went. What
        it writes goes to our standard error, as ours carries the address, by way of a thread that keeps its end."""
        output, written = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=written,
                stderr=written,
                env=self._environment,
                process_group=0,
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(written)
        self._log.begin(output)
        return process

    def _tell_end(self, pid: int, began_at: datetime) -> None:
        """Records the end of a worker that was killed; one that ends in order does so itself."""
        try:
            with self._database.writing() as session:
                end_killed_worker(session, host=socket.gethostname(), pid=pid, since=began_at, now=self._database.now())
        except DATABASE_ERRORS as error:  # until its lease ends it is taken for alive
            logger.warning("cannot tell that the worker has ended: %s", getattr(error, "orig", error))


class _Log:
    """The log of the workers, one after the other: passed on as it comes, and the end of it kept."""

    def __init__(self) -> None:
        self._end = b""
        self._thread: threading.Thread | None = None

    def begin(self, output: int) -> None:
        """Passes on what comes from a pipe, until nobody has its other end."""
        self._end = b""
        self._thread = threading.Thread(target=self._pass_on, args=(output,), name="worker-log", daemon=True)
        self._thread.start()

    def read_to_its_end(self) -> None:
        """Waits for the last words of a worker that is gone; not for long, as what it has started may have the pipe."""
        if self._thread is not None:
            self._thread.join(LAST_WORDS_SECONDS)

    @property
    def last_line(self) -> str:
        """The last line with anything on it, of a line for programs its message; empty: there is none."""
        lines = [line for line in self._end.decode(errors="replace").splitlines() if line.strip()]
        last = lines[-1].strip() if lines else ""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            last = str(json.loads(last)["event"])
        return one_line(last)[:SHOWN_CHARACTERS]

    def _pass_on(self, output: int) -> None:
        with open(output, "rb", buffering=0) as pipe:
            while piece := pipe.read(KEPT_OUTPUT_BYTES):
                self._end = (self._end + piece)[-KEPT_OUTPUT_BYTES:]
                with contextlib.suppress(OSError):  # it is closed, or a file on a full disk
                    _write_all(sys.stderr.fileno(), piece)


def _write_all(descriptor: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]


def _end_in_words(status: int) -> str:
    return f"with exit status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"


async def _stop(process: asyncio.subprocess.Process, exited: asyncio.Task[int]) -> None:
    descendants = _descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    done, _ = await asyncio.wait({exited}, timeout=WORKER_STOP_SECONDS)
    if not done:
        logger.error("the worker has not stopped in %.0f s and is killed", WORKER_STOP_SECONDS)
        descendants += _descendants(process.pid)
        process.kill()
        await exited
    _, left = psutil.wait_procs(descendants, timeout=1.0 if done else 0.0)
    for straggler in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            logger.warning("killing process %d, which outlived the worker", straggler.pid)
            straggler.kill()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
