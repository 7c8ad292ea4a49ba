"""The errors of saving and loading checkpoints."""

from __future__ import annotations

from trainers.storage import StoreFailed


class CheckpointMismatch(ValueError):
    """The checkpoints in a directory belong to a trial with another config, model or format."""


class CheckpointMissing(Exception):
    """A trial is to begin from a checkpoint that is not there, or that is damaged."""


class CheckpointNotWritten(Exception):
    """A checkpoint could not be written; earlier ones are untouched."""


class CheckpointNotStored(CheckpointNotWritten, StoreFailed):
    """A checkpoint could not be written because its place did not take it: a store is out, or a disk is full."""


class Damaged(Exception):
    """A checkpoint on disk cannot be read; the one before it is tried."""
