"""The output of ranks: chunks of lines, bounded for each rank."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, delete, exists, func, select, update
from sqlalchemy.orm import Session

from service.domain import OutputStream
from service.store.models import OutputChunk, RankOutput, Trial
from service.store.session import MAX_IDS

CHUNK_BYTES = 100
"""Bytes of a stored chunk beside its lines."""


@dataclass(frozen=True, slots=True)
class NewChunk:
    """Lines to be kept."""

    trial_id: str
    rank: int
    stream: OutputStream
    source: str
    ends_at: int
    omitted_bytes: int
    content: str


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """Lines that a rank printed to one stream between two looks."""

    id: int
    rank: int
    stream: OutputStream
    recorded_at: datetime
    omitted_bytes: int
    """Printed before it by this rank, and not kept."""
    content: str

    @property
    def lines(self) -> list[str]:
        return self.content.split("\n")


class OutputRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, chunks: Sequence[NewChunk], *, bytes_per_rank: int, now: datetime) -> None:
        """Adds chunks. Once more than 1.25 times `bytes_per_rank` is kept of a rank, the first quarter of that number
        stays, and as much of the end as fits; what lies between is removed."""
        outputs = {key: self._output(*key) for key in dict.fromkeys((chunk.trial_id, chunk.rank) for chunk in chunks)}
        for chunk in chunks:
            output = outputs[chunk.trial_id, chunk.rank]
            output.stored_bytes += CHUNK_BYTES + len(chunk.content.encode())
            self._session.add(
                OutputChunk(
                    output_id=output.id,
                    stream=chunk.stream,
                    source=chunk.source,
                    ends_at=chunk.ends_at,
                    omitted_bytes=chunk.omitted_bytes,
                    content=chunk.content,
                    recorded_at=now,
                )
            )
        self._session.flush()
        for output in outputs.values():
            # A quarter more is let pass, so that what is removed is not read at every look.
            if output.stored_bytes > bytes_per_rank * 1.25:
                self._remove_middle(output, bytes_per_rank)

    def _output(self, trial_id: str, rank: int) -> RankOutput:
        """The output of a rank, made if there is none, locked for this transaction."""
        found = self._session.scalars(
            select(RankOutput).where(RankOutput.trial_id == trial_id, RankOutput.rank == rank).with_for_update()
        ).one_or_none()
        if found is None:
            found = RankOutput(trial_id=trial_id, rank=rank, stored_bytes=0)
            self._session.add(found)
            self._session.flush()
        return found

    def _remove_middle(self, output: RankOutput, bytes_per_rank: int) -> None:
        # Characters, not bytes, which SQLite does not count: text of one language stays near its bound, others below 4
        # times of it.
        size = func.length(OutputChunk.content) + CHUNK_BYTES
        rows = self._session.execute(
            select(OutputChunk.id, size, OutputChunk.omitted_bytes)
            .where(OutputChunk.output_id == output.id)
            .order_by(OutputChunk.id)
        ).all()
        total, head = sum(row[1] for row in rows), 0
        excess = total - bytes_per_rank
        gone, missing = list[int](), 0
        for chunk_id, num_bytes, omitted in rows[:-1]:
            head += num_bytes
            if head <= bytes_per_rank // 4:
                continue
            if excess <= 0:
                break
            gone.append(chunk_id)
            excess -= num_bytes
            missing += num_bytes - CHUNK_BYTES + omitted
        if gone:
            first_kept = next(row[0] for row in rows if row[0] > gone[-1])
            for start in range(0, len(gone), MAX_IDS):
                some = OutputChunk.id.in_(gone[start : start + MAX_IDS])
                self._session.execute(delete(OutputChunk).where(some))
            self._session.execute(
                update(OutputChunk)
                .where(OutputChunk.id == first_kept)
                .values(omitted_bytes=OutputChunk.omitted_bytes + missing)
            )
        kept = select(func.coalesce(func.sum(size), 0)).where(OutputChunk.output_id == output.id)
        output.stored_bytes = self._session.scalar(kept) or 0

    def kept_up_to(self, trial_ids: Collection[str]) -> dict[str, int]:
        """{name of a file: the place in it up to which it is kept}, of these trials."""
        found: dict[str, int] = {}
        ids = list(trial_ids)
        for start in range(0, len(ids), MAX_IDS):
            statement = (
                select(OutputChunk.source, func.max(OutputChunk.ends_at))
                .join(RankOutput, RankOutput.id == OutputChunk.output_id)
                .where(RankOutput.trial_id.in_(ids[start : start + MAX_IDS]))
                .group_by(OutputChunk.source)
            )
            found |= {row[0]: row[1] for row in self._session.execute(statement)}
        return found

    def last_id(self) -> int:
        """The newest chunk's id; 0: there is none."""
        return self._session.scalar(select(func.coalesce(func.max(OutputChunk.id), 0))) or 0

    def ranks(self, trial_id: str) -> list[int]:
        """The ranks of a trial that printed anything."""
        statement = select(RankOutput.rank).where(RankOutput.trial_id == trial_id).order_by(RankOutput.rank)
        return list(self._session.scalars(statement))

    def printing(self, job_id: str, numbers: Collection[int]) -> set[int]:
        """The numbers among these of trials of a job whose ranks printed anything."""
        printed = exists(select(RankOutput.trial_id).where(RankOutput.trial_id == Trial.id).correlate(Trial))
        statement = select(Trial.number).where(Trial.job_id == job_id, Trial.number.in_(list(numbers)), printed)
        return set(self._session.scalars(statement))

    def after(
        self,
        trial_id: str,
        *,
        after_id: int = 0,
        rank: int | None = None,
        stream: OutputStream | None = None,
        since: datetime | None = None,
        limit: int,
    ) -> list[StoredChunk]:
        """Up to `limit` chunks of a trial with an id above `after_id`, the oldest first."""
        statement = _of_trial(trial_id, rank, stream, since).where(OutputChunk.id > after_id)
        return self._read(statement.order_by(OutputChunk.id).limit(limit))

    def newest(
        self,
        trial_id: str,
        *,
        rank: int | None = None,
        stream: OutputStream | None = None,
        since: datetime | None = None,
        before_id: int | None = None,
        limit: int,
    ) -> list[StoredChunk]:
        """The last `limit` chunks of a trial, or of those before one of them, the oldest first."""
        statement = _of_trial(trial_id, rank, stream, since)
        if before_id is not None:
            statement = statement.where(OutputChunk.id < before_id)
        return self._read(statement.order_by(OutputChunk.id.desc()).limit(limit))[::-1]

    def bytes_of_job(self, job_id: str) -> int:
        """The bytes of all that is kept of a job's ranks."""
        statement = select(func.coalesce(func.sum(RankOutput.stored_bytes), 0)).join(
            Trial, Trial.id == RankOutput.trial_id
        )
        return int(self._session.scalar(statement.where(Trial.job_id == job_id)) or 0)

    def delete_of_job(self, job_id: str, *, limit: int) -> int:
        """Deletes what up to `limit` ranks of a job printed; how many there were."""
        statement = select(RankOutput.id).join(Trial, Trial.id == RankOutput.trial_id).where(Trial.job_id == job_id)
        found = list(self._session.scalars(statement.order_by(RankOutput.id).limit(limit)))
        self._session.execute(delete(RankOutput).where(RankOutput.id.in_(found)))
        return len(found)

    def _read(self, statement: Select[int, int, OutputStream, datetime, int, str]) -> list[StoredChunk]:
        return [StoredChunk(*row) for row in self._session.execute(statement)]


def trial_ids(session: Session, job_id: str, numbers: Iterable[int]) -> Mapping[int, str]:
    """{number: id} of those of these trials that there are."""
    statement = select(Trial.number, Trial.id).where(Trial.job_id == job_id, Trial.number.in_(list(numbers)))
    return {row[0]: row[1] for row in session.execute(statement)}


def _of_trial(
    trial_id: str, rank: int | None, stream: OutputStream | None, since: datetime | None
) -> Select[int, int, OutputStream, datetime, int, str]:
    outputs = select(RankOutput.id).where(RankOutput.trial_id == trial_id)
    if rank is not None:
        outputs = outputs.where(RankOutput.rank == rank)
    statement = (
        select(
            OutputChunk.id,
            RankOutput.rank,
            OutputChunk.stream,
            OutputChunk.recorded_at,
            OutputChunk.omitted_bytes,
            OutputChunk.content,
        )
        .join(RankOutput, RankOutput.id == OutputChunk.output_id)
        .where(OutputChunk.output_id.in_(outputs))
    )
    if stream is not None:
        statement = statement.where(OutputChunk.stream == stream)
    if since is not None:
        statement = statement.where(OutputChunk.recorded_at >= since)
    return statement
