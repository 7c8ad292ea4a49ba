"""Use cases of what ranks print: keeping it, and its end beside a failed trial.

Keeping is not fenced by the lease: it means nothing to a run, and what a run that was killed has printed is kept after
its end. Only one process reads the files of a machine and a job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from service.domain import OutputStream, TrialState
from service.store.models import Trial
from service.store.repositories import JobRepository
from service.store.repositories.of_trials.outputs import NewChunk, OutputRepository, StoredChunk, trial_ids
from service.store.session import Session

LEAST_BYTES_PER_RANK = 16 * 2**10
"""16 KiB, however many ranks a trial has; by judgement: the end of what each said."""
TRIAL_BYTES_IN_RANKS = 16
"""A trial of more ranks than this keeps as much in all as one of so many."""
LAST_LINES = 12
"""Beside the reason of a failed trial."""
LAST_LINE_LENGTH = 500
"""Characters of such a line, by judgement: several lines of a page."""


@dataclass(frozen=True, slots=True)
class Printed:
    """Lines that a rank printed, read from a file."""

    trial: int
    """Its number."""
    rank: int
    stream: OutputStream
    source: str
    ends_at: int
    omitted_bytes: int
    lines: Sequence[str]


def kept_up_to(session: Session, job_id: str, numbers: Collection[int]) -> dict[str, int]:
    """{name of a file: the place in it up to which it is kept}, of these trials of a job."""
    return OutputRepository(session).kept_up_to(trial_ids(session, job_id, numbers).values())


def bytes_per_rank_of(session: Session, job_id: str, *, bytes_per_rank: int) -> int:
    """The bytes that are kept of each rank of a job, at most: less than asked for where its trials have many.

    Raises:
        NotFound: there is no such job any more.
    """
    world_size = JobRepository(session).get(job_id).specification.resources.workers_per_trial
    share = min(1.0, TRIAL_BYTES_IN_RANKS / world_size)
    return max(min(bytes_per_rank, LEAST_BYTES_PER_RANK), int(bytes_per_rank * share))


def keep_output(
    session: Session, job_id: str, printed: Sequence[Printed], *, bytes_per_rank: int, now: datetime
) -> None:
    """Keeps what ranks of a job printed; that of trials which are gone is dropped.

    Args:
        bytes_per_rank: kept of each, at most.
    """
    ids = trial_ids(session, job_id, {each.trial for each in printed})
    OutputRepository(session).add(
        [
            NewChunk(
                ids[each.trial],
                each.rank,
                each.stream,
                each.source,
                each.ends_at,
                each.omitted_bytes,
                "\n".join(each.lines),
            )
            for each in printed
            if each.trial in ids
        ],
        bytes_per_rank=bytes_per_rank,
        now=now,
    )


def last_lines(session: Session, trial: Trial) -> list[str]:
    """The end of what the ranks of a failed trial printed; empty: nothing, or it is well."""
    if trial.state is not TrialState.FAILED:
        return []
    chunks = OutputRepository(session).newest(trial.id, limit=LAST_LINES)
    ranks = {chunk.rank for chunk in chunks}
    lines = [_shown(chunk, line, names_rank=len(ranks) > 1) for chunk in chunks for line in chunk.lines]
    return lines[-LAST_LINES:]


def _shown(chunk: StoredChunk, line: str, *, names_rank: bool) -> str:
    text = line if len(line) <= LAST_LINE_LENGTH else f"{line[:LAST_LINE_LENGTH]}..."
    return f"[rank {chunk.rank}] {text}" if names_rank else text
