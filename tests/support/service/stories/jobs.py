"""Realistic jobs, written through the use cases: sampled parameters, noisy curves, every kind of ending."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert
from ulid import ULID

from service.domain import DEFAULT_PROJECT, FailureReason, JobState, Phase, TrialState
from service.specification.identity import StoredIdentity
from service.specification.job import JobSpecification
from service.specification.planning import plan_job, proposed_side
from service.store.models import Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.leases import Lease
from service.use_cases.run import (
    TrialMeasurements,
    add_trial,
    finish_job,
    finish_trial,
    record_measurements,
    start_trial,
)
from service.use_cases.submit import create_job
from tests.support.service.scenarios import add_worker, claim
from trainers.config import Measurement, TrialConfig

NUM_STEPS = 200
EVALUATE_EVERY = 10


def submit_digits(
    database: Database,
    *,
    now: datetime,
    name: str,
    tags: dict[str, str] | None = None,
    model: str | None = None,
    project: str = DEFAULT_PROJECT,
    **fields: Any,
) -> str:
    """The id of a new job of 20 trials, 5 of them the baseline's."""
    content: dict[str, Any] = {
        "workload": {"name": "digits-mlp"},
        "budget": {"num_trials": 20},
        "baseline": {"budget_share": 0.25},
        "training": {"num_steps": NUM_STEPS, "evaluate_every": EVALUATE_EVERY},
        "resources": {"workers_per_trial": 2},
        **fields,
    }
    specification = JobSpecification.model_validate(content)
    with database.writing() as session:
        job, _ = create_job(
            session,
            specification,
            name=name,
            tags=tags or {},
            model=model,
            project=project,
            owner=None,
            idempotency_key=None,
            now=now,
        )
        return job.id


class Story:
    """A job that runs: trials begin, measure and end a few seconds apart."""

    def __init__(self, database: Database, *, now: datetime, name: str = "digits, first look", **fields: Any) -> None:
        """Submits the job, its specification with these fields, and claims it."""
        self.database = database
        self.now = now
        self.identity: StoredIdentity | None = None
        """The identity of model, data and place that trials report with their first measurement; None: nothing."""
        self.job_id = submit_digits(database, now=now, name=name, tags={"team": "vision"}, **fields)
        lease = claim(database, add_worker(database, now=now), now=self.later(2), lease_seconds=86_400)
        assert lease is not None
        assert lease.job_id == self.job_id
        self.lease: Lease = lease

    def later(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now

    def begin(self, number: int) -> None:
        """Starts trial `number`; every fourth is the baseline's."""
        phase = Phase.BASELINE if number % 4 == 3 else Phase.SEARCH
        with self.database.writing() as session:
            plan = plan_job(JobRepository(session).get(self.job_id).specification)
            side = proposed_side(plan, phase, None)
            space = plan.spaces[side]
            parameters = space.defaults() if number in (0, 3) else space.sample(random.Random(number))
            config = plan.trial_config(side, parameters)
            add_trial(
                session, self.lease, number=number, phase=phase, parameters=parameters, config=config, now=self.now
            )
            start_trial(session, self.lease, number, now=self.now)

    def measure(self, number: int, *, until: int, final: float | None = None) -> None:
        """Measures trial `number` up to step `until`, on a curve that ends over all steps at `final`."""
        rng = random.Random(1000 + number)
        floor = final if final is not None else (0.09 if number % 4 == 3 else 0.07) + 0.5 * rng.random() ** 3
        speed = 4 + 6 * rng.random()
        reported = []
        for step in range(EVALUATE_EVERY, until + 1, EVALUATE_EVERY):
            decay = (math.exp(-speed * step / NUM_STEPS) - math.exp(-speed)) / (1 - math.exp(-speed))
            noise = 1 + 0.06 * rng.gauss(0, 1) * decay
            loss = floor + (2.3 - floor) * decay * noise
            metrics = {
                "train_loss": 0.8 * loss,
                "validation_loss": loss,
                "validation_accuracy": 1 - 0.3 * loss / (0.5 + loss),
            }
            reported.append(Measurement(step=step, epoch=step / 11, seconds=step * 0.013, metrics=metrics))
        with self.database.writing() as session:
            record_measurements(
                session, self.lease, [TrialMeasurements(number, reported, identity=self.identity)], now=self.later(1)
            )

    def diverge(self, number: int) -> None:
        """Trial `number` measures a rising loss, one that is not finite, and fails."""
        losses = [2.4, 3.9, 11.0, math.nan]
        reported = [
            Measurement(step=10 * n, epoch=n, seconds=0.13 * n, metrics={"train_loss": x, "validation_loss": x})
            for n, x in enumerate(losses, start=1)
        ]
        with self.database.writing() as session:
            record_measurements(session, self.lease, [TrialMeasurements(number, reported)], now=self.now)
        self.end(number, TrialState.FAILED, FailureReason.DIVERGED)

    def end(self, number: int, state: TrialState, reason: FailureReason | None = None) -> None:
        with self.database.writing() as session:
            finish_trial(session, self.lease, number, state, reason=reason, now=self.later(1.5))

    def run(self, number: int, final: float | None = None) -> None:
        """A whole trial: most complete, some are pruned, few diverge."""
        self.begin(number)
        if number % 10 == 6:
            self.diverge(number)
        elif number % 5 in (2, 4) and number > 5 and final is None:
            self.measure(number, until=30 if number % 2 else 80)
            self.end(number, TrialState.PRUNED)
        else:
            self.measure(number, until=NUM_STEPS, final=final)
            self.end(number, TrialState.COMPLETED)

    def crowd(self, numbers: range) -> None:
        """Trials of the search with default parameters that were cancelled before they began, written directly as
        rows."""
        with self.database.writing() as session:
            plan = plan_job(JobRepository(session).get(self.job_id).specification)
            parameters = plan.spaces[Phase.SEARCH].defaults()
            config = plan.trial_config(Phase.SEARCH, parameters)
            common = {
                "job_id": self.job_id,
                "phase": Phase.SEARCH,
                "state": TrialState.CANCELLED,
                "parameters": parameters,
                "config": config.to_json(),
                "metrics": {},
                "created_at": self.now,
                "finished_at": self.now,
            }
            rows = [{**common, "id": f"trial_{ULID()}", "number": number} for number in numbers]
            session.execute(insert(Trial), rows)

    def confirm(self, number: int, source: int, seed: int, final: float | None) -> None:
        """A whole trial `number` that repeats the config of `source`; it diverges if `final` is None."""
        with self.database.writing() as session:
            trial = TrialRepository(session).get(self.job_id, source)
            config = TrialConfig.from_json({**trial.config, "seed": seed})
            add_trial(
                session,
                self.lease,
                number=number,
                phase=Phase.CONFIRMATION,
                parameters=trial.parameters,
                config=config,
                confirms=source,
                now=self.now,
            )
            start_trial(session, self.lease, number, now=self.now)
        if final is None:
            self.diverge(number)
        else:
            self.measure(number, until=NUM_STEPS, final=final)
            self.end(number, TrialState.COMPLETED)

    def finish(self, failure: str | None = None) -> JobState:
        with self.database.writing() as session:
            return finish_job(session, self.lease, failure=failure, now=self.later(1))


def confirmed_story(
    database: Database, *, now: datetime, identity: StoredIdentity | None = None, **fields: Any
) -> Story:
    """A job of 32 trials whose best ones were trained again with four seeds: the luckiest one did not win."""
    wanted: dict[str, Any] = {"budget": {"num_trials": 32}, "confirmation": {"top_k": 2, "num_seeds": 4}, **fields}
    story = Story(database, now=now, **wanted)
    story.identity = identity
    for number in range(32):
        story.run(number, {13: 0.0712, 8: 0.0733, 11: 0.0871}.get(number))
    chosen = [(13, 1, 0.0832), (8, 1, 0.0771), (11, 1, 0.0878)]
    values = {8: [0.0771, 0.0765, 0.0768], 11: [0.0878, 0.0871, 0.0881]}
    compared = [(source, seed, finals[seed - 2]) for seed in (2, 3, 4) for source, finals in values.items()]
    for number, (source, seed, final) in enumerate([*chosen, *compared], start=32):
        story.confirm(number, source, seed, final)
    assert story.finish() is JobState.SUCCEEDED
    return story
