"""A job with as many trials and measurements as wanted, with noisy curves, several metrics and times that overlap."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, update

from service.domain import FailureReason, JobState, Phase, TrialState
from service.specification.planning import plan_job
from service.store.models import Event, Job, MeasurementRow, Trial
from service.store.packing import pack
from service.store.repositories import JobRepository, MeasurementRepository
from service.store.session import Database
from tests.support.service.stories.jobs import submit_digits

METRICS = (
    "validation_loss",
    "validation_accuracy",
    "train_loss",
    "examples_per_second",
    *(f"layer_{n}" for n in range(14)),
)
"""Names of as many metrics as a trial of a Shampoo optimizer stores."""
NUM_LANES = 8
STEPS_APART = 10
TRIALS_AT_ONCE = 500


def fill_job(database: Database, *, num_trials: int, num_measurements: int, now: datetime) -> str:
    """The id of a new job that has ended; a quarter of its trials are the baseline's, a third was stopped early."""
    num_steps = STEPS_APART * max(1, num_measurements)
    job_id = submit_digits(
        database,
        now=now,
        name=f"{num_trials} trials of {num_measurements} measurements",
        budget={"num_trials": max(2, num_trials)},
        training={"num_steps": num_steps, "evaluate_every": STEPS_APART},
    )
    generator = random.Random(0)
    for start in range(0, num_trials, TRIALS_AT_ONCE):
        numbers = range(start, min(num_trials, start + TRIALS_AT_ONCE))
        _store(database, job_id, numbers, num_measurements, generator, now=now)
    ended = now + timedelta(seconds=10 * (num_trials // NUM_LANES + 1))
    with database.writing() as session:
        times = {"started_at": now, "finished_at": ended, "running_seconds": (ended - now).total_seconds()}
        session.execute(update(Job).where(Job.id == job_id).values(state=JobState.SUCCEEDED, **times))
    return job_id


def _store(
    database: Database,
    job_id: str,
    numbers: range,
    num_measurements: int,
    generator: random.Random,
    *,
    now: datetime,
) -> None:
    trials: list[dict[str, Any]] = []
    measurements: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    with database.writing() as session:
        plan = plan_job(JobRepository(session).get(job_id).specification)
        repository = MeasurementRepository(session)
        set_id = repository.metric_set(METRICS)
        sides = list(plan.spaces)
        for number in numbers:
            phase = Phase.BASELINE if number % 4 == 3 else Phase.SEARCH
            side = sides[1] if phase is Phase.BASELINE else sides[0]
            parameters = plan.spaces[side].sample(generator)
            state = (TrialState.COMPLETED, TrialState.COMPLETED, TrialState.PRUNED)[generator.randrange(3)]
            if generator.random() < 0.05:
                state = TrialState.FAILED
            count = num_measurements if state is TrialState.COMPLETED else max(1, num_measurements // 4)
            began = now + timedelta(seconds=10 * (number // NUM_LANES) + generator.random())
            took = timedelta(seconds=9 * count / max(1, num_measurements))
            trial_id = f"{job_id}_{number}"
            floor, speed = 0.07 + 0.6 * generator.random() ** 3, 3 + 6 * generator.random()
            values: list[float] = []
            for index in range(1, count + 1):
                share = index / max(1, num_measurements)
                loss = floor + 2.2 * math.exp(-speed * share) * (1 + 0.1 * generator.gauss(0, 1))
                values = [
                    loss,
                    1 - loss / 4,
                    0.8 * loss,
                    1000 * generator.random(),
                    *(generator.random() for _ in range(14)),
                ]
                measurements.append(
                    {
                        "trial_id": trial_id,
                        "step": STEPS_APART * index,
                        "epoch": STEPS_APART * index / 11,
                        "seconds": took.total_seconds() * index / count,
                        "metric_set_id": set_id,
                        "packed_values": pack(values),
                        "recorded_at": began + took * (index / count),
                    }
                )
            trials.append(
                {
                    "id": trial_id,
                    "job_id": job_id,
                    "number": number,
                    "phase": phase,
                    "state": state,
                    "reason": FailureReason.DIVERGED if state is TrialState.FAILED else None,
                    "parameters": parameters,
                    "config": plan.trial_config(side, parameters).to_json(),
                    "runs": 1,
                    "step": STEPS_APART * count,
                    "seconds": took.total_seconds(),
                    "spent_seconds": took.total_seconds(),
                    "value": values[0],
                    "metrics": dict(zip(METRICS, values, strict=True)),
                    "created_at": began,
                    "started_at": began,
                    "finished_at": began + took,
                }
            )
            for told, moment in (("running", began), (state.value, began + took)):
                data = {"number": number, "state": told}
                events.append({"job_id": job_id, "kind": "trial.state", "data": data, "created_at": moment})
        for table, rows in ((Trial, trials), (MeasurementRow, measurements), (Event, events)):
            if rows:
                session.execute(insert(table), rows)
