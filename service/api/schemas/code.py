"""Bodies about code that comes with jobs."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict

from service.api import examples
from service.api.schemas.common import ReadModel


class CodeRead(ReadModel):
    """Code that a project has; a job names it as `code.sha256`."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.CODE]})

    sha256: str
    """The digest of the files' names, modes and contents."""
    num_files: int
    """The number of files in it."""
    num_bytes: int
    """The size of all files, unpacked."""
    stored_bytes: int
    """The size of the archive, as it is stored."""
    owner: str | None
    """The name of the token that sent it first; null: the service asked for no token."""
    created_at: datetime
    """The time at which it was sent first."""
    used_at: datetime
    """The time at which it was last sent, or named by a new job."""


class CodeItem(CodeRead):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.CODE_ITEM]})

    num_jobs: int
    """The number of jobs that name it. Without any it is removed a day after it was last used."""
