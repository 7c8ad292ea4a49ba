"""The tables of what ranks print: the output of each rank of a trial, and its lines in chunks."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Enum, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.domain import OutputStream
from service.store.models.base import SERIAL, Base


class RankOutput(Base):
    """The output of one rank of a trial, in all its runs."""

    __tablename__ = "rank_outputs"
    __table_args__ = (UniqueConstraint("trial_id", "rank"),)

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    trial_id: Mapped[str] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"))
    rank: Mapped[int]
    stored_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Bytes of the chunks that are kept."""


class OutputChunk(Base):
    """Lines that a rank printed to one stream between two looks."""

    __tablename__ = "output_chunks"
    __table_args__ = (Index("ix_output_chunks_output_id_id", "output_id", "id"), {"sqlite_autoincrement": True})

    id: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    output_id: Mapped[int] = mapped_column(ForeignKey("rank_outputs.id", ondelete="CASCADE"))
    stream: Mapped[OutputStream] = mapped_column(
        Enum(
            OutputStream,
            name="output_stream",
            native_enum=False,
            create_constraint=False,
            values_callable=lambda streams: [stream.value for stream in streams],
            length=10,
        )
    )
    source: Mapped[str] = mapped_column(String(120))
    """The name of the file that it was read from."""
    ends_at: Mapped[int] = mapped_column(BigInteger)
    """The place in that file after it."""
    omitted_bytes: Mapped[int] = mapped_column(BigInteger)
    """Printed before it, and not kept."""
    content: Mapped[str] = mapped_column(Text)
    """Lines, with a newline between two."""
    recorded_at: Mapped[datetime]
