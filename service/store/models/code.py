"""The table of code that comes with jobs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.models.base import Base


class Code(Base):
    """A directory of code that somebody sent, once in each project that has it."""

    __tablename__ = "code"

    project: Mapped[str] = mapped_column(String(64), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    """The digest of the files' names, modes and contents."""
    archive: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    """The files, as `service.code.archive` packs them."""
    stored_bytes: Mapped[int] = mapped_column(BigInteger)
    """Bytes of the archive."""
    num_files: Mapped[int]
    num_bytes: Mapped[int] = mapped_column(BigInteger)
    """Bytes of all files, unpacked."""
    owner: Mapped[str | None] = mapped_column(String(100))
    """The name of the token that sent it first."""
    created_at: Mapped[datetime]
    used_at: Mapped[datetime]
    """The time at which it was last sent, or named by a new job."""
