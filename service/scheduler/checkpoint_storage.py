"""The checkpoints of jobs, on a shared path or in a store: counted, collected and tried out. Imports no torch."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from service.clock import Clock, utc_now
from service.errors import NotFound, ServiceError
from service.store.repositories import DeletionRepository, JobRepository
from service.use_cases.leases import note_freed
from trainers.storage import Place, StoreFailed

if TYPE_CHECKING:
    from service.store.models import Job
    from service.store.session import Database, Session
    from trainers.storage.object_store import ObjectStore

logger = logging.getLogger(__name__)


class CheckpointsUnusable(ServiceError):
    """No checkpoint can be written where the settings say."""


def checkpoints_of(place: Place, job_id: str) -> Place:
    """The place of a job's checkpoints; each unfinished trial has a directory in it, named by its number."""
    return place / job_id


def checkpoint_bytes(place: Place) -> int:
    """Bytes of all files at a place.

    Raises:
        StoreFailed: the store did not answer.
    """
    # Tried once: the caller asks again soon.
    return bytes_in(place) if isinstance(place, Path) else sum(_store(place, outage_seconds=0.0).files().values())


def bytes_in(path: Path) -> int:
    """Bytes of a file, or of all files in a directory; a file with several names counts once."""
    found: dict[tuple[int, int], int] = {}
    # Files and directories appear and vanish meanwhile, which `os.walk` tolerates.
    inside = [Path(directory, name) for directory, _, names in os.walk(path) for name in names]
    for file in [path, *inside]:
        # A link counts as itself.
        with suppress(OSError):
            if file.is_file():
                status = file.lstat()
                found[status.st_dev, status.st_ino] = status.st_size
    return sum(found.values())


def directories_in(place: Place) -> list[str]:
    """Names of the directories right at a place.

    Raises:
        StoreFailed: the store did not answer.
    """
    if isinstance(place, Path):
        return sorted(path.name for path in place.glob("*"))
    return _store(place, outage_seconds=0.0).directories()


def remove(place: Place) -> None:
    """Removes everything at a place; what cannot be removed is logged, and stays."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    try:
        _store(place, outage_seconds=0.0).delete()
    except StoreFailed as error:
        logger.warning("checkpoints stay for now: %s", error)


def remove_of_ended_trials(place: Place, *, unfinished: Collection[int]) -> None:
    """Removes the checkpoints of every trial of a job that is not in `unfinished` when its turn comes.

    A rank may still write a checkpoint of a trial that was just pruned; the next call removes it.

    Raises:
        StoreFailed: the store did not answer.
    """
    for name in directories_in(place):
        if name.isdecimal() and int(name) not in unfinished:
            remove(place / name)


class Collector:
    """Removes the checkpoints of trials that have ended.

    On a path it does so at once. In a store, where each removal takes a while, a thread does it, so trials do not wait.
    """

    def __init__(self, place: Place, *, unfinished: Collection[int]) -> None:
        """`unfinished` may change; a trial is in it before it writes anything."""
        self._place = place
        self._unfinished = unfinished
        self._is_wanted = threading.Event()
        if not isinstance(place, Path):
            threading.Thread(target=self._collect, name="collect-checkpoints", daemon=True).start()

    def collect_now(self, *, not_launched: Collection[int]) -> None:
        """Removes the checkpoints of all trials that are not unfinished or were not launched, before it returns."""
        kept = set(self._unfinished) - set(not_launched)
        try:
            remove_of_ended_trials(self._place, unfinished=kept)
        except StoreFailed as error:
            logger.warning("checkpoints of ended trials stay for now: %s", error)

    def collect(self) -> None:
        """Removes the checkpoints of all trials that are not unfinished: at once, or in a store soon after."""
        if isinstance(self._place, Path):
            remove_of_ended_trials(self._place, unfinished=self._unfinished)
        else:
            self._is_wanted.set()

    def _collect(self) -> None:
        while True:
            self._is_wanted.wait()
            self._is_wanted.clear()
            try:
                remove_of_ended_trials(self._place, unfinished=self._unfinished)
            except StoreFailed as error:
                logger.warning("checkpoints of ended trials stay for now: %s", error)


def try_out(place: Place, *, setting: str, value: str) -> None:
    """Writes a small file to the place of the checkpoints, reads it and deletes it.

    Args:
        setting: the name of the setting with the place, for the message.
        value: its value, without secrets.

    Raises:
        CheckpointsUnusable: any of it fails; a store is tried again for a while before.
    """
    if isinstance(place, Path):
        return  # the first checkpoint makes it, and writes to it
    name, content = f"trial-{secrets.token_hex(8)}", b"shampoo-tuner"
    try:
        store = _store(place)
        store.write(f"{name}/probe", lambda: [content])
        found = store.read(f"{name}/probe")
        store.delete(name)
    except (StoreFailed, FileNotFoundError, ModuleNotFoundError) as error:
        raise CheckpointsUnusable(f"{setting}={value}: no checkpoint can be kept there: {error}") from None
    if found != content:
        raise CheckpointsUnusable(f"{setting}={value}: what was written there is not what is read")


def _store(place: Place, *, outage_seconds: float | None = None) -> ObjectStore:
    from trainers.storage.object_store import ObjectStore  # imports pyarrow

    assert not isinstance(place, Path)
    return ObjectStore(place, outage_seconds=outage_seconds)


def remove_all_but(
    database: Database,
    place: Place,
    job_id: str,
    kept: Callable[[Session, Job], Collection[int]],
    *,
    clock: Clock = utc_now,
) -> None:
    """Removes the directories of a job's trials, if it has ended, except those of `kept`; for a deleted job it removes
    all.

    The stored disk use of the job is updated.

    Those of an unknown job stay: they can belong to another database.

    Args:
        kept: gives the numbers of the trials whose directories stay.

    Raises:
        StoreFailed: the store did not answer.
        DATABASE_ERRORS: the database did not answer.
        UNREADABLE_ROWS: a row of the job cannot be read; nothing is removed.
    """
    found = directories_in(place)  # first: a job that continues meanwhile writes others
    with database.reading() as session:
        jobs = JobRepository(session)
        try:
            if not jobs.state_of(job_id).is_final:
                return
            stay = {str(number) for number in kept(session, jobs.get(job_id))}
        except NotFound:
            if not DeletionRepository(session).among([job_id]):
                return
            stay = set()
    gone = [place] if stay.isdisjoint(found) else [place / name for name in found if name not in stay]
    num_bytes = sum(map(checkpoint_bytes, gone))
    for each in gone:
        remove(each)
    if num_bytes and (freed := num_bytes - sum(map(checkpoint_bytes, gone))):
        with database.writing() as session:
            note_freed(session, job_id, freed, now=clock())
