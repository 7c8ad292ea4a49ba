"""Curves over HTTP: by metric, since a step or a time, and with few points that show every peak."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.figures.min_max import MinMax, fewest_points
from service.client import Client
from service.store.repositories import MeasurementRepository, TrialRepository
from service.store.session import Database
from tests.support.cases import in_one_test
from tests.support.service.scenarios import NOW, begin_trial, claimed_job

NUM_STEPS = 600


def wave(step: int) -> float | None:
    """A slow wave with a narrow peak, a narrow valley, and a hole."""
    special = {77: 9.0, 311: -9.0, 400: None}
    return special[step] if step in special else math.sin(step / 50)


@pytest.fixture
def job_id(database: Database) -> str:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    with database.writing() as session:
        trial = TrialRepository(session).get(lease.job_id, 0)
        measurements = MeasurementRepository(session)
        for step in range(1, NUM_STEPS + 1):
            metrics = {"train_loss": wave(step), "validation_loss": float(step)}
            measurements.put(
                trial.id,
                step=step,
                epoch=0.0,
                seconds=step / 10,
                metrics=metrics,
                recorded_at=NOW + timedelta(seconds=step),
            )
    return lease.job_id


def read(http: httpx.Client, job_id: str, **params: Any) -> list[dict[str, Any]]:
    answer = http.get(f"/v1/jobs/{job_id}/trials/0/measurements", params=params)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


@pytest.mark.slow
def test_curves_by_metric_time_and_number_of_points(http: httpx.Client, job_id: str) -> None:
    one = read(http, job_id, metric="train_loss", limit=3)
    assert [point["metrics"] for point in one] == [{"train_loss": wave(step)} for step in (1, 2, 3)]
    late = read(http, job_id, since="2026-03-01T12:09:58Z")
    assert [point["step"] for point in late] == [598, 599, 600]
    assert read(http, job_id, max_points=1000) == read(http, job_id)
    few = read(http, job_id, metric="train_loss", max_points=50)
    assert len(few) <= 50
    steps = [point["step"] for point in few]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (1, NUM_STEPS)
    assert {77, 311} <= set(steps)
    both = read(http, job_id, max_points=20, after_step=300)
    assert len(both) <= 20
    assert {301, 311, NUM_STEPS} <= {point["step"] for point in both}
    assert both[0]["metrics"].keys() == {"train_loss", "validation_loss"}
    with Client(str(http.base_url)) as client:
        copied = client.measurements(job_id, 0, metric=["train_loss"], max_points=50)
        assert [point.step for point in copied] == steps


@pytest.mark.slow
@in_one_test(
    ("params", "field", "told"),
    [
        ({"metric": "train_los"}, "metric", "train_loss"),
        ({"max_points": 3}, "max_points", "4"),
        ({"max_points": 5}, "max_points", "at least 6 for 2 metrics"),
        ({"since": "yesterday"}, "since", ""),
    ],
)
def test_what_cannot_be_asked_names_the_parameter(
    http: httpx.Client, job_id: str, params: dict[str, Any], field: str, told: str
) -> None:
    answer = http.get(f"/v1/jobs/{job_id}/trials/0/measurements", params=params)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert field in error["field"]
    assert told in error["message"]


def test_a_trial_without_measurements_has_an_empty_curve(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    assert read(sqlite_http, lease.job_id, max_points=10, metric="anything") == []


@given(
    curves=st.lists(st.tuples(*[st.one_of(st.none(), st.integers(-9, 9).map(float))] * 2), min_size=1, max_size=300),
    max_points=st.integers(fewest_points(2), 60),
)
def test_few_points_hold_the_extremes_and_both_ends(
    curves: list[tuple[float | None, float | None]], max_points: int
) -> None:
    curve = MinMax[int](first_step=0, last_step=len(curves) - 1, num_curves=2, max_points=max_points)
    for step, values in enumerate(curves):
        curve.take(step, values, step)
    kept = list(curve.points())
    assert kept == sorted(set(kept))
    assert len(kept) == len(curves) if len(curves) <= max_points else len(kept) <= max_points
    assert {0, len(curves) - 1} <= set(kept)
    for index in range(2):
        whole = [value for values in curves if (value := values[index]) is not None]
        left = [value for step in kept if (value := curves[step][index]) is not None]
        assert (min(whole, default=None), max(whole, default=None)) == (
            min(left, default=None),
            max(left, default=None),
        )
