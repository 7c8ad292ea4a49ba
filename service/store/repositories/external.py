"""Requests of clients to the runs of jobs whose trials they train, and the trials that they have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session

from service.specification.external.messages import RequestKind, RunAnswer
from service.store.models import ExternalRequest, TrialLease


class ExternalRequestRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, request: ExternalRequest) -> None:
        self._session.add(request)
        self._session.flush()

    def find_by_key(self, job_id: str, key: str) -> ExternalRequest | None:
        """The request of a locked job that came with a key."""
        own = (ExternalRequest.job_id == job_id, ExternalRequest.idempotency_key == key)
        return self._session.scalars(select(ExternalRequest).where(*own)).one_or_none()

    def num_waiting(self, job_id: str) -> int:
        own = (ExternalRequest.job_id == job_id, ExternalRequest.answered_at.is_(None))
        return self._session.scalar(select(func.count()).where(*own)) or 0

    def waiting(self, job_id: str, *, suggestions_asked_after: datetime, limit: int) -> list[ExternalRequest]:
        """The first requests of a job that wait for an answer, in their order; a request for a suggestion only while
        its client still asks."""
        statement = (
            select(ExternalRequest)
            .where(ExternalRequest.job_id == job_id, ExternalRequest.answered_at.is_(None))
            .where(
                or_(
                    ExternalRequest.kind != RequestKind.SUGGEST.value,
                    ExternalRequest.asked_at >= suggestions_asked_after,
                )
            )
            .order_by(ExternalRequest.id)
            .limit(limit)
        )
        return list(self._session.scalars(statement))

    def answer(self, request_id: int, answer: RunAnswer, *, now: datetime) -> None:
        """Answers a request that waits."""
        values = {"stored_answer": answer.model_dump(mode="json"), "answered_at": now}
        waits = (ExternalRequest.id == request_id, ExternalRequest.answered_at.is_(None))
        self._session.execute(update(ExternalRequest).where(*waits).values(values))

    def answers(self, request_ids: Collection[int]) -> dict[int, RunAnswer]:
        """The answers of those of these requests that have one, by id."""
        statement = select(ExternalRequest).where(
            ExternalRequest.id.in_(list(request_ids)), ExternalRequest.answered_at.is_not(None)
        )
        found = {request.id: request.answer for request in self._session.scalars(statement)}
        return {request_id: answer for request_id, answer in found.items() if answer is not None}

    def last_answer(self, job_id: str, number: int, *, lease: str) -> RunAnswer | None:
        """The answer to the last report about a trial under a lease; None: there is none."""
        statement = (
            select(ExternalRequest)
            .where(
                ExternalRequest.job_id == job_id,
                ExternalRequest.number == number,
                ExternalRequest.answered_at.is_not(None),
                ExternalRequest.stored_content["lease"].as_string() == lease,
            )
            .order_by(ExternalRequest.id.desc())
            .limit(1)
        )
        request = self._session.scalars(statement).one_or_none()
        return None if request is None else request.answer

    def last_asked(self, job_ids: Collection[str]) -> dict[str, datetime]:
        """The time at which a client last asked for the newest request of a job, by the job's id; old ones are
        forgotten."""
        # The number is in the index of jobs and keys: thousands of rows need not be read for it.
        newest = select(func.max(ExternalRequest.id)).where(ExternalRequest.job_id.in_(list(job_ids)))
        found = select(ExternalRequest.job_id, ExternalRequest.asked_at).where(
            ExternalRequest.id.in_(newest.group_by(ExternalRequest.job_id))
        )
        return {row.job_id: row.asked_at for row in self._session.execute(found)}

    def forget_answered(self, job_id: str, *, before: datetime) -> None:
        """Removes requests of a job that were answered, and whose clients have not asked since a time."""
        old = (ExternalRequest.answered_at.is_not(None), ExternalRequest.asked_at < before)
        self._session.execute(delete(ExternalRequest).where(ExternalRequest.job_id == job_id, *old))


class TrialLeaseRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, lease: TrialLease) -> None:
        self._session.merge(lease)
        self._session.flush()

    def of_job(self, job_id: str) -> Sequence[TrialLease]:
        return list(self._session.scalars(select(TrialLease).where(TrialLease.job_id == job_id)))

    def jobs_with_clients(self, job_ids: Collection[str]) -> set[str]:
        """The ids among these of jobs of which a client has a trial."""
        statement = select(TrialLease.job_id).where(TrialLease.job_id.in_(list(job_ids))).distinct()
        return set(self._session.scalars(statement))

    def find(self, job_id: str, number: int) -> TrialLease | None:
        return self._session.get(TrialLease, (job_id, number))

    def renew(self, job_id: str, number: int, *, expires_at: datetime) -> None:
        own = (TrialLease.job_id == job_id, TrialLease.number == number)
        self._session.execute(update(TrialLease).where(*own).values(expires_at=expires_at))

    def release(self, job_id: str, number: int) -> None:
        """Notes that the client was told to go."""
        own = (TrialLease.job_id == job_id, TrialLease.number == number)
        self._session.execute(update(TrialLease).where(*own).values(is_released=True))

    def remove(self, job_id: str, number: int) -> None:
        self._session.execute(delete(TrialLease).where(TrialLease.job_id == job_id, TrialLease.number == number))
