"""Answers of the charts' routes: compact JSON that a browser keeps as long as nothing has happened to the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import Response

from service.store.models import Job
from service.store.repositories import EventRepository
from service.store.session import Session
from trainers.installation.distribution import version


@dataclass(frozen=True, slots=True)
class Moment:
    """The position in a job's events at which something of the job is read."""

    last_event: int
    tag: str
    """The `ETag` of all that is read of the job now."""

    @property
    def headers(self) -> dict[str, str]:
        return {"ETag": self.tag, "Cache-Control": "private, no-cache"}

    def unchanged(self) -> Response:
        return Response(status_code=304, headers=self.headers)

    def answer(self, content: Mapping[str, Any]) -> Response:
        text = json.dumps({"event": self.last_event, **content}, separators=(",", ":"), allow_nan=False)
        return Response(text, media_type="application/json", headers=self.headers)


def moment_of(session: Session, job: Job) -> Moment:
    """The present moment of a job, read before all else: what happens meanwhile is then read again."""
    last_event = EventRepository(session).last_id(job.id)
    thinned = "" if job.thinned_at is None else f"-{job.thinned_at.timestamp():.0f}"
    return Moment(last_event, f'"{last_event}{thinned}-{_version()}"')


@cache
def _version() -> str:
    return version()
