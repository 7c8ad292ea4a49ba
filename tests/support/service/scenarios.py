"""Steps that tests of the service share: a submitted job, a worker's lease, a trial that ran."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert

from search_spaces import Scalar
from service.domain import DEFAULT_PROJECT, FailureReason, Phase, TrialState, phase_of
from service.specification.identity import ModelOfJob, StoredIdentity
from service.specification.job import JobSpecification
from service.specification.planning import plan_job, proposed_side
from service.store.models import Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database, Session
from service.use_cases.leases import Lease, claim_job, register_worker
from service.use_cases.run import TrialMeasurements, add_trial, finish_trial, record_measurements, start_trial
from service.use_cases.submit import create_job
from trainers.config import Measurement, TrialConfig
from trainers.identity.values import ModelShape

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Clock:
    """A clock that moves only when told to."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


def specification(**fields: Any) -> JobSpecification:
    """A small digits-mlp job: 4 trials of 40 steps, measured every 10, one of them the baseline's."""
    content: dict[str, Any] = {
        "workload": {"name": "digits-mlp"},
        "budget": {"num_trials": 4},
        "training": {"num_steps": 40, "evaluate_every": 10},
        **({} if "baselines" in fields else {"baseline": {"budget_share": 0.25}}),
        **fields,
    }
    return JobSpecification.model_validate(content)


def submit(
    database: Database,
    *,
    now: datetime = NOW,
    model: str | None = None,
    fingerprint: str | None = None,
    shape: ModelShape | None = None,
    project: str = DEFAULT_PROJECT,
    **fields: Any,
) -> str:
    """The id of a new job.

    Args:
        model: the user's own name of the model.
        fingerprint: of the model, if winners are asked for; likewise its shape.
    """
    wanted = specification(**fields)
    with database.writing() as session:
        job, _ = create_job(
            session,
            wanted,
            name=None,
            model=model,
            of_model=None if fingerprint is None else ModelOfJob(fingerprint, shape),
            project=project,
            owner=None,
            tags={},
            idempotency_key=None,
            now=now,
        )
        return job.id


def add_worker(database: Database, *, now: datetime = NOW, allows_code: bool = True) -> str:
    """The id of a new worker."""
    with database.writing() as session:
        return register_worker(session, host="here", pid=1, allows_code=allows_code, now=now)


def claim(
    database: Database,
    worker_id: str,
    *,
    now: datetime = NOW,
    lease_seconds: float = 30.0,
    running: Collection[str] = (),
) -> Lease | None:
    """The lease of the next job, if there is one."""
    with database.writing() as session:
        return claim_job(session, worker_id, lease_seconds=lease_seconds, now=now, running=running)


def claimed_job(database: Database, **fields: Any) -> Lease:
    """The lease of a job that was just submitted, held by a worker that just registered."""
    submit(database, **fields)
    lease = claim(database, add_worker(database))
    assert lease is not None
    return lease


def begin_trial(
    database: Database,
    lease: Lease,
    number: int,
    phase: Phase = Phase.SEARCH,
    *,
    optimizer: str | None = None,
    values: Mapping[str, Scalar] | None = None,
    now: datetime = NOW,
) -> None:
    """A running trial with the default parameters except for `values`, of the search, or of the baseline with this
    optimizer (None: the only one)."""
    with database.writing() as session:
        _begin(session, lease, number, phase, optimizer, values, now)


def _begin(
    session: Session,
    lease: Lease,
    number: int,
    phase: Phase,
    optimizer: str | None,
    values: Mapping[str, Scalar] | None,
    now: datetime,
) -> None:
    plan = plan_job(JobRepository(session).get(lease.job_id).specification)
    side = proposed_side(plan, phase, optimizer)
    parameters = plan.spaces[side].defaults(values)
    config = plan.trial_config(side, parameters)
    add_trial(session, lease, number=number, phase=phase, parameters=parameters, config=config, now=now)
    start_trial(session, lease, number, now=now)


def fork_trial(database: Database, lease: Lease, number: int, *, parent: int, step: int, lr: float) -> None:
    """A running fork with the default parameters except for `lr`."""
    with database.writing() as session:
        plan = plan_job(JobRepository(session).get(lease.job_id).specification)
        parameters = {**plan.spaces[Phase.SEARCH].defaults(), "lr": lr}
        config = plan.trial_config(Phase.SEARCH, parameters)
        add_trial(
            session,
            lease,
            number=number,
            phase=Phase.SEARCH,
            parameters=parameters,
            config=config,
            forked_from=(parent, step),
            now=NOW,
        )
        start_trial(session, lease, number, now=NOW)


def measure(
    database: Database,
    lease: Lease,
    number: int,
    step: int,
    loss: float,
    *,
    now: datetime = NOW,
    offset: float = 0.0,
    identity: StoredIdentity | None = None,
) -> None:
    """One measurement of a running trial, after a hundredth of a second for each step and `offset` seconds."""
    with database.writing() as session:
        reported = [_measured(step, loss, offset)]
        record_measurements(session, lease, [TrialMeasurements(number, reported, identity)], now=now)


def measure_curve(
    database: Database, lease: Lease, number: int, losses: Mapping[int, float], *, now: datetime = NOW
) -> None:
    """Measurements of a running trial, written together: its loss by step."""
    with database.writing() as session:
        reported = [_measured(step, loss) for step, loss in losses.items()]
        record_measurements(session, lease, [TrialMeasurements(number, reported)], now=now)


def _measured(step: int, loss: float, offset: float = 0.0) -> Measurement:
    metrics = {"train_loss": loss, "validation_loss": loss, "validation_accuracy": 1 / (1 + loss)}
    return Measurement(step=step, epoch=step / 10, seconds=step / 100 + offset, metrics=metrics)


def _run(
    session: Session, lease: Lease, number: int, loss: float, now: datetime, identity: StoredIdentity | None = None
) -> None:
    """A running trial's measurements, whose loss falls over 40 steps, and its end, in one transaction: the same number
    of events as for a trial that a job runs, in a fraction of the time."""
    reported = [_measured(step, loss * 40 / step) for step in (10, 20, 30, 40)]
    record_measurements(session, lease, [TrialMeasurements(number, reported, identity)], now=now)
    finish_trial(session, lease, number, TrialState.COMPLETED, now=now)


def end_trial(
    database: Database,
    lease: Lease,
    number: int,
    state: TrialState = TrialState.COMPLETED,
    *,
    reason: FailureReason | None = None,
    detail: str | None = None,
    now: datetime = NOW,
) -> None:
    """Ends a running trial."""
    with database.writing() as session:
        finish_trial(session, lease, number, state, reason=reason, detail=detail, now=now)


def begin_repeat(
    database: Database, lease: Lease, number: int, *, confirms: int, seed: int, now: datetime = NOW
) -> None:
    """A running confirmation trial."""
    with database.writing() as session:
        _begin_repeat(session, lease, number, confirms, seed, now)


def _begin_repeat(session: Session, lease: Lease, number: int, confirms: int, seed: int, now: datetime) -> None:
    source = TrialRepository(session).get(lease.job_id, confirms)
    config = TrialConfig.from_json({**source.config, "seed": seed})
    add_trial(
        session,
        lease,
        number=number,
        phase=Phase.CONFIRMATION,
        parameters=source.parameters,
        config=config,
        confirms=confirms,
        now=now,
    )
    start_trial(session, lease, number, now=now)


def repeat_trial(
    database: Database, lease: Lease, number: int, loss: float, *, confirms: int, seed: int, now: datetime = NOW
) -> None:
    """A completed confirmation trial."""
    with database.writing() as session:
        _begin_repeat(session, lease, number, confirms, seed, now)
        _run(session, lease, number, loss, now)


def run_trial(
    database: Database,
    lease: Lease,
    number: int,
    loss: float,
    phase: Phase = Phase.SEARCH,
    *,
    now: datetime = NOW,
    identity: StoredIdentity | None = None,
    values: Mapping[str, Scalar] | None = None,
) -> None:
    """A completed trial whose loss falls to `loss` over 40 steps, with the default parameters except for `values`."""
    with database.writing() as session:
        _begin(session, lease, number, phase, None, values, now)
        _run(session, lease, number, loss, now, identity)


def store_trials(database: Database, job_id: str, trials: Sequence[Mapping[str, Any]]) -> None:
    """Stores trials as if they had been run, numbered from 0, in one statement: {column: value} of each; other columns
    are those of a completed trial of the search.
    """
    rows = []
    with database.writing() as session:
        plan = plan_job(JobRepository(session).get(job_id).specification)
        parameters = {phase_of(side): space.defaults() for side, space in plan.spaces.items()}
        configs = {
            phase_of(side): plan.trial_config(side, plan.spaces[side].defaults()).to_json() for side in plan.spaces
        }
        for number, fields in enumerate(trials):
            phase = fields.get("phase", Phase.SEARCH)
            space = Phase.SEARCH if phase is Phase.CONFIRMATION else phase
            defaults = {
                "id": f"{job_id}_{number}",
                "job_id": job_id,
                "number": number,
                "phase": phase,
                "state": TrialState.COMPLETED,
                "parameters": parameters[space],
                "config": configs[space],
                "runs": 1,
                "step": plan.num_steps,
                "seconds": 0.4,
                "spent_seconds": 0.4,
                "value": None,
                "metrics": {},
                "created_at": NOW,
                "started_at": NOW + timedelta(seconds=number),
                "finished_at": NOW + timedelta(seconds=number + 1),
            }
            rows.append({**defaults, **fields})
        session.execute(insert(Trial), rows)
