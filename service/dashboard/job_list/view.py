"""A page of the list of jobs as plain values. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.api.figures.trials import phase_labels
from service.dashboard.job import view as job_view
from service.dashboard.job.view import BarSegment, bar_of
from service.evidence.in_words.standing import ConfigStanding
from service.evidence.in_words.words import Answer
from service.store.models import Job
from service.store.repositories import JobOrder
from service.use_cases.progress import JobProgress
from service.use_cases.waiting import Waiting

ORDERS = {
    JobOrder.NEWEST: "newest first",
    JobOrder.OLDEST: "oldest first",
    JobOrder.LAST_FINISHED: "last finished first",
    JobOrder.FIRST_FINISHED: "first finished first",
    JobOrder.NAME: "by name, A to Z",
    JobOrder.NAME_BACKWARDS: "by name, Z to A",
    JobOrder.HIGHEST_PRIORITY: "highest priority first",
    JobOrder.LOWEST_PRIORITY: "lowest priority first",
}
"""Each order in words."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of the list."""

    job: Job
    progress: JobProgress
    bar: Sequence[BarSegment]
    waiting: Waiting | None
    answer: Answer | None
    """The result of comparing the search with the baselines; None: it does not yet, or there are none."""
    standing: ConfigStanding | None
    """The standing of what it recommends. None: it recommends nothing yet."""


def job_row(job: Job, progress: JobProgress, waiting: Waiting | None) -> JobRow:
    """The row of a job."""
    finding = progress.finding
    return JobRow(
        job=job,
        progress=progress,
        bar=bar_of(progress),
        waiting=waiting,
        answer=_answer_so_far(job, progress) if finding is None else finding.answer,
        standing=None if finding is None else finding.standing,
    )


def _answer_so_far(job: Job, progress: JobProgress) -> Answer | None:
    if progress.best is None or progress.baseline_best is None:
        return None
    labels = phase_labels(job.specification)
    return job_view.answer(job.state, job.direction, progress, labels, has_baseline=True)
