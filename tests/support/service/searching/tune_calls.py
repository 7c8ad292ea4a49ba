"""Tune's calls of the adapters of a run, made by a test: one trial at a time, no process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.policy.job_policy import JobPolicy
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.retries import Retries
from service.scheduler.tune.adapters import adapters_of
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.messages import TrialReport
from service.scheduler.tune.open_trials import OpenTrials
from service.scheduler.tune.run_end import Ending
from service.specification.job import Constraint, JobSpecification
from service.specification.planning import plan_job
from service.store.models import Trial
from service.store.repositories import TrialRepository
from service.store.session import Database
from service.use_cases.leases import Lease, claim_job, register_worker
from service.use_cases.submit import create_job
from trainers.config import Measurement

SPECIFICATION = JobSpecification.model_validate(
    {
        "workload": {"name": "digits-mlp"},
        "budget": {"num_trials": 2},
        "training": {"num_steps": 40, "evaluate_every": 10},
        "baseline": None,
        "confirmation": None,
        "pruner": {"name": "none"},
    }
)


class ToldSignals:
    """Signals that a test gives."""

    def __init__(self) -> None:
        self.told_ending: Ending | None = None
        self.told_seconds_left = math.inf
        self.told_to_stop: frozenset[int] = frozenset()
        self.has_room = True

    def ending(self) -> Ending | None:
        return self.told_ending

    def seconds_left(self) -> float:
        return self.told_seconds_left

    def to_stop(self) -> frozenset[int]:
        return self.told_to_stop

    def look_for_room(self) -> None:
        if not self.has_room:
            self.told_ending = Ending.NO_ROOM


class Tune:
    """Calls the adapters as Tune does, for one trial at a time."""

    def __init__(
        self,
        database: Database,
        checkpoints: Path,
        policy: JobPolicy | None = None,
        *,
        constraints: Sequence[Constraint] = (),
        retries: Retries | None = None,
        specification: JobSpecification = SPECIFICATION,
        feasibility: Feasibility | None = None,
    ) -> None:
        now = datetime.now(UTC)
        with database.writing() as session:
            worker_id = register_worker(session, host="here", pid=1, now=now)
            create_job(
                session, specification, name=None, tags={}, project="default", owner=None, idempotency_key=None, now=now
            )
            lease = claim_job(session, worker_id, lease_seconds=60, now=now)
        assert lease is not None
        self.lease: Lease = lease
        self.database = database
        plan = plan_job(specification.model_copy(update={"constraints": list(constraints)}))
        self.policy = policy or make_policy(plan)
        self.policy.restore([])
        self.signals = ToldSignals()
        self.journal = Journal(database, lease, self.signals)
        trials = OpenTrials(self.journal, self.policy, self.signals, configs={}, checkpoints=checkpoints)
        adapters = adapters_of(
            plan,
            self.policy,
            self.journal,
            trials,
            self.signals,
            size=GroupSize(1, 1.0, 0),
            retries=retries,
            feasibility=feasibility,
        )
        self.pruner, self.recorder, self.searcher = adapters.pruner, adapters.recorder, adapters.searcher

    def begin(self) -> Any:
        """Suggests and starts a trial."""
        config = self.searcher.suggest("tune-1")
        trial = SimpleNamespace(config=config, last_result={})
        self.recorder.on_trial_start(0, [], trial)
        return trial

    def give(self, trial: Any, report: TrialReport) -> str:
        """Passes on a result of `Trainable.train`; returns the pruner's decision."""
        result = report.to_tune()
        decision = "STOP" if result["done"] else self.pruner.on_trial_result(None, trial, result)
        self.recorder.on_trial_result(0, [], trial, result)
        trial.last_result = result
        if decision == "STOP":
            self.recorder.on_trial_complete(0, [], trial)
        return decision

    def stored(self) -> Sequence[Trial]:
        with self.database.reading() as session:
            return TrialRepository(session).with_measurements(self.lease.job_id)


def measured(step: int, *, kind: Any = "measured", metrics: Mapping[str, float] | None = None) -> TrialReport:
    values = {"validation_loss": 1.0 / step} if metrics is None else metrics
    return TrialReport(kind, Measurement(step, step / 10, step / 100, values))
