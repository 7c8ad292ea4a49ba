"""Conditional requests: an answer that a client still has is not sent again, and a change that rests on an old one is
refused.

An `ETag` reads `"CHANGEABLE-ALL"`. `ALL` is a digest of the whole answer, and with it `If-None-Match` gives 304.
`CHANGEABLE` is a digest of what users can change, and `If-Match` compares that alone: the progress of a job that runs
changes all the time, and makes no change of a user's wrong. What users cannot change has a tag of `ALL` alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Response
from pydantic import BaseModel

from service.api.dependencies import JobId, TrialNumber, WriteSession
from service.errors import PreconditionFailed
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository

_TAG = re.compile(r'(?:W/)?"([0-9a-f]{12})-[0-9a-f]{20}"')
_MAX_LENGTH = 2000
"""Characters of a condition, by judgement: some dozens of tags."""
ETAG = {"ETag": {"description": "For `If-None-Match` and `If-Match`.", "schema": {"type": "string"}}}
"""Headers of an answer that has one, for the documentation."""
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"headers": ETAG},
    304: {"description": "It is as it was: `If-None-Match` names it.", "headers": ETAG},
}
"""Responses of an endpoint that gives one thing."""

UNCHANGEABLE: dict[int | str, dict[str, Any]] = {
    status: {**told, "headers": {"ETag": {"description": "For `If-None-Match`.", "schema": {"type": "string"}}}}
    for status, told in RESPONSES.items()
}
"""Responses of an endpoint that gives what nobody changes by a request."""

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=_MAX_LENGTH,
        description="The `ETag` that the thing had when it was read, or `*`: what users can change of it must be as it "
        "was then, else the answer is 412.",
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match",
        max_length=_MAX_LENGTH,
        description="An `ETag` that was given: if the answer is still the same, it is 304 without content.",
    ),
]


def _digest(content: bytes, length: int) -> str:
    return hashlib.sha256(content).hexdigest()[:length]


def changeable_of_job(job: Job) -> str:
    """A digest of what users can change of a job."""
    parts = (
        job.name,
        job.tags,
        job.notes,
        job.priority,
        job.specification.budget.model_dump(mode="json"),
        job.archived_at is not None,
        None if job.requested is None else job.requested.value,
    )
    return _digest(json.dumps(parts, sort_keys=True).encode(), 12)


def changeable_of_trial(trial: Trial) -> str:
    """A digest of what users can change of a trial: its note; it is asked to stop, or tried again."""
    requested = None if trial.requested is None else trial.requested.value
    parts = (trial.note, requested, trial.spared, trial.state.is_final)
    return _digest(json.dumps(parts).encode(), 12)


def is_known(tag: str, if_none_match: str | None) -> bool:
    """True if an `If-None-Match` names this `ETag`, or any (`*`)."""
    known = [given.strip().removeprefix("W/") for given in (if_none_match or "").split(",")]
    return tag in known or known == ["*"]


class Tagged:
    """Answers with a thing and its `ETag`, or with 304."""

    def __init__(self, known: str | None) -> None:
        """Args: known: what `If-None-Match` says."""
        self._known = known

    def answer(self, read: BaseModel, changeable: str | None = None) -> Response:
        """The answer to a request for one thing.

        Args:
            changeable: a digest of what users can change of it; None: there is nothing.
        """
        content = read.model_dump_json(by_alias=True).encode()
        whole = _digest(content, 20)
        tag = f'"{whole}"' if changeable is None else f'"{changeable}-{whole}"'
        # Whoever keeps it asks each time whether it still holds.
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if is_known(tag, self._known):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type="application/json")


async def _tagged(if_none_match: IfNoneMatch = None) -> Tagged:
    return Tagged(if_none_match)


TaggedDependency = Annotated[Tagged, Depends(_tagged)]


def _check(given: str, changeable: Callable[[], str]) -> None:
    if given.strip() == "*":
        return
    if changeable() not in (match[1] for match in _TAG.finditer(given)):
        raise PreconditionFailed(given[:200])


def refuse_if_changed(session: WriteSession, job_id: JobId, if_match: IfMatch = None) -> None:
    """Raises: PreconditionFailed: `If-Match` names a state of the job that is past; NotFound."""
    if if_match is not None:
        job = JobRepository(session).get_locked(job_id)
        _check(if_match, lambda: changeable_of_job(job))


def refuse_if_trial_changed(
    session: WriteSession, job_id: JobId, number: TrialNumber, if_match: IfMatch = None
) -> None:
    """Raises: PreconditionFailed: `If-Match` names a state of the trial that is past; NotFound."""
    if if_match is not None:
        JobRepository(session).get_locked(job_id)
        trial = TrialRepository(session).get(job_id, number)
        _check(if_match, lambda: changeable_of_trial(trial))


IF_JOB_UNCHANGED = Depends(refuse_if_changed, scope="function")
"""The check of endpoints without a body that change a job: within the transaction of the change. Where there is a body,
that is checked first, and the endpoint asks `refuse_if_changed` itself."""
IF_TRIAL_UNCHANGED = Depends(refuse_if_trial_changed, scope="function")
"""The check of endpoints without a body that change a trial."""
