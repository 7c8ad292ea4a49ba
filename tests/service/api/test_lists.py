"""Lists of jobs and trials: filters, orders, pages, and how much of each row they tell."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.api.schemas.jobs import JobRead
from service.api.schemas.trials import TrialRead
from service.domain import FailureReason, Phase, TrialState
from service.store.session import Database
from tests.support.service.live import finished_job
from tests.support.service.scenarios import begin_trial, claimed_job, end_trial, measure

SPACE = {
    "optimizer": "shampoo",
    "parameters": [
        {"type": "float", "name": "lr", "low": 1e-5, "high": 1.0, "scale": "log", "default": 0.01},
        {"type": "categorical", "name": "grafting", "choices": ["adam", "sgd"], "default": "adam"},
        {"type": "categorical", "name": "nesterov", "choices": [True, False], "default": False},
        {"type": "float", "name": "betas[0]", "low": 0.1, "high": 0.99, "default": 0.9},
    ],
}


def _job(database: Database) -> str:
    """Five trials: three completed with 0.5, 0.2 and 0.2, one that diverged, one of the baseline that runs."""
    lease = claimed_job(database, search_space=SPACE, budget={"num_trials": 6})
    chosen: list[dict[str, Any]] = [
        {"lr": 0.001, "grafting": "sgd"},
        {"lr": 0.01, "nesterov": True},
        {"lr": 0.1, "betas[0]": 0.5},
        {"lr": 1.0},
    ]
    for number, (values, loss) in enumerate(zip(chosen, (0.5, 0.2, 0.2, None), strict=True)):
        begin_trial(database, lease, number, values=values)
        if loss is None:
            end_trial(database, lease, number, TrialState.FAILED, reason=FailureReason.DIVERGED)
        else:
            measure(database, lease, number, 40, loss)
            end_trial(database, lease, number, TrialState.COMPLETED)
    begin_trial(database, lease, 4, Phase.BASELINE)
    return lease.job_id


def _numbers(http: httpx.Client, job_id: str, **asked: Any) -> list[int]:
    answer = http.get(f"/v1/jobs/{job_id}/trials", params=asked)
    assert answer.status_code == 200, answer.text
    return [trial["number"] for trial in answer.json()["items"]]


@pytest.mark.slow
def test_trials_are_found_by_their_values_and_parameters(http: httpx.Client, database: Database) -> None:
    job_id = _job(database)
    for asked, numbers in (
        ({}, [0, 1, 2, 3, 4]),
        ({"state": ["completed", "running"]}, [0, 1, 2, 4]),
        ({"phase": "baseline"}, [4]),
        ({"value": "..0.3"}, [1, 2]),
        ({"value": "0.5"}, [0]),
        ({"value": "0.2..0.5"}, [0, 1, 2]),
        ({"parameter": "lr=0.01..0.1", "phase": "search"}, [1, 2]),
        ({"parameter": "lr=5e-2..", "phase": "search"}, [2, 3]),
        ({"parameter": "lr=0.1"}, [2]),
        ({"parameter": "grafting=sgd"}, [0]),
        ({"parameter": "grafting=..1e9"}, []),
        ({"parameter": "nesterov=true"}, [1]),
        ({"parameter": "nesterov=1"}, []),
        ({"parameter": ["grafting=adam", "lr=..0.05"]}, [1]),
        ({"parameter": "betas[0]=..0.6"}, [2]),
        ({"order_by": "-number"}, [4, 3, 2, 1, 0]),
        ({"order_by": "value"}, [1, 2, 0, 3, 4]),
        ({"order_by": "-value"}, [0, 2, 1, 4, 3]),
        ({"order_by": "state"}, [0, 1, 2, 3, 4]),
        ({"order_by": "phase"}, [4, 0, 1, 2, 3]),
        ({"order_by": "-step"}, [2, 1, 0, 4, 3]),
        ({"order_by": "seconds"}, [3, 4, 0, 1, 2]),
        ({"order_by": "parameter.lr", "phase": "search"}, [0, 1, 2, 3]),
        ({"order_by": "-parameter.lr", "phase": "search", "value": "..0.3"}, [2, 1]),
        ({"order_by": "parameter.grafting"}, [1, 2, 3, 0, 4]),
        ({"order_by": "-parameter.grafting"}, [0, 3, 2, 1, 4]),
        ({"order_by": "parameter.nesterov"}, [0, 2, 3, 1, 4]),
        ({"order_by": "parameter.betas[0]", "phase": "search"}, [2, 0, 1, 3]),
    ):
        assert _numbers(http, job_id, **asked) == numbers, asked
        met: list[int] = []
        params: dict[str, Any] = {**asked, "page_size": 2, "fields": "value"}
        while True:
            page = http.get(f"/v1/jobs/{job_id}/trials", params=params).json()
            met += [trial["number"] for trial in page["items"]]
            if page["next_page_token"] is None:
                break
            params["page_token"] = page["next_page_token"]
        assert met == numbers, asked


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"parameter": "lr"}, "must be NAME=VALUE"),
        ({"parameter": "learning_rate=1"}, "the job has no parameter 'learning_rate'"),
        ({"parameter": ["lrr=1", "graftin=adam"]}, "did you mean 'grafting'"),
        ({"parameter": "lr=.."}, "must be LOW..HIGH"),
        ({"parameter": "lr=2..1"}, "2 is more than 1"),
        ({"parameter": "lr=a..b"}, "with numbers as ends"),
        ({"parameter": "lr=nan..1"}, "with numbers as ends"),
        ({"value": "low"}, "must be a number"),
        ({"order_by": "lr"}, "must be number, value,"),
        ({"order_by": "parameter."}, "or parameter.NAME"),
        ({"order_by": "-parameter.lrr"}, "did you mean 'lr'"),
        ({"fields": "number,valu"}, "did you mean 'value'"),
        ({"view": "tiny"}, "must be"),
        ({"page_token": "dHJpYWwgdmFsdWU6W251bGwsIDFd"}, "is not a token"),
    ],
)
def test_what_cannot_be_asked_of_trials_is_told(
    sqlite_http: httpx.Client, sqlite_database: Database, asked: dict[str, Any], told: str
) -> None:
    answer = sqlite_http.get(f"/v1/jobs/{_job(sqlite_database)}/trials", params=asked)
    assert answer.status_code == 422
    assert any(told in error["message"] for error in answer.json()["errors"]), answer.text
    assert {error["field"] for error in answer.json()["errors"]} == set(asked)


def test_a_forged_page_token_is_refused(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    import base64

    job_id = _job(sqlite_database)
    for order, text in (
        ("value", '["x", 1]'),
        ("value", "[NaN, 1]"),
        ("value", "[0.5]"),
        ("value", '[0.5, "1"]'),
        ("state", '["nothing", 1]'),
        ("number", "[1, 99999999999999999999]"),
        ("number", "[true, 1]"),
        ("number", "{}"),
        ("parameter.lr", "[[1], 1]"),
        ("parameter.lr", "[1e999, 1]"),
    ):
        token = base64.urlsafe_b64encode(f"trial {order}:{text}".encode()).decode()
        answer = sqlite_http.get(f"/v1/jobs/{job_id}/trials", params={"order_by": order, "page_token": token})
        assert answer.status_code == 422, (order, text)


def test_rows_of_lists_have_what_was_asked_for(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    for path, one, large in (
        ("/v1/jobs", f"/v1/jobs/{job_id}", "specification"),
        (f"/v1/jobs/{job_id}/trials", f"/v1/jobs/{job_id}/trials/0", "config"),
    ):
        whole = http.get(one).json()
        del whole["progress" if large == "specification" else "num_steps"]  # one of them goes on with the clock

        def first(**asked: str) -> dict[str, Any]:
            found: dict[str, Any] = http.get(path, params=asked).json()["items"][0]  # noqa: B023
            return found

        assert set(first()) == set(JobRead.model_fields if large == "specification" else TrialRead.model_fields) - {
            large
        }
        full = first(view="full")
        assert {name: full[name] for name in whole} == whole
        assert set(first(fields=f"state,{large}")) == {"state", large, "id" if large == "specification" else "number"}
        assert first(view="basic", fields=large)[large] == whole[large]
