"""The trained weights of a job's confirmation: where its trials write them, and which stay once it has ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from service.checkpoint_files import WEIGHTS_DIRECTORY, weights_of
from service.errors import NotFound
from service.scheduler.checkpoint_storage import directories_in, remove
from service.store.repositories import DeletionRepository, JobRepository
from service.store.session import DATABASE_ERRORS, UNREADABLE_ROWS, Database, Session
from service.use_cases.keeping.weights import winners_of
from trainers.storage import Place, StoreFailed, text_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WeightsPlaces:
    """The places where the trials of a job's confirmation write their weights."""

    place: Place
    """Of the job's."""
    confirming: set[int]
    """The numbers of the trials of the confirmation; new ones are added."""

    def of_trial(self, number: int) -> str | None:
        """A path or URI; None: the trial confirms nothing, and its weights are not kept."""
        return text_of(self.place / str(number)) if number in self.confirming else None


def keep_winners(database: Database, checkpoints: Place, job_id: str) -> None:
    """Removes the weights of all trials of a job but of its winners', if it has ended; of one that goes on, nothing.

    Those of an unknown job stay: it can be another database's.

    Raises:
        StoreFailed: the store did not answer.
        DATABASE_ERRORS: nor did the database.
    """
    place = weights_of(checkpoints, job_id)
    found = directories_in(place)  # first: a job that goes on again writes others
    if not found:
        return
    with database.reading() as session:
        kept = _kept(session, job_id)
    if kept is None:
        return
    if not kept.intersection(found):
        remove(place)
        return
    for name in found:
        if name not in kept:
            remove(place / name)


def _kept(session: Session, job_id: str) -> set[str] | None:
    """The names of the directories that stay; None: all."""
    jobs = JobRepository(session)
    try:
        if not jobs.state_of(job_id).is_final:
            return None
        return {str(number) for number in winners_of(session, jobs.get(job_id)).values()}
    except NotFound:
        return set() if DeletionRepository(session).among([job_id]) else None
    except UNREADABLE_ROWS as error:
        logger.warning("the weights of job %s stay, as its rows cannot be read: %s", job_id, error)
        return None


def keep_winners_of_all(database: Database, checkpoints: Place) -> None:
    """Does so for every job that has weights: a worker may have died before it did."""
    try:
        for name in directories_in(checkpoints / WEIGHTS_DIRECTORY):
            keep_winners(database, checkpoints, name)
    except (StoreFailed, *DATABASE_ERRORS) as error:
        logger.warning("cannot see which weights can go: %s", error)  # they go at the next start
