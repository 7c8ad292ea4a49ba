"""The process of a run: its start with its files, its stop with its worker, and the description of its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.scheduler.cluster.run_environment import run_environment
from service.scheduler.launcher import Launcher, RunProcess
from service.scheduler.output.lines import lines_of
from service.settings import Settings
from service.use_cases.leases import Lease

STOP_SECONDS = 15.0
"""Seconds that a run may take to stop before it is killed."""
LOG_TAIL_BYTES = 2000
"""Last bytes of the log of a run that died, by judgement: the end of a traceback, which says why."""
DIRECTORY_PREFIX = "shampoo-"
MAX_PARENT_BYTES = 18
"""Longest path of a directory for temporary files below which Ray can put its sockets, whose paths may have 107 bytes,
103 on macOS. Below it they have up to 89, with process ids of seven digits, and up to 85 with macOS's of five."""
RUN_MODULE = "service.scheduler.job_run"


def make_directory() -> Path:
    """A new directory for a run's temporary files; the name tells whose it is.

    Raises:
        OSError: it cannot be made.
    """
    parent = Path(tempfile.gettempdir())
    if len(os.fsencode(parent)) > MAX_PARENT_BYTES:
        parent = Path("/tmp")  # mkdtemp makes it private
    try:
        return Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-", dir=parent))
    except OSError as error:
        other = f"TMPDIR may name another directory, with a path of at most {MAX_PARENT_BYTES} bytes"
        raise OSError(error.errno, f"{error.strerror} ({other})", error.filename) from error


@contextmanager
def held_pipe() -> Iterator[int]:
    """The reading end of a pipe that nobody writes to: its end of file tells a run that this process is gone."""
    end, held = os.pipe()
    try:
        yield end
    finally:
        os.close(end)
        os.close(held)


def start_run(
    lease: Lease,
    settings: Settings,
    directory: Path,
    *,
    stdin: int,
    output: int,
    launcher: Launcher | None,
    module: str = RUN_MODULE,
) -> RunProcess:
    """Starts the process of a run, in a session of its own: a Ctrl-C in the terminal reaches only the worker."""
    arguments = [
        *("--job", lease.job_id, "--worker", lease.worker_id, "--attempt", str(lease.attempt)),
        *("--directory", str(directory)),
    ]
    environment = {**os.environ, **run_environment(settings, directory)}
    if launcher is not None:
        run = launcher.launch(RUN_MODULE, arguments, environment=environment, stdin=stdin, output=output)
        if run is not None:
            return run
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin,
        stdout=output,
        stderr=output,
        env=environment,
        start_new_session=True,
    )


def supervise(run: RunProcess, stop: threading.Event) -> int:
    """Waits for a run, and stops it when the worker has to stop; returns its exit status."""
    while not stop.is_set():
        try:
            return run.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    run.terminate()
    try:
        return run.wait(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        run.kill()
        return run.wait()


def describe_crash(status: int, log: Path, log_start: int) -> str:
    """Describes a run that died: how, and the end of what it logged."""
    how = f"exit status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(log_start, end - LOG_TAIL_BYTES))
        tail = "\n".join(lines_of(file.read())).strip()
    return f"{how}; its log ends: {tail}" if tail else how
