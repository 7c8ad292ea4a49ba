"""Use cases of a job's run: its trials, their measurements, and its end. Every one is fenced by the lease.

Each may be called twice: a database that dies while it confirms a commit makes the run write the same again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ulid import ULID

from service.access.quotas import quota_spent
from service.domain import CancelCause, CutShort, FailureReason, JobRequest, JobState, Phase, TrialState
from service.errors import NotFound, RunAskedToEnd
from service.evidence.insights import JobInsights
from service.places import NodePlace
from service.specification.identity import StoredIdentity
from service.specification.job import JobSpecification
from service.specification.phases import num_searched
from service.store.models import ClusterShare, Job, Trial
from service.store.repositories import (
    ClusterShareRepository,
    EventRepository,
    InsightsRepository,
    MeasurementRepository,
    ModelShapeRepository,
    TrialRepository,
)
from service.store.session import Session
from service.use_cases.leases import Lease, lock_leased_job, put_back
from service.use_cases.recommending import store_recommendation
from service.use_cases.transitions import (
    BUDGET_SPENT,
    cancel_unfinished_trials,
    move_job,
    move_trial,
    record_change_event,
    record_trial_event,
    storable,
)
from trainers.config import Measurement, TrialConfig, is_usable

MAX_REMARKS_LENGTH = 2000
"""Most characters of the remarks of measurements about a trial's data."""


@dataclass(frozen=True, slots=True)
class TrialMeasurements:
    """The measurements of one trial since the last write, in order of steps."""

    number: int
    reported: Sequence[Measurement]
    identity: StoredIdentity | None = None
    """None: it was already written, or is not known yet."""


@dataclass(frozen=True, slots=True)
class ShareReport:
    """The share that a run has of a cluster that others use, too, and whether it wants more."""

    cluster: str
    num_groups: int
    """Rank groups it holds."""
    group_share: float
    """The part of the cluster that one rank group takes."""
    wants_since: datetime | None
    """The time since when it wants another; None: it wants none."""
    waiting_for: str | None
    """The reason, for a person, why it waits without any."""
    short_of: frozenset[str] = frozenset()
    """Names of the resources of which too little is free for another."""


def report_share(session: Session, lease: Lease, share: ShareReport, *, now: datetime) -> None:
    """Stores a run's share of its cluster, and what its job waits for. Raises: LeaseLost."""
    job = lock_leased_job(session, lease)
    ClusterShareRepository(session).put(
        ClusterShare(
            job_id=job.id,
            attempt=job.attempt,
            cluster=share.cluster,
            num_groups=share.num_groups,
            group_share=share.group_share,
            wants_since=share.wants_since,
            short_of=sorted(share.short_of),
        )
    )
    _set_waiting(session, job, share.waiting_for, now=now)


def tell_waiting(session: Session, lease: Lease, waiting_for: str | None, *, now: datetime) -> None:
    """Stores, for a person, what a running job does before it trains; None: nothing more. Raises: LeaseLost."""
    _set_waiting(session, lock_leased_job(session, lease), waiting_for, now=now)


def store_insights(session: Session, lease: Lease, insights: JobInsights, *, now: datetime) -> None:
    """Stores the insights into a job's hyperparameters. Raises: LeaseLost."""
    job = lock_leased_job(session, lease)
    InsightsRepository(session).put(job.id, insights.to_json(), now=now)


def store_known_configs(session: Session, lease: Lease, specification: JobSpecification) -> None:
    """Stores the specification of a job with the configs of other models that it begins with.

    Raises:
        LeaseLost: the job is no longer this run's.
        RunAskedToEnd: a user may have changed the specification since this one was read.
    """
    _job_to_go_on(session, lease).specification = specification


def store_step_times(
    session: Session, lease: Lease, specification: JobSpecification, configs: Mapping[int, TrialConfig]
) -> None:
    """Stores the specification of a job with the times of its steps.

    Args:
        configs: those of its trials that have the number of steps which follows from these, by number.

    Raises:
        LeaseLost: the job is no longer this run's.
        RunAskedToEnd: a user may have changed the specification, or proposed a trial, since these were read.
    """
    job = _job_to_go_on(session, lease)
    job.specification = specification
    for number, config in configs.items():
        TrialRepository(session).get(job.id, number).config = config.to_json()


def add_trial(
    session: Session,
    lease: Lease,
    *,
    number: int,
    phase: Phase,
    parameters: Mapping[str, Any],
    config: TrialConfig,
    confirms: int | None = None,
    forked_from: tuple[int, int] | None = None,
    now: datetime,
) -> None:
    """Adds a queued trial. A fork begins with its parent's measurement at the step where it was forked.

    Args:
        confirms: in the confirmation, the number of the trial whose config it repeats.
        forked_from: number and step of the trial from whose checkpoint it begins; None: it begins without one.

    Raises:
        LeaseLost: the job is no longer this run's.
        RunAskedToEnd: the run must not begin more: its budget may have changed.
        NotFound: there is no such trial to fork, or it has not been measured at that step.
    """
    job = _job_to_go_on(session, lease)
    trials = TrialRepository(session)
    if trials.find(lease.job_id, number) is not None:
        return
    trial = Trial(
        id=f"trial_{ULID()}",
        job_id=lease.job_id,
        number=number,
        phase=phase,
        state=TrialState.QUEUED,
        parameters=dict(parameters),
        config=config.to_json(),
        confirms=confirms,
        forked_from=None if forked_from is None else forked_from[0],
        forked_at_step=None if forked_from is None else forked_from[1],
        metrics={},
        created_at=now,
    )
    trials.add(trial)
    if forked_from is not None:
        _begin_with_parents_measurement(session, job, trial, forked_from, now=now)
    record_trial_event(session, trial, now=now)


def _begin_with_parents_measurement(
    session: Session, job: Job, trial: Trial, forked_from: tuple[int, int], *, now: datetime
) -> None:
    """Gives a fork the measurement where it begins; the training time behind it counts for its parent."""
    number, step = forked_from
    parent = TrialRepository(session).get(job.id, number)
    measurements = MeasurementRepository(session)
    there = measurements.find(parent.id, step)
    if there is None:
        raise NotFound(f"measurement of trial {number} of job {job.id}", step)
    metrics = there.metrics
    measurements.put(trial.id, step=step, epoch=there.epoch, seconds=there.seconds, metrics=metrics, recorded_at=now)
    trial.step, trial.seconds, trial.metrics = step, there.seconds, metrics
    trial.value = metrics.get(job.metric)


def start_trial(session: Session, lease: Lease, number: int, *, now: datetime) -> None:
    """Moves a queued trial to running. Raises: LeaseLost, NotFound."""
    lock_leased_job(session, lease)
    trial = TrialRepository(session).get(lease.job_id, number)
    if trial.state is not TrialState.RUNNING:
        move_trial(session, trial, TrialState.RUNNING, now=now)


def record_places(session: Session, lease: Lease, number: int, places: Sequence[NodePlace]) -> None:
    """Stores the places of the ranks of a trial's current run. Raises: LeaseLost, NotFound."""
    lock_leased_job(session, lease)
    trial = TrialRepository(session).get(lease.job_id, number)
    trial.places = {**(trial.places or {}), str(trial.runs): [place.to_json() for place in places]}


def record_measurements(session: Session, lease: Lease, batch: Sequence[TrialMeasurements], *, now: datetime) -> None:
    """Writes what trials reported; a step measured again after a resume replaces the earlier row.

    Non-finite metrics are stored as null: JSON has no NaN.

    Raises:
        LeaseLost: the job is no longer this run's.
        NotFound: no such trial.
    """
    job = lock_leased_job(session, lease)
    trials, measurements, told = TrialRepository(session), MeasurementRepository(session), []
    for entry in batch:
        trial = trials.get(lease.job_id, entry.number)
        if entry.identity is not None:
            trial.fingerprint, trial.data_digest = entry.identity.fingerprint, entry.identity.data_digest
            trial.environment = entry.identity.environment
            if entry.identity.shape is not None:
                ModelShapeRepository(session).put(entry.identity.fingerprint, entry.identity.shape)
        measurements.look_up(trial.id, [reported.step for reported in entry.reported])
        for reported in entry.reported:
            metrics = {name: value if is_usable(value) else None for name, value in reported.metrics.items()}
            replaced = measurements.put(
                trial.id,
                step=reported.step,
                epoch=reported.epoch,
                seconds=reported.seconds,
                metrics=metrics,
                recorded_at=now,
            )
            if replaced is None:
                job.crashes = 0
            trial.spent_seconds += _newly_spent(trial, reported, replaced_seconds=replaced)
            trial.step = reported.step
            trial.seconds = reported.seconds
            trial.metrics = metrics
            trial.value = metrics.get(job.metric)
            if reported.remarks:
                trial.detail = storable("; ".join(reported.remarks)[:MAX_REMARKS_LENGTH])
            told.append({"number": trial.number, "step": trial.step, "value": trial.value})
    EventRepository(session).add_all(job.id, "trial.measured", told, now)


def _set_waiting(session: Session, job: Job, waiting_for: str | None, *, now: datetime) -> None:
    told = None if waiting_for is None else storable(waiting_for)
    if job.waiting_for != told:
        job.waiting_since = None if told is None else job.waiting_since or now
        job.waiting_for = told
        record_change_event(session, job, now=now)


def _job_to_go_on(session: Session, lease: Lease) -> Job:
    """The leased job, locked, unless its run is asked to end. Raises: LeaseLost, RunAskedToEnd."""
    job = lock_leased_job(session, lease)
    if job.requested is not None:
        raise RunAskedToEnd(lease.job_id)
    return job


def _newly_spent(trial: Trial, reported: Measurement, *, replaced_seconds: float | None) -> float:
    """Seconds of training up to a measurement that are not yet counted.

    Args:
        replaced_seconds: training time of the measurement recorded before at the same step, if there is one.
    """
    if reported.seconds == replaced_seconds:
        return 0.0  # a resumed trial first gives its checkpoint's measurement again
    if reported.step <= trial.step:
        return reported.seconds  # there was no checkpoint: it began again
    return max(0.0, reported.seconds - trial.seconds)


def finish_trial(
    session: Session,
    lease: Lease,
    number: int,
    state: TrialState,
    *,
    reason: FailureReason | None = None,
    detail: str | None = None,
    now: datetime,
) -> None:
    """Moves a running (or, cancelled or failed, a queued) trial to a final state. Raises: LeaseLost, NotFound."""
    job = lock_leased_job(session, lease)
    trial = TrialRepository(session).get(lease.job_id, number)
    if detail is None and trial.state is TrialState.RUNNING:
        detail = trial.detail  # the remarks of its measurements
    if (trial.state, trial.reason) != (state, reason):
        cause = CancelCause.USER if state is TrialState.CANCELLED else None  # nothing else ends one alone
        move_trial(session, trial, state, now=now, reason=reason, cancel_cause=cause, detail=detail)
    job.crashes = 0


def requeue_trial(
    session: Session,
    lease: Lease,
    number: int,
    *,
    detail: str,
    losses: int,
    memory_failures: int,
    config: TrialConfig | None = None,
    now: datetime,
) -> None:
    """Puts a trial back in the queue, to go on from its last checkpoint. Raises: LeaseLost, NotFound.

    Args:
        losses: how often it was resumed after a loss, including this time.
        memory_failures: how often it was resumed after it ran out of memory, including this time.
        config: the config with which it continues; None: its own.
    """
    lock_leased_job(session, lease)
    trial = TrialRepository(session).get(lease.job_id, number)
    trial.losses, trial.memory_failures = losses, memory_failures
    if config is not None:
        trial.config = config.to_json()
    if trial.state is not TrialState.QUEUED:  # it can fail before it has begun, too
        move_trial(session, trial, TrialState.QUEUED, now=now, detail=detail)


def _waits_for_its_pause(session: Session, job: Job) -> bool:
    """True if a job that is asked to pause has trials that users asked for meanwhile."""
    if job.requested is not JobRequest.PAUSE:
        return False
    queued = TrialRepository(session).page(job.id, states=(TrialState.QUEUED,))
    return any(trial.proposed or trial.spared for trial in queued)


def finish_job(
    session: Session, lease: Lease, *, failure: str | None, cut_short: CutShort | None = None, now: datetime
) -> JobState:
    """Ends the job: cancels unfinished trials, stores the recommendation, and returns the state that it ended in.

    A job without failure succeeds if at least one search trial completed. If its budget or trials have changed since
    the run began, it goes back to the queue instead.

    Args:
        failure: what ended the run early, for a person.
        cut_short: the cause if it ended before its trials.

    Raises:
        LeaseLost: the job is no longer this run's.
    """
    job = lock_leased_job(session, lease)
    if failure is None and (job.requested is JobRequest.RESTART or _waits_for_its_pause(session, job)):
        put_back(session, job, now=now, crash=None)
        return job.state
    cause, spent = CancelCause.BUDGET, BUDGET_SPENT
    if cut_short is CutShort.QUOTA:
        cause, spent = CancelCause.QUOTA, quota_spent(job.project)
    if failure is not None:
        cause = CancelCause.JOB_FAILED
    was_cut_off = cancel_unfinished_trials(session, job, cause, now=now, detail=failure or spent)
    trials = TrialRepository(session).with_measurements(job.id)
    # Between two trials nothing is unfinished, for instance if clients train them and none has one.
    is_spent = cut_short in (CutShort.BUDGET, CutShort.QUOTA)
    was_cut_off = was_cut_off or (is_spent and len(trials) < job.num_trials)
    cut_off = spent if was_cut_off else None
    if failure is None and not was_cut_off:
        job.num_trials = len(trials)  # a phase may have needed fewer than it was allotted
        if cut_short is CutShort.TIME_NEARLY_OVER:
            cut_off = _time_nearly_over(job, trials)
    if not store_recommendation(session, job, trials, now=now) and failure is None:
        failure = _no_recommendation(job, trials, cut_off)
    to, told = (JobState.FAILED, None) if failure else (JobState.SUCCEEDED, cut_off)
    move_job(session, job, to, now=now, failure=failure, cut_off=told)
    return job.state


def _time_nearly_over(job: Job, trials: Sequence[Trial]) -> str:
    num_begun = sum(trial.phase is not Phase.CONFIRMATION for trial in trials)
    return f"its time was nearly over, so that it began {num_begun} of {num_searched(job.specification)} trials"


def _no_recommendation(job: Job, trials: Sequence[Trial], cut_off: str | None) -> str:
    search = [trial for trial in trials if trial.phase is Phase.SEARCH]
    ended = ", ".join(f"trial {t.number} {t.state}{f' ({t.reason})' if t.reason else ''}" for t in search[:5])
    more = f" and {len(search) - 5} more" if len(search) > 5 else ""
    told = next((f"; trial {t.number}: {t.detail}" for t in search if t.reason and t.detail), "")
    tried = f"{ended or 'none was started'}{more}{told}"
    why = "" if cut_off is None else f"; {cut_off}"
    return f"no search trial completed, so {job.workload!r} gets no recommendation: {tried}{why}"
