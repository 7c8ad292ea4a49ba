"""The disks that a worker and its runs write to: how much a job takes, which files can be removed, and whether there is
room.

A job's use of the disk is bounded. It has the newest checkpoints of each unfinished trial (`keep_checkpoints` and one
being written), the log files of each living process, which Ray rotates, and two files of the job's own log. Everything
else is removed: checkpoints (on a path or in a store) when their trial ends, log files when their process has ended,
and the run's directory with the run.
"""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import psutil

from service.monitoring.readiness import why_no_room
from service.scheduler.checkpoint_storage import bytes_in, checkpoint_bytes
from service.settings import Settings
from trainers.storage import Place

LOG_BYTES = 8 * 2**20
"""If a run finds the job's log larger than this, it begins a new one; the previous one is kept."""

_PROCESS_LOG = re.compile(r"(?:worker|python-core-worker)-.*[-_](\d+)\.(?:out|err|log)(?:\.\d+)?")
"""Ray's names of log files of the processes that trials run in; the number is the process id."""


def log_of(data_dir: Path, job_id: str) -> Path:
    """The log of a job's runs."""
    return data_dir / "logs" / f"{job_id}.log"


def jobs_with_logs(data_dir: Path) -> set[str]:
    """The ids of the jobs with logs on this machine."""
    return {path.name.partition(".")[0] for path in log_of(data_dir, "job_*").parent.glob("job_*.log*")}


def remove_log(data_dir: Path, job_id: str) -> None:
    """Removes the log of a job's runs, if there is one."""
    log = log_of(data_dir, job_id)
    for path in (log, _earlier(log)):
        path.unlink(missing_ok=True)


def disk_bytes(data_dir: Path, job_id: str, *, checkpoints: Place, run_directory: Path) -> int:
    """Bytes of all files of a job: checkpoints, logs, and the files of its run on this machine.

    Walks the directories, which takes milliseconds for hundreds of files; a store lists a thousand in one request.

    Raises:
        StoreFailed: the store did not answer.
    """
    log = log_of(data_dir, job_id)
    return checkpoint_bytes(checkpoints) + sum(map(bytes_in, [log, _earlier(log), run_directory]))


def begin_log(log: Path) -> None:
    """Makes room for a run's log: renames a large one, which replaces the one that was renamed before.

    Raises:
        OSError: the disk refused.
    """
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(_earlier(log))


def remove_logs_of_ended_processes(run_directory: Path) -> None:
    """Removes Ray's log files of ended rank and trainable processes, in a run's directory."""
    for path in run_directory.glob("session_2*/logs/*"):
        match = _PROCESS_LOG.fullmatch(path.name)
        if match is not None and not psutil.pid_exists(int(match[1])):
            path.unlink(missing_ok=True)


def _earlier(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


logger = logging.getLogger(__name__)


class Room:
    """The room on the disks of one process, which may be asked from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._why_none: str | None = None
        """The reason that was logged last."""

    def why_none(self) -> str | None:
        """The words of `/readyz` on the disks of a service that trains on this machine; None: they have room."""
        # A worker sees checkpoints on a path, wherever the ranks that write them are.
        return why_no_room(self._settings, data_are_here=True)

    def is_there(self) -> bool:
        """True if there is room; it logs when that ends, and when there is room again."""
        why_none = self.why_none()
        with self._lock:
            had, self._why_none = self._why_none, why_none
        if why_none is not None and had is None:
            logger.warning("no job is begun until there is room: %s", why_none)
        elif why_none is None and had is not None:
            logger.info("there is room again: jobs are begun")
        return why_none is None
