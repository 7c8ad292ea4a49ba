"""The output of ranks on a worker's own machine, kept by the worker, which outlives the run and notices its end."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from service.domain import JobState
from service.errors import NotFound
from service.scheduler.output.files import directory_of, local_parent
from service.scheduler.output.keeper import OutputKeeper
from service.scheduler.output.reading import Piece, read_output
from service.settings import Settings
from service.store.repositories import DeletionRepository, JobRepository
from service.store.session import DATABASE_ERRORS, Database

logger = logging.getLogger(__name__)


class LocalOutput:
    """The files in one directory of this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, kept: Mapping[str, int]) -> list[Piece]:
        return read_output(self._directory, kept)

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def local_keeper(settings: Settings, database: Database, job_id: str) -> OutputKeeper | None:
    """Keeps the output of ranks on this machine. None: no ranks run here (the run keeps the output on other machines),
    or output is not kept.
    """
    if settings.cluster_address is not None or not settings.log_bytes_per_rank:
        return None
    source = LocalOutput(directory_of(str(local_parent(settings.data_dir)), job_id))
    return OutputKeeper(database, job_id, source, bytes_per_rank=settings.log_bytes_per_rank)


def keep_what_was_left(settings: Settings, database: Database) -> None:
    """Keeps the output of ranks on this machine whose workers were killed, for jobs that nobody runs now."""
    parent = local_parent(settings.data_dir)
    names = [path.name for path in parent.iterdir()] if parent.is_dir() else []
    if not names:
        return
    try:
        with database.reading() as session:
            deleted = DeletionRepository(session).among(names)
    except DATABASE_ERRORS as error:
        logger.warning("cannot see whose output can go: %s", error)
        return  # the next start does it
    for name in names:
        if name in deleted:
            shutil.rmtree(parent / name, ignore_errors=True)
            continue
        try:
            with database.reading() as session:
                is_running = JobRepository(session).state_of(name) is JobState.RUNNING
        except (NotFound, *DATABASE_ERRORS):
            continue  # it belongs to another database, or the next worker tries again
        keeper = None if is_running else local_keeper(settings, database, name)
        if keeper is not None:
            keeper.keep_all()
