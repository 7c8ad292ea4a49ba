"""Steering jobs and trials over HTTP: what is answered, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from service.specification.job import Budget
from service.store.session import Database
from service.use_cases.estimating.estimates import ASSUMED_START_UP_SECONDS
from service.use_cases.run import ShareReport, report_share
from service.use_cases.waiting import FIRST_MEASUREMENT
from tests.support.service.live import finished_job
from tests.support.service.scenarios import NOW, add_worker, begin_trial, claim, claimed_job, submit


def _refused(answer: httpx.Response, status: int, slug: str) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"].endswith(f":{slug}")
    return problem


def test_a_queued_job_is_paused_and_resumed(http: httpx.Client, database: Database) -> None:
    job_id = submit(database)
    for action, state in (("pause", "paused"), ("pause", "paused"), ("resume", "queued"), ("resume", "queued")):
        answer = http.post(f"/v1/jobs/{job_id}/{action}")
        assert (answer.status_code, answer.json()["state"], answer.json()["requested"]) == (200, state, None)
    assert [job["id"] for job in http.get("/v1/jobs", params={"state": "paused"}).json()["items"]] == []


def test_a_running_job_says_that_it_is_about_to_pause(http: httpx.Client, database: Database) -> None:
    job_id = submit(database)
    claim(database, add_worker(database), now=datetime.now(UTC))  # the API's clock is the real one
    job = http.post(f"/v1/jobs/{job_id}/pause").json()
    assert (job["state"], job["requested"]) == ("running", "pause")
    assert http.post(f"/v1/jobs/{job_id}/resume").json()["requested"] == "restart"


@pytest.mark.slow
def test_a_finished_job_cannot_be_paused_and_needs_more_budget_to_go_on(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    problem = _refused(http.post(f"/v1/jobs/{job_id}/pause"), 409, "job-already-finished")
    assert "succeeded" in problem["detail"]
    problem = _refused(http.post(f"/v1/jobs/{job_id}/resume"), 409, "budget-spent")
    assert problem["detail"].endswith("has succeeded and cannot go on: raise budget.num_trials first: 4 of 4 are spent")
    changed = http.patch(f"/v1/jobs/{job_id}", json={"budget": {"num_trials": 8, "device_hours": 2.5}})
    assert changed.status_code == 200, changed.text
    assert (changed.json()["state"], changed.json()["num_trials"]) == ("succeeded", 8)
    budget = changed.json()["specification"]["budget"]
    assert budget == Budget(num_trials=8, device_hours=2.5).model_dump()
    assert http.post(f"/v1/jobs/{job_id}/resume").json()["state"] == "queued"
    assert http.get(f"/v1/jobs/{job_id}/recommendation").status_code == 200


IMPOSSIBLE_CHANGES: list[tuple[Any, str, str]] = [
    ({}, "body", "must change something: name, tags, priority, notes, budget"),
    ({"priority": 1001}, "priority", "less than or equal to 1000"),
    ({"priority": -1001}, "priority", "greater than or equal to -1000"),
    ({"priority": "5"}, "priority", "must be a valid integer"),
    ({"priority": 1.5}, "priority", "must be a valid integer"),
    ({"priority": True}, "priority", "must be a valid integer"),
    ({"priority": None}, "priority", "must be a valid integer"),
    ({"name": ""}, "name", "must not be empty"),
    ({"name": "  "}, "name", "must not be empty"),
    ({"name": "\u200b"}, "name", "must have a character that can be seen, got '\\u200b'"),
    ({"name": "\u2060 \ufe0f"}, "name", "must have a character that can be seen"),
    ({"name": None}, "name", "must be a valid string"),
    ({"name": "a\0b"}, "name", "NUL"),
    ({"name": "two\nlines"}, "name", r"must be one line without control characters or marks of direction, got 'two\nl"),
    ({"name": "\x1b[31mred"}, "name", "must be one line without control characters"),
    ({"name": "two\u2028lines"}, "name", "must be one line without control characters"),
    ({"tags": {"a": "two\r\nlines"}}, "tags.a", "must be one line without control characters"),
    ({"name": "turned \u202etxt.exe"}, "name", r"or marks of direction, got 'turned \u202etxt.exe'"),
    ({"tags": {"\u2066a": "x"}}, r"tags['\u2066a']", r"or marks of direction, got '\u2066a'"),
    ({"tags": {"": "x"}}, "tags['']", "must not be empty"),
    ({"tags": {"\u200b": "x"}}, r"tags['\u200b']", "must have a character that can be seen"),
    ({"tags": {"a": "\u2800"}}, "tags.a", "must have a character that can be seen"),
    ({"notes": "\u200d\n"}, "notes", "must have a character that can be seen"),
    ({"tags": {"a": 1}}, "tags.a", "must be a valid string"),
    ({"tags": ["a"]}, "tags", "must be an object"),
    ({"priority": 5, "budget": {"num_trials": 2}}, "budget.num_trials", "2 would leave 1"),
    ({"budget": None}, "budget", "must be an object"),
    ({"budget": 3}, "budget", "must be an object"),
    ({"budget": {"num_trials": 0}}, "budget.num_trials", "greater than or equal to 1"),
    ({"budget": {"num_trials": None}}, "budget.num_trials", "must be a valid integer"),
    ({"budget": {"num_trials": "8"}}, "budget.num_trials", "must be a valid integer"),
    ({"budget": {"num_trials": 10_001}}, "budget.num_trials", "less than or equal to 10000"),
    ({"budget": {"num_trials": 2}}, "budget.num_trials", "2 would leave 1 for the search, which has begun 3"),
    ({"budget": {"num_trials": 1}}, "budget.num_trials", "needs at least 2 trials"),
    ({"budget": {"wall_clock_seconds": -1}}, "budget.wall_clock_seconds", "greater than 0"),
    ({"budget": {"device_hours": True}}, "budget.device_hours", "must be a valid number"),
    ({"budget": {"hours": 1}}, "budget.hours", "there is no such field"),
    ({"budget": {}, "workload": {}}, "workload", "there is no such field"),
]
"""A change's body, the field that its refusal names, and a part of what it says."""


def test_an_impossible_change_names_its_field_and_changes_nothing(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    job_id = finished_job(sqlite_database)
    before = sqlite_http.get(f"/v1/jobs/{job_id}").json()
    for body, field, said in IMPOSSIBLE_CHANGES:
        problem = _refused(sqlite_http.patch(f"/v1/jobs/{job_id}", json=body), 422, "invalid-input")
        assert [error["field"] for error in problem["errors"]] == [field], body
        (error,) = problem["errors"]
        assert said in error["message"], body
        for kind, words in (("integer", "must be a valid integer"), ("object", "must be an object")):
            assert (error.get("expected") == [kind]) == (said == words), body
    assert sqlite_http.get(f"/v1/jobs/{job_id}").json() == before


def test_name_tags_and_priority_are_changed_and_what_is_left_out_stays(http: httpx.Client, database: Database) -> None:
    job_id = submit(database)
    path = f"/v1/jobs/{job_id}"
    before = http.get(path).json()
    assert before["priority"] == 0
    changes: list[dict[str, Any]] = [{"priority": -3}, {"name": " other ", "tags": {"team": "audio"}}, {"tags": {}}]
    for change in changes:
        answer = http.patch(path, json=change)
        assert answer.status_code == 200, answer.text
    after = http.get(path).json()
    assert (after["name"], after["tags"], after["priority"]) == ("other", {}, -3)
    unchanged = before.keys() - {"name", "tags", "priority", "progress"}
    assert {field: after[field] for field in unchanged} == {field: before[field] for field in unchanged}


def test_a_job_is_submitted_with_a_priority(sqlite_http: httpx.Client) -> None:
    body = {"workload": {"name": "digits-mlp"}, "priority": 7}
    assert sqlite_http.post("/v1/jobs", json=body).json()["priority"] == 7
    for wrong in (1001, "7", None, 0.5):
        problem = _refused(sqlite_http.post("/v1/jobs", json={**body, "priority": wrong}), 422, "invalid-input")
        assert [error["field"] for error in problem["errors"]] == ["priority"]


def test_a_job_says_what_it_waits_for(http: httpx.Client, database: Database) -> None:
    first, second = (submit(database, now=NOW + timedelta(seconds=seconds)) for seconds in (0, 1))
    waiting = http.get(f"/v1/jobs/{second}").json()["waiting"]
    assert waiting == {
        "since": "2026-03-01T12:00:01Z",
        "for": "no worker has been started; `shampoo-tuner worker` starts one",
    }
    now = datetime.now(UTC)  # the API's clock is the real one
    lease = claim(database, add_worker(database, now=now), now=now)
    assert lease is not None
    assert lease.job_id == first
    listed = {job["id"]: job["waiting"] for job in http.get("/v1/jobs").json()["items"]}
    assert listed[second] == {"since": "2026-03-01T12:00:01Z", "for": "the only worker is busy"}
    assert listed[first]["for"] == FIRST_MEASUREMENT
    share = ShareReport("here:6379", 0, 0.5, now, "needs 4 GPUs, 3 free")
    with database.writing() as session:
        report_share(session, lease, share, now=NOW)
    assert http.get(f"/v1/jobs/{first}").json()["waiting"] == {
        "since": "2026-03-01T12:00:00Z",
        "for": "needs 4 GPUs, 3 free",
    }


def test_a_change_that_is_no_json_is_refused(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    path = f"/v1/jobs/{submit(sqlite_database)}"
    for content in (b"{", b"\xff", b"[]", b'"x"', b"NaN"):
        answer = sqlite_http.patch(path, content=content, headers={"Content-Type": "application/json"})
        _refused(answer, 422, "invalid-input")
    _refused(
        sqlite_http.patch(path, content=b"{}", headers={"Content-Type": "text/plain"}), 415, "unsupported-media-type"
    )


def test_trials_are_stopped_and_tried_again(http: httpx.Client, database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    trial = f"/v1/jobs/{lease.job_id}/trials/0"
    problem = _refused(http.post(f"{trial}/retry"), 409, "trial-not-retriable")
    assert "is running" in problem["detail"]
    for _ in range(2):
        stopped = http.post(f"{trial}/stop").json()
        assert (stopped["state"], stopped["requested"]) == ("running", "stop")
    assert http.get(trial).json() == stopped
    http.post(f"/v1/jobs/{lease.job_id}/cancel").raise_for_status()
    problem = _refused(http.post(f"{trial}/stop"), 409, "trial-already-finished")
    assert "already ended: cancelled" in problem["detail"]
    assert http.post(f"{trial}/retry").json()["state"] == "queued"
    assert http.get(f"/v1/jobs/{lease.job_id}").json()["state"] == "queued"


def test_what_does_not_exist_is_not_found(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    for action in ("pause", "resume"):
        _refused(sqlite_http.post(f"/v1/jobs/job_nope/{action}"), 404, "job-not-found")
    for action in ("stop", "retry"):
        _refused(sqlite_http.post(f"/v1/jobs/{job_id}/trials/0/{action}"), 404, "trial-not-found")
    _refused(sqlite_http.patch("/v1/jobs/job_nope", json={"budget": {"num_trials": 3}}), 404, "job-not-found")
    for number in ("x", "-1", "1e99", str(2**63)):
        _refused(sqlite_http.post(f"/v1/jobs/{job_id}/trials/{number}/stop"), 422, "invalid-input")


def test_the_stream_of_a_job_that_was_resumed_does_not_end_at_its_first_end(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    job_id = finished_job(sqlite_database)
    sqlite_http.patch(f"/v1/jobs/{job_id}", json={"budget": {"num_trials": 5}}).raise_for_status()
    sqlite_http.post(f"/v1/jobs/{job_id}/resume").raise_for_status()
    sqlite_http.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()
    stream = sqlite_http.get(f"/v1/jobs/{job_id}/events").text
    kinds = [line.removeprefix("event: ") for line in stream.splitlines() if line.startswith("event: ")]
    assert kinds[-4:] == ["job.state", "job.changed", "job.state", "job.state"]


@pytest.mark.processes
def test_a_dry_run_answers_the_cost_and_stores_nothing(sqlite_http: httpx.Client) -> None:
    body = {"workload": {"name": "digits-mlp"}, "budget": {"num_trials": 8}, "training": {"num_steps": 100}}
    answer = sqlite_http.post("/v1/jobs", params={"dry_run": True}, json=body, headers={"Idempotency-Key": "k"})
    assert answer.status_code == 200, answer.text
    estimate = answer.json()
    memory, compared = estimate.pop("memory"), estimate.pop("presets")
    assert bool(memory["spaces"]) != bool(memory["problem"])
    if memory["spaces"]:  # a busy machine may have no answer in time
        assert (memory["is_machine_limit"], memory["limit_bytes"]) == (True, 2 * memory["machine_bytes"])
        assert (len(compared["presets"]), compared["presets"][0]["loss_ratio"], compared["num_models"]) == (5, 1.0, 14)
    assert all(space["share_infeasible"] == 0.0 for space in memory["spaces"].values())
    lines = estimate.pop("lines")
    assert lines[0] == "8 trials (search 4, baseline 4) of up to 100 steps, 800 steps in all if none are pruned."
    assert estimate == {
        "num_trials": {"search": 4, "baseline": 4},
        "num_baseline_trials": {"adamw": 4},
        "num_left_over": 0,
        "num_steps": 100,
        "num_examples": None,
        "equal_seconds": False,
        "smallest_batch": None,
        "max_steps": 800,
        "confirmation_share": 0.0,
        "measured": None,
        "step_seconds": None,
        "side_step_seconds": {},
        "unmeasured_sides": [],
        "start_up": {"seconds": ASSUMED_START_UP_SECONDS, "job_id": None},
        "max_seconds": None,
        "max_device_hours": None,
        "max_cost": None,
        "currency": None,
        "winners": {},
    }
    refused = sqlite_http.post("/v1/jobs", params={"dry_run": True}, json={**body, "search_space": "adam"})
    assert _refused(refused, 422, "invalid-input")["errors"][0]["field"] == "search_space"
    refused = sqlite_http.post("/v1/jobs", params={"dry_run": "perhaps"}, json=body)
    assert _refused(refused, 422, "invalid-input")["errors"][0]["field"] == "dry_run"
    assert sqlite_http.get("/v1/jobs").json()["items"] == []
    assert sqlite_http.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}).status_code == 201
