"""The trained weights of a job's confirmation: where its trials write them, and which are kept when it has ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from service.checkpoint_files import WEIGHTS_DIRECTORY, weights_of
from service.scheduler.checkpoint_storage import directories_in, remove_all_but
from service.store.session import DATABASE_ERRORS, UNREADABLE_ROWS, Database
from service.use_cases.keeping.weights import winners_of
from trainers.storage import Place, StoreFailed, text_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WeightsPlaces:
    """The places where the trials of a job's confirmation write their weights."""

    place: Place
    """The place of the job's weights."""
    confirming: set[int]
    """The numbers of the trials of the confirmation; new ones are added."""

    def of_trial(self, number: int) -> str | None:
        """A path or URI; None: the trial confirms nothing, and its weights are not kept."""
        return text_of(self.place / str(number)) if number in self.confirming else None


def keep_winners(database: Database, checkpoints: Place, job_id: str) -> None:
    """Removes the weights of all trials except the winners' of a job that has ended; does nothing while it runs.

    Those of an unknown job stay: it can belong to another database.

    Raises:
        StoreFailed: the store did not answer.
        DATABASE_ERRORS: the database did not answer.
    """
    try:
        remove_all_but(
            database, weights_of(checkpoints, job_id), job_id, lambda session, job: winners_of(session, job).values()
        )
    except UNREADABLE_ROWS as error:
        logger.warning("the weights of job %s stay, as its rows cannot be read: %s", job_id, error)


def keep_winners_of_all(database: Database, checkpoints: Place) -> None:
    """Keeps only the winners' weights of every ended job that has any: a worker may have died before it did so."""
    try:
        for name in directories_in(checkpoints / WEIGHTS_DIRECTORY):
            keep_winners(database, checkpoints, name)
    except (StoreFailed, *DATABASE_ERRORS) as error:
        logger.warning("cannot see which weights can go: %s", error)  # the next start removes them
