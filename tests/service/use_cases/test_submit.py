"""Submitting jobs: what is stored, what is refused, and what is the same job again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from service.domain import DEFAULT_PROJECT, JobState, Phase
from service.errors import IdempotencyKeyReused, InvalidInput
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from service.store.models import Job
from service.store.repositories import EventRepository, JobRepository
from service.store.session import Database
from service.use_cases.submit import create_job
from tests.support.service.scenarios import (
    NOW,
    specification,
)


def _create(
    database: Database, spec: JobSpecification, *, key: str | None = None, now: datetime = NOW
) -> tuple[Job, bool]:
    with database.writing() as session:
        return create_job(
            session, spec, name=None, tags={}, project=DEFAULT_PROJECT, owner=None, idempotency_key=key, now=now
        )


def test_a_new_job_is_queued_with_the_workloads_defaults_and_an_event(database: Database) -> None:
    job, created = _create(database, JobSpecification.model_validate({"workload": {"name": "digits-mlp"}}))
    assert created
    assert (job.state, job.metric, job.direction) == (JobState.QUEUED, "validation_loss", "minimize")
    with database.reading() as session:
        assert JobRepository(session).get(job.id).created_at == NOW
        (event,) = EventRepository(session).after(0, project=None, limit=10)
    assert (event.kind, event.data["state"]) == ("job.state", "queued")


def test_an_idempotency_key_makes_one_job(database: Database) -> None:
    first, created = _create(database, specification(), key="k")
    again, created_again = _create(database, specification(), key="k")
    assert (created, created_again) == (True, False)
    assert first.id == again.id
    with pytest.raises(IdempotencyKeyReused):
        _create(database, specification(budget={"num_trials": 9}), key="k")


def test_an_idempotency_key_is_forgotten_after_a_month(database: Database) -> None:
    first, _ = _create(database, specification(), key="k")
    kept, _ = _create(database, specification(), key="other", now=NOW + timedelta(days=2))
    soon, is_new = _create(database, specification(), key="k", now=NOW + timedelta(days=30))
    assert (soon.id, is_new) == (first.id, False)
    later, is_new = _create(database, specification(), key="k", now=NOW + timedelta(days=31))
    assert (later.id != first.id, is_new) == (True, True)
    with database.reading() as session:
        with_keys = {
            job.id for job in JobRepository(session).page(project=None, limit=10) if job.idempotency_key is not None
        }
    assert with_keys == {kept.id, later.id}


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"workload": {"name": "nope"}}, "workload.name", "'nope'"),
        ({"workload": {"name": "digits-mlp", "options": {"layers": 3}}}, "workload.options.layers", "3"),
        ({"objectives": [{"metric": "bleu"}]}, "objectives[0].metric", "'bleu'"),
        ({"search_space": "adam"}, "search_space", "'adam'"),
        ({"baseline": {"search_space": "adam"}}, "baselines[0].search_space", "'adam'"),
        ({"training": {"num_steps": 10, "evaluate_every": 20}}, "training.evaluate_every", "20"),
        ({"training": {"batch_size": 7}, "resources": {"workers_per_trial": 2}}, "training.batch_size", "7"),
        ({"pruner": {"min_steps": 1000}}, "pruner.min_steps", "1000"),
        ({"sampler": {"name": "auto"}, "pruner": {"name": "asha"}}, "pruner.name", "'asha' does not go with"),
        ({"constraints": [{"metric": "bleu", "max": 1}]}, "constraints[0].metric", "'bleu'"),
        ({"constraints": [{"metric": "step_seconds"}]}, "constraints[0]", "must have a min, a max or both"),
        ({"constraints": [{"metric": "step_seconds", "min": 2, "max": 1}]}, "constraints[0].min", "2 exceeds"),
        ({"constraints": [{"metric": "steps_to_target", "max": 9}]}, "target", "'steps_to_target'"),
        ({"pinned": [{"lr": 1e-3}, {"lr": 5.0}]}, "pinned[1].lr", "5.0"),
        ({"pinned": [{"learning_rate": 1.0}]}, "pinned[0]", "learning_rate"),
        ({"search_space": "soap", "pinned": ["algoperf"]}, "pinned[0]", "'algoperf' has no point of 'shampoo'"),
        ({"baseline": {"pinned": [{"lr": "big"}]}}, "baselines[0].pinned[0].lr", "'big'"),
        ({"pruner": {"reduction_factor": 4}}, "pruner.reduction_factor", "no effect with the sampler 'auto'"),
        ({"budget": {"num_trials": 1}}, "budget.num_trials", "1"),
        (
            {"objectives": [{"metric": "best_steps_to_target"}], "target": {"metric": "validation_loss", "value": 1}},
            "objectives[0].metric",
            "steps_to_target is of the whole curve already: give it without the prefix, got 'best_steps_to_target'",
        ),
        (
            {"resources": {"gpus_per_worker": 1e-6}},
            "resources.gpus_per_worker",
            "must be 0 or at least 0.01, got 1e-06",
        ),
        (
            {
                "search_space": {
                    "optimizer": "shampoo",
                    "parameters": [
                        {"type": "float", "name": "workload.layers", "low": 0.0, "high": 1.0, "default": 0.5}
                    ],
                }
            },
            "search_space.parameters[0].name",
            "'layers'",
        ),
        (
            {"search_space": {"optimizer": "shampoo", "parameters": [], "fixed": {"workload.layers": 2}}},
            "search_space.fixed.workload.layers",
            "'layers'",
        ),
    ],
)
def test_an_impossible_job_is_refused_naming_field_and_value(
    database: Database, fields: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        _create(database, specification(**fields))
    assert refused.value.field == field
    assert said in refused.value.message
    with database.reading() as session:
        assert JobRepository(session).page(project=None, limit=1) == []


@pytest.mark.parametrize(
    ("fields", "num_confirmations"),
    [
        ({"confirmation": {}}, 2 * 7),  # the baseline's one trial leaves nothing to choose
        ({"confirmation": {}, "baseline": {}}, 2 * 2 * 1 + 2 * 6),
        ({"confirmation": {"top_k": 2, "num_seeds": 8}}, 2 * 2 * 2 + 2 * 6),
        ({"confirmation": {"top_k": 1, "num_seeds": 5}}, 2 * 5),
        ({"confirmation": {"top_k": 2, "num_seeds": 5}, "baseline": None}, 2 * 1 + 4),
    ],
)
def test_the_trials_of_the_confirmation_come_on_top_of_the_budget(
    database: Database, fields: dict[str, Any], num_confirmations: int
) -> None:
    spec = specification(**fields)
    plan = plan_job(spec)
    assert plan.allotments[Phase.CONFIRMATION] == num_confirmations
    job, _ = _create(database, spec)
    assert job.num_trials == 4 + num_confirmations
