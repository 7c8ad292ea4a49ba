"""Bodies about the checkpoints of a trial."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict

from service.api import examples
from service.api.schemas.common import ReadModel


class CheckpointFileRead(ReadModel):
    name: str
    """Of the file within the checkpoint."""
    num_bytes: int
    """Its size."""
    sha256: str | None
    """As the manifest says; null: of the manifest itself, or where there is none."""


class CheckpointRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.CHECKPOINT]})

    name: str
    """Of the checkpoint within the trial."""
    step: int
    """Of the training that it holds."""
    written_at: datetime
    """When it was complete."""
    num_bytes: int
    """Of all its files."""
    world_size: int | None
    """Ranks that wrote it, each a file; null: the manifest is missing or damaged."""
    is_whole: bool
    """True if all files that belong to it are there; their checksums are not looked at."""
    files: list[CheckpointFileRead]
    """Those that it is made of."""


class CheckpointList(ReadModel):
    """The checkpoints of a trial, the newest first."""

    items: list[CheckpointRead]
    """The newest first."""
