"""Proposing trials over HTTP: what is answered, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.store.session import Database
from tests.service.api.fuzzing.test_fuzz import JSON, SCALARS, shared
from tests.support.service.live import finished_job
from tests.support.service.scenarios import submit


def test_a_proposal_is_accepted_once_for_a_key(http: httpx.Client, database: Database) -> None:
    path = f"/v1/jobs/{submit(database)}"
    body = {"phase": "search", "parameters": {"lr": 0.01}}
    answer = http.post(f"{path}/trials", json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 202, answer.text
    trial = answer.json()
    assert (trial["number"], trial["state"], trial["proposed"], trial["parameters"]["lr"]) == (0, "queued", True, 0.01)
    assert answer.headers["Location"] == f"{path}/trials/0"
    assert http.get(answer.headers["Location"]).json() == trial
    again = http.post(f"{path}/trials", json=body, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.json(), again.headers["Idempotent-Replayed"]) == (200, trial, "true")
    other = http.post(f"{path}/trials", json={}, headers={"Idempotency-Key": "k"})
    assert other.status_code == 422
    assert other.json()["type"].endswith(":idempotency-key-reused")
    job = http.get(path).json()
    assert (job["num_trials"], job["specification"]["budget"]["extra_search_trials"]) == (5, 1)


def test_a_proposal_goes_beyond_a_range_when_told_to(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    path = f"/v1/jobs/{submit(sqlite_database)}/trials"
    beyond = {"lr": 5.0, "betas[0]": 0.999}
    refused = sqlite_http.post(path, json={"parameters": beyond})
    assert refused.status_code == 422
    (error,) = refused.json()["errors"]
    assert error["field"] == "parameters.lr"
    assert re.search(r"must be in \[.*got 5\.0 .*beyond_bounds.*--beyond-bounds", error["message"])
    answer = sqlite_http.post(path, json={"parameters": beyond, "beyond_bounds": True})
    assert answer.status_code == 202, answer.text
    trial = answer.json()
    assert (trial["parameters"]["lr"], trial["parameters"]["betas[0]"]) == (5.0, 0.999)
    config = sqlite_http.get(f"{path}/{trial['number']}").json()["config"]
    assert config["optimizer"]["arguments"]["lr"] == 5.0


def test_a_finished_job_goes_on_with_a_proposal(http: httpx.Client, database: Database) -> None:
    path = f"/v1/jobs/{finished_job(database)}"
    answer = http.post(f"{path}/trials", json={"phase": "baseline"})
    assert (answer.status_code, answer.json()["phase"]) == (202, "baseline")
    assert http.get(path).json()["state"] == "queued"


IMPOSSIBLE: list[tuple[Any, str, str]] = [
    ({"parameters": {"lr": -1}}, "parameters.lr", "must be in"),
    ({"parameters": {"lr": -1}, "beyond_bounds": True}, "parameters.lr", "must be in [0, 1e+12], got -1"),
    ({"parameters": {"betas[0]": 1}, "beyond_bounds": True}, "parameters.betas[0]", "must be in [0, 1), got 1"),
    ({"parameters": {}, "beyond_bounds": "far"}, "beyond_bounds", "must be"),
    ({"parameters": {"lr": None}}, "parameters.lr", "None"),
    ({"parameters": {"x": 1}}, "parameters.x", "is not a parameter of the search space (known: "),
    ({"parameters": []}, "parameters", "must be an object"),
    ({"parameters": {"a\0": 1}}, "parameters", "NUL"),
    ({"phase": "confirmation"}, "phase", "must be 'search' or 'baseline'"),
    ({"phase": 3}, "phase", "must be"),
    ({"number": 3}, "number", "there is no such field"),
    ([], "body", "must be an object"),
]
"""A proposal's body, how the field that its refusal names begins, and a part of what it says."""


def test_an_impossible_proposal_is_refused_by_field(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    path = f"/v1/jobs/{submit(sqlite_database)}"
    before = sqlite_http.get(path).json()
    for body, field, said in IMPOSSIBLE:
        answer = sqlite_http.post(f"{path}/trials", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.headers["Content-Type"] == "application/problem+json"
        [error] = answer.json()["errors"]
        assert error["field"].startswith(field), error
        assert said in error["message"], error
        assert sqlite_http.get(path).json() == before, body


def test_a_proposal_that_is_no_json_or_for_no_job_is_refused(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    path = f"/v1/jobs/{submit(sqlite_database)}/trials"
    for content in (b"{", b"\xff", b'"x"', b"NaN"):
        answer = sqlite_http.post(path, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422, answer.text
    assert sqlite_http.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert sqlite_http.post("/v1/jobs/job_nope/trials", json={}).status_code == 404


@pytest.mark.slow
@shared
@given(
    body=st.one_of(
        JSON,
        st.fixed_dictionaries(
            {"parameters": st.dictionaries(st.sampled_from(["lr", "betas[0]", "grafting", "x"]), SCALARS)}
        ),
    )
)
def test_any_json_is_refused_or_proposes_a_trial(http: httpx.Client, database: Database, body: Any) -> None:
    path = f"/v1/jobs/{submit(database)}"
    before = http.get(path).json()
    answer = http.post(f"{path}/trials", content=json.dumps(body), headers={"Content-Type": "application/json"})
    if answer.status_code == 202:
        assert http.get(answer.headers["Location"]).json() == answer.json()
        return
    assert answer.status_code == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"]
    assert http.get(path).json() == before
