"""Queries and jobs that cannot be: the answer names the field, the value and what would do."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.store.session import Database
from tests.support.service.impossible_jobs import WORKLOAD, only_error
from tests.support.service.scenarios import begin_trial, claimed_job, measure


@pytest.mark.parametrize(
    ("path", "field", "message"),
    [
        ("/v1/jobs?tag=%3Dvision", "tag", "'=vision' must be `name` or `name=value`"),
        (
            "/v1/jobs?created_after=yesterday",
            "created_after",
            "must be a time with its zone, such as 2026-03-01T12:00:00Z, got 'yesterday'",
        ),
        (
            "/v1/jobs?created_after=2026-13-01T12:00:00Z",
            "created_after",
            "'2026-13-01T12:00:00Z' is no time: month must be in 1..12",
        ),
        ("/v1/jobs?text=a%00b", "text", "must not contain the NUL character"),
        (
            "/v1/jobs/{job}/trials?order_by=-speed",
            "order_by",
            "'-speed' must be number, value, state, phase, step, seconds or parameter.NAME, with a minus for "
            "descending",
        ),
        (
            "/v1/jobs/{job}/trials/0/measurements?metric=validation_los",
            "metric",
            "no measurement has 'validation_los' (known: train_loss, validation_accuracy, validation_loss): "
            "did you mean 'validation_loss'?",
        ),
        (
            "/v1/jobs/{job}/trials/0/plots/curve?metric=bleu",
            "metric",
            "no measurement has 'bleu' (known: train_loss, validation_accuracy, validation_loss)",
        ),
        ("/compare/best-so-far", "jobs", "must be 1 to 6 ids of jobs, got 0"),
    ],
)
def test_a_query_that_cannot_be_is_answered_with_its_value(
    sqlite_http: httpx.Client, sqlite_database: Database, path: str, field: str, message: str
) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    measure(sqlite_database, lease, 0, 10, 0.5)
    answer = sqlite_http.get(path.format(job=lease.job_id))
    assert answer.status_code == 422, answer.text
    assert [(error["field"], error["message"]) for error in answer.json()["errors"]] == [(field, message)]


def test_insights_that_are_not_there_yet_are_told_with_the_state_of_their_job(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    lease = claimed_job(sqlite_database)
    answer = sqlite_http.get(f"/v1/jobs/{lease.job_id}/insights")
    assert (answer.status_code, answer.json()["detail"]) == (404, f"no insights of the running job {lease.job_id!r}")


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"objectives": [{"metric": "validation_loss"}, {"metric": "validation_loss"}]},
            "objectives[1].metric",
            "'validation_loss' is an objective already",
        ),
        (
            {"resources": {"custom_resources": {"GPU": 1}}},
            "resources.custom_resources.GPU",
            "'GPU' is no name of a resource: up to 64 letters, digits, '_', '-' and '.', a letter first, and none of ",
        ),
        (
            {"resources": {"custom_resources": {"TPU": 1.5}}},
            "resources.custom_resources.TPU",
            "must be whole above 1, got 1.5",
        ),
        (
            {
                "sampler": {"name": "random"},
                "pruner": {"name": "pbt", "interval": 25},
                "training": {"num_steps": 100, "evaluate_every": 10},
            },
            "pruner.interval",
            "25 is no multiple of training.evaluate_every = 10",
        ),
        (
            {"search_space": {"optimizer": "adamw", "fixed": {"averaging.decay": 0.9}}, "baselines": []},
            "search_space",
            "its default trial is impossible: averaging.method: is required, got None",
        ),
        (
            {"external": {}, "known_configs": "nearest"},
            "known_configs",
            "'nearest' goes by the model, and that of external trials is their clients'",
        ),
        (
            {"external": {}, "pinned": ["winners"]},
            "pinned",
            "winners and nearest configs go by the model, and which one this is could not be told: that of external",
        ),
    ],
)
def test_a_job_that_cannot_be_is_answered_with_the_field_and_its_value(
    sqlite_http: httpx.Client, fields: dict[str, Any], field: str, message: str
) -> None:
    at, told = only_error(sqlite_http, {**WORKLOAD, **fields})
    assert at == field
    assert told.startswith(message)
