"""The API's reader of jobs: their rows with their progress, and why they wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends

from service.api.dependencies import Around, Now, SettingsDependency, TrialMemoryDependency
from service.api.schemas.jobs import JobRead
from service.store.models import Job
from service.store.session import Session
from service.use_cases.progress import TrialMemory, progress_of
from service.use_cases.waiting import waiting_of


@dataclass(frozen=True, slots=True)
class JobReader:
    """Makes what is answered of jobs."""

    now: datetime
    silence_seconds: float
    memory: TrialMemory
    around: Around

    def one(self, session: Session, job: Job) -> JobRead:
        return self.all(session, [job])[0]

    def all(self, session: Session, found: Sequence[Job]) -> list[JobRead]:
        progress = progress_of(session, found, now=self.now, memory=self.memory)
        waiting = waiting_of(session, found, now=self.now, silence_seconds=self.silence_seconds, around=self.around)
        return [JobRead.of(job, progress[job.id], waiting[job.id]) for job in found]


async def _reader(now: Now, settings: SettingsDependency, memory: TrialMemoryDependency, around: Around) -> JobReader:
    return JobReader(now, settings.lease_seconds, memory, around)


Reader = Annotated[JobReader, Depends(_reader)]
