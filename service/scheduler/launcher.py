"""Start of runs from a process that has imported what they and their ranks need: once for all runs of a worker.

That process, the launcher, imports while the worker waits for its first job. For a run it forks three times. One fork
is the run; the others, its children, are the template of its ranks (`cluster.worker_template`) and the template of the
processes that answer its questions about models (`trainers.processes.template`). So all imports are already done for a
run and its ranks, and the run is the parent of everything that it starts, as if it had started the templates itself. On
a cluster that is not the run's own there is no template: ranks are not forked there, and the launcher does not import
torch and other modules of ranks.

A forked run is like one that the worker starts: it is in a session of its own, with the environment, the arguments and
the streams that the worker gives it. `/proc` shows the launcher's variables for it, which hold no secrets of a run.

`Launcher` is the worker's side, and imports neither torch nor Ray; `python -m service.scheduler.launcher` is the other
side. A launcher that has died starts again for the next run. If processes cannot be forked, or launchers die again and
again, runs start as new interpreters.
"""

from __future__ import annotations

import importlib
import logging
import os
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Protocol

import psutil

from service.monitoring.logs import set_up_job_log, set_up_logs
from service.scheduler.cluster import worker_template
from service.scheduler.cluster.run_environment import DIRECTORY_VARIABLE
from service.scheduler.cluster.worker_start import SOCKET_VARIABLE, STANDARD_STREAMS, send_request
from service.settings import Settings
from trainers.processes import template
from trainers.processes.starting import GivenTemplate, forked_from

logger = logging.getLogger(__name__)

MODULES = (
    "service.scheduler.job_run",
    *("ray._private.arrow_serialization", "pydantic.v1", "starlette.datastructures"),
)
"""Modules to import in advance. Ray imports the last three in each process that connects to a cluster."""
WITH_RANKS = "ranks"
"""An argument of a launcher whose runs have templates."""
START_SECONDS = 60.0
"""Seconds that the launcher may take to be ready: on a quiet machine it imports for five."""
ENDING_SECONDS = 1.0
"""Time for a launcher that does not answer to end by itself, with a status that says why, before it is killed."""
MAX_FAILED = 3
"""Runs in a row that may find no launcher, by judgement; after that it is not started again: one that fails at its
imports costs each run their time."""
CANNOT_FORK = 0
"""The exit status of a launcher that must not be forked, nor would another one."""
NUMBER_BYTES = 8
"""Bytes of an integer in the protocol between a worker and its launcher: room for any exit status or process id."""
TITLE_BYTES = 300
"""Bytes of a run's command line. It overwrites the launcher's command line, and some of its variables if it is
longer."""


class RunProcess(Protocol):
    """The process of a run, with the methods that a worker uses."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """The process's exit status; negative: the signal that killed it. Raises: subprocess.TimeoutExpired."""

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Launcher:
    """The launcher of a worker, which ends with it; it starts one run after the other.

    The process that uses it must adopt orphans.
    """

    def __init__(self, environment: Mapping[str, str], *, forks_ranks: bool = True) -> None:
        """Starts the process, with these environment variables in addition to this process's.

        Args:
            forks_ranks: a run's ranks are forked, too, on a cluster of its own.
        """
        self._forks_ranks = forks_ranks
        self._environment = {
            **os.environ,
            **environment,
            "OMP_NUM_THREADS": "1",  # a rank sets those of torch
            "JE_ARROW_MALLOC_CONF": "background_thread:false",  # Arrow's allocator would start one
            **(worker_template.RAY_OF_FORKS if forks_ranks else {}),
            # The launchers of a killed worker are found by this variable; the directory does not exist.
            DIRECTORY_VARIABLE: str(Path(tempfile.gettempdir()) / f"shampoo-{os.getpid()}-launcher"),
        }
        self._num_failed = 0
        self._start()

    def _start(self) -> None:
        self._connection, theirs = socket.socketpair()
        kind = [WITH_RANKS] if self._forks_ranks else []
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), *kind, "-" * TITLE_BYTES],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self._environment,
                start_new_session=True,  # a Ctrl-C in the terminal reaches only the worker
            )
        self._connection.settimeout(START_SECONDS)

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def process(self) -> set[psutil.Process]:
        """Its process, which outlives the run that it was started for; empty: it is gone."""
        with suppress(psutil.NoSuchProcess):
            return {psutil.Process(self._process.pid)}
        return set()

    def close(self) -> None:
        """Ends the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def launch(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: int,
        output: int,
    ) -> RunProcess | None:
        """Calls `main(arguments)` of a module in a process and session of its own, with a template of its ranks if
        those are forked.

        Args:
            environment: all of its variables, including `DIRECTORY_VARIABLE`, the directory in which the template
                listens.
            stdin: the file descriptor of its standard input.
            output: the file descriptor of its standard output and error.

        Returns: its process; None: the launcher is not available.
        """
        status = self._process.poll()
        if status is not None and status != CANNOT_FORK and self._num_failed < MAX_FAILED:
            logger.warning("the launcher of runs has ended with status %d and starts again", status)
            self._connection.close()
            self._start()
        try:
            send_request(self._connection, [module, *arguments], environment, (stdin, output, output))
            run = _LaunchedRun(self._connection)
        except (OSError, EOFError) as error:
            logger.warning("a run starts by itself: its launcher does not answer (%s)", error or type(error).__name__)
            self._num_failed += 1
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_SECONDS)
            self._process.kill()
            return None
        self._num_failed = 0
        return run


class _LaunchedRun:
    """A run, the launcher's child."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = _receive_number(connection)
        self._process = psutil.Process(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        ready, _, _ = select.select([self._connection], [], [], timeout)
        if timeout is not None and not ready:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        try:
            return _receive_number(self._connection)
        except (OSError, EOFError):  # the launcher has died, and this process has adopted the run
            return _wait_for(self._process, timeout)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def _wait_for(process: psutil.Process, timeout: float | None) -> int:
    """Raises: subprocess.TimeoutExpired."""
    try:
        return int(process.wait(timeout) or 0)
    except psutil.TimeoutExpired as error:
        raise subprocess.TimeoutExpired(str(process.pid), error.seconds) from None


def _send_number(connection: socket.socket, number: int) -> None:
    connection.sendall(number.to_bytes(NUMBER_BYTES, "big", signed=True))


def _receive_number(connection: socket.socket) -> int:
    """Raises: EOFError: the other side is gone. TimeoutError: it takes too long."""
    content = connection.recv(NUMBER_BYTES, socket.MSG_WAITALL)
    if len(content) < NUMBER_BYTES:
        raise EOFError
    return int.from_bytes(content, "big", signed=True)


def serve(connection: socket.socket, *, forks_ranks: bool) -> None:
    """Starts the runs that `connection` asks for, one after the other, and reports how each ended.

    Raises:
        EOFError, BrokenPipeError: the worker is gone.
    """
    while True:
        arguments, environment, streams = worker_template.receive_request(connection)
        run = os.fork()
        if run == 0:
            connection.close()
            _become(arguments, environment, streams, forks_ranks=forks_ranks)
        for stream in streams:
            os.close(stream)
        _send_number(connection, run)
        _, status = os.waitpid(run, 0)
        _send_number(connection, os.waitstatus_to_exitcode(status))


def _become(
    arguments: Sequence[str], environment: dict[str, str], streams: Sequence[int], *, forks_ranks: bool
) -> NoReturn:
    """Starts the template of a run's ranks, if they are forked, and then becomes the run, until its end."""
    status = 1
    try:
        os.setsid()
        for stream, target in zip(streams, STANDARD_STREAMS, strict=True):
            os.dup2(stream, target)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        if forks_ranks:
            held = _start_template_of_ranks(Path(environment[DIRECTORY_VARIABLE]))
            with forked_from(_start_template_of_questions(held)):
                status = _run(*arguments)
        else:
            status = _run(*arguments)
    except BaseException:  # noqa: BLE001  # a process boundary
        traceback.print_exc()
    finally:
        os._exit(status)


def _start_template_of_ranks(directory: Path) -> int:
    """Forks the template of this run's ranks; it ends when the returned file descriptor is closed."""
    with worker_template.listening(directory) as listener:
        os.environ[SOCKET_VARIABLE] = str(listener.getsockname())
        end, held = os.pipe()  # it ends with this process
        if os.fork() == 0:
            os.close(held)
            set_up_job_log(Settings().log_format)
            worker_template.serve(listener, end)
            os._exit(0)
    os.close(end)
    return held


def _start_template_of_questions(held: int) -> GivenTemplate:
    """Forks the template of the processes that answer this run's questions about models.

    Args:
        held: a file descriptor that only this process may hold.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        if os.fork() == 0:
            os.close(held)
            ours.close()
            os._exit(_exit_status(lambda: template.serve(theirs)))
    return GivenTemplate(ours)


def _run(module: str, *arguments: str) -> int:
    """Runs a module as a command with these arguments; returns the exit status."""
    from service.scheduler.cluster.ray_internals import set_process_title  # the launcher has loaded it

    set_process_title(" ".join([sys.executable, "-m", module, *arguments])[:TITLE_BYTES])
    sys.argv = [module, *arguments]
    return _exit_status(lambda: importlib.import_module(module).main(arguments))


def _exit_status(run: Callable[[], object]) -> int:
    """The exit status of a process that runs this, unless it ends with another error; its output is flushed."""
    try:
        run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    """Imports, then serves the connection whose file descriptor is the first argument; the last argument only reserves
    room."""
    set_up_logs(Settings().log_format)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        connection.set_inheritable(False)
        forks_ranks = WITH_RANKS in sys.argv
        of_templates = (*worker_template.MODULES, *template.MODULES) if forks_ranks else ()
        if worker_template.can_fork_after_imports((*of_templates, *MODULES)):
            with suppress(EOFError, BrokenPipeError):
                serve(connection, forks_ranks=forks_ranks)


if __name__ == "__main__":
    main()
