"""The choice between the implementations of `TrialFiles`: a directory, or a store, whose library loads only then."""

from __future__ import annotations

from trainers.checkpoints.directory import DirectoryFiles
from trainers.checkpoints.trial_files import TrialFiles
from trainers.storage import Place, StoreUri


def trial_files(place: Place) -> TrialFiles:
    """The files of the trial whose checkpoints lie at a place.

    Raises:
        StoreFailed: the URI has options that pyarrow does not know, or its library for the scheme is missing.
    """
    if isinstance(place, StoreUri):
        from trainers.checkpoints.store import StoreFiles  # imports pyarrow

        return StoreFiles(place)
    return DirectoryFiles(place)
