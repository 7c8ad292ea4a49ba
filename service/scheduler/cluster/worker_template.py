"""Template process of a run's Ray workers on this machine: it has imported what ranks need, and forks one process for
each.

A rank imports for seconds before it can train: torch, Ray, and the modules of DDP and sharded tensors. A fork has all
of that already, and shares its memory. Forking is safe only for a process with one thread that has not touched a device
or connected to a cluster. If an import has started a thread, nothing is forked, and workers start in the usual way.

A forked worker is like one that Ray starts: it is in a process group of its own, has the environment, the arguments and
the streams that Ray gives it, and ends when its raylet is gone.

Ray's library reads a worker's job and its raylet from the environment once, when it is loaded. A template that was
forked by a launcher has already loaded it, with `RAY_OF_FORKS`. These name the first job of a cluster, because a run is
the only job of its own cluster, and for the raylet a process that never ends, so each fork watches its raylet itself.
The library also draws random ids from a state that forks share. Two workers that began at the same time stored objects
with the same id; one of them died, and Ray waited a minute before it started another. So each fork begins at its own
place in the sequence. A template that was started by a run has not loaded Ray; its forks load it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import psutil

from service.monitoring.logs import set_up_job_log
from service.scheduler.cluster import process_tree, worker_exits
from service.scheduler.cluster.worker_start import ACCEPTED, SOCKET_VARIABLE, STANDARD_STREAMS
from service.settings import Settings
from trainers.processes.ending import without_taking_down_modules

logger = logging.getLogger(__name__)

MODULES = ("trainers.loop", "torch.distributed.checkpoint", "torch._dynamo")
"""Modules to import in advance. The second writes checkpoints, and has DTensor; DDP imports the last when it wraps its
first model."""
RAY_OF_FORKS = {"RAY_JOB_ID": "01000000", "RAY_RAYLET_PID": "1"}
"""Variables for Ray's library in a process that is to be forked."""
SOCKET_NAME = "template"
IDS_OF_A_FORK = 1_000
"""Random ids that Ray's library may draw in one fork before it reaches those of the next fork: a rank draws a few, and
drawing all of them takes a millisecond."""
RAYLET_SECONDS = 0.5
"""Seconds between two looks at a raylet, by judgement, where the system does not tell of its end."""
REQUEST_SECONDS = 10.0
"""Seconds that a worker's start may take to send its request, which it does at once."""


class WorkerTemplate:
    """The template process of this run, which ends with it. It imports while the caller continues.

    Workers that Ray starts from now on ask it for a fork; those that come before it is ready wait.
    """

    def __init__(self, directory: Path) -> None:
        """Starts the process; its socket is in `directory`, a short path."""
        with listening(directory) as listener:
            # It reads its standard input only for its end, which is the end of this process.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                env={**os.environ, "OMP_NUM_THREADS": "1"},  # a rank sets those of torch
            )
            os.environ[SOCKET_VARIABLE] = str(listener.getsockname())  # Ray's processes inherit it

    @property
    def pid(self) -> int:
        """The template process, whose children are the workers that it has forked."""
        return self._process.pid

    def __enter__(self) -> WorkerTemplate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; the workers that it has forked live on."""
        os.environ.pop(SOCKET_VARIABLE, None)
        self._process.kill()
        self._process.communicate()


def is_useful(address: str | None) -> bool:
    """True if the workers of the cluster at `address`, None for one of the run's own, can be forked by its template."""
    return address is None and sys.platform == "linux"


def listening(directory: Path) -> socket.socket:
    """A socket at which a template will listen, only for this user; it is in `directory`, a short path."""
    address = directory / SOCKET_NAME
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(address))
    address.chmod(0o600)
    listener.listen(128)
    return listener


def serve(listener: socket.socket, parent: int) -> None:
    """Forks a worker for each connection, until the file descriptor `parent` ends. How each worker ended is noted next
    to the socket."""
    exits = worker_exits.directory_beside(str(listener.getsockname()))
    exits.mkdir(mode=0o700, exist_ok=True)
    an_end, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # without a handler, nothing is written to the pipe
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([listener.fileno(), parent, an_end], [], [])
        if parent in ready:
            return
        if an_end in ready:
            os.read(an_end, select.PIPE_BUF)
            _note_ends(exits)
        if listener.fileno() not in ready:
            continue
        connection, _ = listener.accept()
        with connection:
            try:
                connection.settimeout(REQUEST_SECONDS)
                arguments, environment, streams = receive_request(connection)
            except (OSError, EOFError, ValueError, KeyError) as error:
                logger.warning("a worker's start asked for nothing that can be done: %s", error)
                continue
            if has_ray() and environment.get("RAY_JOB_ID") != RAY_OF_FORKS["RAY_JOB_ID"]:
                logger.warning("a worker of job %s of its cluster starts by itself", environment.get("RAY_JOB_ID"))
            elif (worker := _fork()) == 0:
                signal.set_wakeup_fd(-1)
                listener.close()
                for descriptor in (parent, an_end, told):
                    os.close(descriptor)
                _accept(connection)
                _become(arguments, environment, streams)
            else:
                worker_exits.forget(exits, worker)
            for stream in streams:
                os.close(stream)


def _fork() -> int:
    """Forks this process; 0 in the fork, whose random ids are not those of any other."""
    if has_ray():
        from ray import ObjectRef

        for _ in range(IDS_OF_A_FORK):
            ObjectRef.from_random()
    return os.fork()


def _note_ends(exits: Path) -> None:
    """Notes how forks ended, for all ended ones without a note."""
    with contextlib.suppress(ChildProcessError):  # none is left
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            worker, status = ended
            worker_exits.note(exits, worker, os.waitstatus_to_exitcode(status))


def receive_request(connection: socket.socket) -> tuple[list[str], dict[str, str], list[int]]:
    """The arguments, environment and streams of the process that `worker_start.send_request` asks for.

    Raises:
        EOFError: the other side is gone.
        OSError, ValueError, KeyError: it is not such a request.
    """
    length, streams, _, _ = socket.recv_fds(connection, 8, len(STANDARD_STREAMS))
    if not length:
        raise EOFError
    if len(streams) != len(STANDARD_STREAMS):
        raise ValueError(f"{len(streams)} streams")
    with connection.makefile("rb") as file:
        request = json.loads(file.read(int.from_bytes(length, "big")))
    return request["arguments"], request["environment"], streams


def _accept(connection: socket.socket) -> None:
    """Tells a worker's start that this process is its worker; ends this process if the other side is gone."""
    with connection:
        try:
            connection.sendall(ACCEPTED)
        except OSError:  # it has given up, and started the worker itself
            os._exit(1)


def _become(arguments: list[str], environment: dict[str, str], streams: list[int]) -> NoReturn:
    """Runs a worker's script to its end, as a new interpreter would."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream, target in zip(streams, STANDARD_STREAMS, strict=True):
        os.dup2(stream, target)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    script = arguments[0]
    sys.argv, sys.path[0] = arguments, str(Path(script).parent)
    if has_ray():
        threading.Thread(
            target=_end_with, args=[int(environment["RAY_RAYLET_PID"])], name="raylet", daemon=True
        ).start()
    runpy.run_path(script, run_name="__main__")
    sys.exit()


def has_ray() -> bool:
    """True if this process has loaded Ray's library."""
    return "ray._raylet" in sys.modules


def _end_with(raylet: int) -> None:
    """Ends this process and what it has started when its raylet is gone."""
    try:
        select.select([os.pidfd_open(raylet)], [], [])
    except (AttributeError, OSError):  # a kernel below 5.3, a Python that was built for one, or it is gone already
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(raylet)
            while not process_tree.any_is_gone([process]):
                time.sleep(RAYLET_SECONDS)
    os.killpg(0, signal.SIGKILL)


def can_fork_after_imports(modules: Iterable[str] = MODULES) -> bool:
    """Imports what ranks need; False, with a warning: this process must not be forked from here on."""
    gc.disable()  # a quarter of the time would be spent on looking for garbage among objects that stay
    for module in modules:
        importlib.import_module(module)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        logger.warning("an import has started a thread: workers are not forked")
        return False
    gc.freeze()  # no collection, here or in a fork, touches the shared memory
    gc.enable()
    return True


def main() -> None:
    """Imports, then serves the socket whose file descriptor is the only argument."""
    set_up_job_log(Settings().log_format)
    with socket.socket(fileno=int(sys.argv[1])) as listener, contextlib.suppress(KeyboardInterrupt):
        if can_fork_after_imports():
            serve(listener, sys.stdin.fileno())


if __name__ == "__main__":
    with without_taking_down_modules():
        main()
