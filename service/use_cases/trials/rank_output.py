"""Use cases for the output of ranks: keeping it, and showing its end with a failed trial.

Keeping is not fenced by the lease: it does not matter to a run, and the output of a killed run is kept after its end.
Only one process reads the files of a machine and a job.
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
"""At least 16 KiB, however many ranks a trial has; by judgement: the end of each rank's output."""
TRIAL_BYTES_IN_RANKS = 16
"""A trial with more ranks than this keeps as much in total as a trial with this many."""
LAST_LINES = 12
"""The last lines that are shown with the reason of a failed trial."""
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
    """{name of a file: the position up to which it is kept}, for these trials of a job."""
    return OutputRepository(session).kept_up_to(trial_ids(session, job_id, numbers).values())


def bytes_per_rank_of(session: Session, job_id: str, *, bytes_per_rank: int) -> int:
    """The most bytes that are kept of each rank of a job: less than asked for if its trials have many ranks.

    Raises:
        NotFound: there is no such job any more.
    """
    world_size = JobRepository(session).get(job_id).specification.resources.workers_per_trial
    share = min(1.0, TRIAL_BYTES_IN_RANKS / world_size)
    return max(min(bytes_per_rank, LEAST_BYTES_PER_RANK), int(bytes_per_rank * share))


def keep_output(
    session: Session, job_id: str, printed: Sequence[Printed], *, bytes_per_rank: int, now: datetime
) -> None:
    """Keeps the output of a job's ranks; that of trials that no longer exist is dropped.

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
    """The end of the output of a failed trial's ranks; empty: there is none, or the trial has not failed."""
    if trial.state is not TrialState.FAILED:
        return []
    chunks = OutputRepository(session).newest(trial.id, limit=LAST_LINES)
    ranks = {chunk.rank for chunk in chunks}
    lines = [_shown(chunk, line, names_rank=len(ranks) > 1) for chunk in chunks for line in chunk.lines]
    return lines[-LAST_LINES:]


def _shown(chunk: StoredChunk, line: str, *, names_rank: bool) -> str:
    text = line if len(line) <= LAST_LINE_LENGTH else f"{line[:LAST_LINE_LENGTH]}..."
    return f"[rank {chunk.rank}] {text}" if names_rank else text
