"""The requests of clients that train a job's trials: stored until the job's run answers them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from datetime import datetime

from ulid import ULID

from service.domain import JobRequest, JobState, TrialRequest, TrialState
from service.errors import (
    IdempotencyKeyReused,
    InvalidInput,
    ServiceBusy,
    TrialNotComplete,
    TrialsTrainedHere,
)
from service.specification.external.messages import End, ExternalDecision, Report, RequestKind, RunAnswer, Suggest
from service.store.models import ExternalRequest, Job, Trial
from service.store.repositories import (
    ExternalRequestRepository,
    JobRepository,
    TrialLeaseRepository,
    TrialRepository,
)
from service.store.session import Session

MAX_WAITING = 2000
"""The most requests of one job that wait for its run; further ones get the answer that the service is busy."""

MAX_CLOCK_DIFFERENCE_SECONDS = 60.0
"""Largest difference between the clocks of the API's machine and of a job's run, which notes when it gives a trial to a
client."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was stored, and its answer if that is already known."""

    request_id: int
    key: str
    """The key with which it can be sent again."""
    job_state: JobState
    answer: RunAnswer | None
    """None: the run has not given one yet."""
    is_replayed: bool


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request as its client sent it."""

    number: int | None
    """The trial that the request is about; None: it asks for one."""
    content: Suggest | Report
    key: str | None
    """The client's `Idempotency-Key`."""

    @property
    def kind(self) -> RequestKind:
        if isinstance(self.content, Suggest):
            return RequestKind.SUGGEST
        return RequestKind.END if isinstance(self.content, End) else RequestKind.REPORT

    @property
    def digest(self) -> str:
        """The digest that distinguishes it from other requests with its key."""
        asked = [self.kind.value, self.number, self.content.model_dump(mode="json")]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def ask_for_trial(session: Session, job_id: str, wish: Suggest, *, key: str | None, now: datetime) -> Asked | None:
    """Stores a client's request for a trial, or finds the earlier one with the same key; None: the job is over.

    Raises:
        NotFound: no such job.
        TrialsTrainedHere: the job gives no trials to clients.
        IdempotencyKeyReused: the key came with another request.
        ServiceBusy: too many wait for the job's run.
    """
    job = _external_job(session, job_id)
    sent = _Sent(None, wish, key)
    found = _find(session, job, sent, now=now)
    if found is not None and found.answer is not None:
        return found
    if job.state.is_final:
        return None
    return found or _store(session, job, sent, now=now)


def report(session: Session, job_id: str, number: int, told: Report, *, key: str | None, now: datetime) -> Asked:
    """Stores a client's report about its trial, or finds the earlier one with the same key. If the trial or its job has
    ended, the report is not stored, and the client is told to stop.

    Raises:
        NotFound: no such job or trial.
        TrialsTrainedHere, IdempotencyKeyReused, ServiceBusy: as `ask_for_trial`.
        InvalidInput: a measurement is at a step that the trial does not have, leaves the objective out, or reports a
            longer training than there was time for.
    """
    job = _external_job(session, job_id)
    trial = TrialRepository(session).get(job_id, number)
    sent = _Sent(number, told, key)
    found = _find(session, job, sent, now=now)
    over = _over(job, trial)
    if over is not None and (found is None or found.answer is None):
        return Asked(0, key or "", job.state, over, is_replayed=found is not None)
    if found is not None:
        return _settled(session, job, number, told, found)
    num_steps = trial.stored_config.num_steps
    for index, measurement in enumerate(told.measurements):
        if measurement.step > num_steps:
            raise InvalidInput(f"measurements[{index}].step", f"exceeds the trial's {num_steps} steps")
        if job.metric not in measurement.metrics:
            raise InvalidInput(f"measurements[{index}].metrics", f"must have the job's objective, {job.metric!r}")
    _check_seconds(trial, told, now)
    return _settled(session, job, number, told, _store(session, job, sent, now=now))


def decision(session: Session, job_id: str, number: int, *, lease: str) -> RunAnswer:
    """Decides from the stored rows what a client should do that has nothing to report.

    Raises:
        NotFound, TrialsTrainedHere: as `report`.
    """
    job = _external_job(session, job_id, locked=False)
    trial = TrialRepository(session).get(job_id, number)
    held = TrialLeaseRepository(session).find(job_id, number)
    if job.state.is_final:
        return _stop(job, trial)
    if held is not None and held.name == lease:
        if trial.requested is TrialRequest.STOP:
            return RunAnswer(decision=ExternalDecision.STOP, why="a user stops the trial")
        if _is_pausing(job):
            return RunAnswer(decision=ExternalDecision.PAUSE, why="a user pauses the job")
        return RunAnswer()
    last = ExternalRequestRepository(session).last_answer(job_id, number, lease=lease)
    if last is not None and last.decision is not ExternalDecision.CONTINUE:
        return last
    return RunAnswer(decision=ExternalDecision.STOP, why="the lease has ended")


def _over(job: Job, trial: Trial) -> RunAnswer | None:
    """The answer to any report about a trial that has ended, or whose job has; None: neither has."""
    return _stop(job, trial) if job.state.is_final or trial.state.is_final else None


def _stop(job: Job, trial: Trial) -> RunAnswer:
    """Tells a client which of the two has ended: the job, if its end cut the trial off."""
    is_of_job = job.state.is_final and trial.state is not TrialState.COMPLETED
    why = f"the job has ended: {job.state}" if is_of_job else f"the trial is {trial.state}"
    return RunAnswer(decision=ExternalDecision.STOP, why=why)


def _settled(session: Session, job: Job, number: int, told: Report, asked: Asked) -> Asked:
    """The request, with the immediate answer to a client whose job is paused. When the job continues, its run processes
    the report, and takes the trial back without counting a loss, because the client has left it by then. A client that
    no longer has the trial changes nothing."""
    if asked.answer is not None or not _is_pausing(job):
        return asked
    leases = TrialLeaseRepository(session)
    held = leases.find(job.id, number)
    if held is None or held.name != told.lease:
        return replace(asked, answer=RunAnswer(decision=ExternalDecision.STOP, why="the lease has ended"))
    if not isinstance(told, End):
        leases.release(job.id, number)
    why = "the job is paused: what was reported is kept"
    up_to = told.measurements[-1].step if told.measurements else None
    return replace(asked, answer=RunAnswer(decision=ExternalDecision.PAUSE, recorded_up_to_step=up_to, why=why))


def _check_seconds(trial: Trial, told: Report, now: datetime) -> None:
    """Raises: InvalidInput: a measurement reports a longer training than there was time for, e.g. in another unit, or
    as a time of day."""
    if trial.started_at is None:
        return  # no client has it, so no report is accepted
    age = max(0.0, (now - trial.started_at).total_seconds())
    for index, measurement in enumerate(told.measurements):
        if measurement.seconds is not None and measurement.seconds > age + MAX_CLOCK_DIFFERENCE_SECONDS:
            raise InvalidInput(
                f"measurements[{index}].seconds",
                f"must be the training time so far, got {measurement.seconds:g} s, but the trial was first handed out "
                f"only {age:.0f} s ago",
            )


def checked(answer: RunAnswer) -> RunAnswer:
    """The answer. Raises: TrialNotComplete: it says that the request contradicts the trial's state."""
    if answer.conflict:
        raise TrialNotComplete(answer.why or "the trial is not complete")
    return answer


def _is_pausing(job: Job) -> bool:
    return job.state is JobState.PAUSED or job.requested is JobRequest.PAUSE


def _external_job(session: Session, job_id: str, *, locked: bool = True) -> Job:
    jobs = JobRepository(session)
    job = jobs.get_locked(job_id) if locked else jobs.get(job_id)
    if not job.is_external:
        raise TrialsTrainedHere(job_id)
    return job


def _find(session: Session, job: Job, sent: _Sent, *, now: datetime) -> Asked | None:
    """The earlier request with the same key; None: there was none."""
    if sent.key is None:
        return None
    earlier = ExternalRequestRepository(session).find_by_key(job.id, sent.key)
    if earlier is None:
        return None
    if earlier.request_digest != sent.digest:
        raise IdempotencyKeyReused(sent.key)
    earlier.asked_at = now
    return Asked(earlier.id, sent.key, job.state, earlier.answer, is_replayed=True)


def _store(session: Session, job: Job, sent: _Sent, *, now: datetime) -> Asked:
    requests = ExternalRequestRepository(session)
    if requests.num_waiting(job.id) >= MAX_WAITING:
        raise ServiceBusy(MAX_WAITING, 0.0, what=f"requests to the run of job {job.id!r}")
    request = ExternalRequest(
        job_id=job.id,
        kind=sent.kind.value,
        number=sent.number,
        idempotency_key=sent.key or str(ULID()),
        request_digest=sent.digest,
        stored_content=sent.content.model_dump(mode="json"),
        created_at=now,
        asked_at=now,
    )
    requests.add(request)
    return Asked(request.id, request.idempotency_key, job.state, None, is_replayed=False)
