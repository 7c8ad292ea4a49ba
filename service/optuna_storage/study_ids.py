"""Whole numbers for studies and trials, the same in every process: Optuna wants integers, our keys are texts.

They are made of the number of the job's first event. Up to 8 thousand million events they stay below 2^53, so that a
page's JavaScript keeps all their digits:

- a study: 8 times that number, plus 0 for the search, 1 to 4 for the baselines in the order of the specification, and
  7 for the confirmation;
- a trial: 2^20 times that number, plus the trial's number in its job.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.domain import Phase, Side
from service.store.repositories import StudyJob

_PARTS = 8
"""Studies of a job, as above: the search, four baselines at most and the confirmation are six, and 8 leaves two for
later."""
_CONFIRMATION = _PARTS - 1
_TRIALS = 2**20
"""More than a job can have."""


@dataclass(frozen=True, slots=True)
class JobStudy:
    """A part of a job that is a study of its own."""

    job: StudyJob
    phase: Phase
    side: Side | None
    """None: the confirmation, whose trials are of several."""
    position: int
    """Position in the job: 0 for the search, then the baselines, or the last for the confirmation."""

    @property
    def id(self) -> int:
        return self.job.number * _PARTS + self.position

    @property
    def name(self) -> str:
        """The job's id for the search; with the baseline's optimizer, or `confirmation`, behind it for the others."""
        if self.phase is Phase.SEARCH:
            return self.job.id
        return f"{self.job.id}/{self.side or self.phase.value}"

    @property
    def optimizer(self) -> str | None:
        """The baseline's; None: it is the search or the confirmation."""
        return self.side if self.phase is Phase.BASELINE else None


def studies_of(job: StudyJob, sides: tuple[Side, ...]) -> list[JobStudy]:
    """The studies of a job with these sides: the search, the baselines, and the confirmation once it has begun."""
    search, *baselines = sides
    studies = [JobStudy(job, Phase.SEARCH, search, 0)]
    studies += [JobStudy(job, Phase.BASELINE, side, number) for number, side in enumerate(baselines, start=1)]
    if job.is_confirming:
        studies.append(JobStudy(job, Phase.CONFIRMATION, None, _CONFIRMATION))
    return studies


def job_number_of_study(study_id: int) -> int:
    """The number of the job that a study is of."""
    return study_id // _PARTS


def trial_id(job: StudyJob, number: int) -> int:
    """The id of a job's trial with this number."""
    return job.number * _TRIALS + number


def job_and_trial_number(of_trial: int) -> tuple[int, int]:
    """The number of the job that a trial's id is of, and the trial's number there."""
    return divmod(of_trial, _TRIALS)
