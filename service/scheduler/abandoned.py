"""Cleaning up after workers that were killed on this machine: their runs, and the directories of these runs."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import psutil

from service.scheduler.cluster import process_tree
from service.scheduler.cluster.run_environment import DIRECTORY_VARIABLE
from service.scheduler.external import beside as external_runs
from service.scheduler.run_process import DIRECTORY_PREFIX, RUN_MODULE, STOP_SECONDS


def end_abandoned_runs() -> None:
    """Ends the processes that killed workers on this machine have left running.

    A run that notices the end of its worker ends by itself. It gets time to give its job back, so that nobody has to
    wait for the end of the lease. Call it before this worker starts any run.
    """

    def abandoned() -> set[psutil.Process]:
        return process_tree.marked(DIRECTORY_VARIABLE, lambda directory: is_abandoned(Path(directory)))

    deadline = time.monotonic() + STOP_SECONDS
    while any(map(_is_run, abandoned())) and time.monotonic() < deadline:
        time.sleep(0.1)
    process_tree.end(abandoned)


def _is_run(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())  # a forked process shows it as one argument
        return any(module in command for module in (RUN_MODULE, external_runs.MODULE))
    except psutil.Error:
        return False


def remove_abandoned_directories() -> None:
    """Removes the temporary files of workers on this machine that were killed together with their run.

    Call it before this worker makes any: in a container, each worker in turn has the same process id.
    """
    for parent in {Path(tempfile.gettempdir()), Path("/tmp")}:  # see run_process.make_directory
        for directory in parent.glob(f"{DIRECTORY_PREFIX}*-*"):
            if is_abandoned(directory):
                shutil.rmtree(directory, ignore_errors=True)


def is_abandoned(directory: Path) -> bool:
    """True if the worker that made a run's directory is gone; call it before this worker makes any."""
    owner = directory.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
    return owner.isdecimal() and (int(owner) == os.getpid() or not psutil.pid_exists(int(owner)))
