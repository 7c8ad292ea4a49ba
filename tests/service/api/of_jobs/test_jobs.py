"""Jobs over HTTP: submit, list, read, cancel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from service.specification.job import Budget
from service.store.session import Database
from tests.support.service.live import finished_job
from tests.support.service.scenarios import claimed_job, submit
from tests.support.waiting import PATIENCE_SECONDS

FOUND = {"num_new_seeds": 0, "standard_deviation": None, "basis": "search value, one seed"}
BODY = {"workload": {"name": "digits-mlp"}, "budget": {"num_trials": 4}}


def test_a_submitted_job_is_created_queued_and_readable_at_its_location(http: httpx.Client) -> None:
    answer = http.post("/v1/jobs", json={**BODY, "name": "first", "tags": {"team": "vision"}})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert (job["state"], job["name"], job["tags"]) == ("queued", "first", {"team": "vision"})
    assert job["objectives"] == [{"metric": "validation_loss", "direction": "minimize"}]
    assert job["specification"]["budget"] == Budget(num_trials=4).model_dump()
    assert job["created_at"].endswith("Z")
    read = http.get(answer.headers["Location"])
    assert read.status_code == 200
    assert job.pop("warnings") == []
    assert read.json() == job


def test_a_repeated_idempotency_key_gives_the_same_job(http: httpx.Client) -> None:
    headers = {"Idempotency-Key": "one"}
    first = http.post("/v1/jobs", json=BODY, headers=headers)
    again = http.post("/v1/jobs", json=BODY, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert again.json()["id"] == first.json()["id"]
    assert len(http.get("/v1/jobs").json()["items"]) == 1


@pytest.mark.slow
def test_requests_at_once_with_one_idempotency_key_make_one_job(http: httpx.Client) -> None:
    def post(_: int) -> httpx.Response:
        return httpx.post(
            f"{http.base_url}/v1/jobs",
            json=BODY,
            headers={"Idempotency-Key": "race"},
            trust_env=False,
            timeout=PATIENCE_SECONDS,
            verify=False,
        )

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(post, range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_an_idempotency_key_reused_for_another_body_is_refused(http: httpx.Client) -> None:
    headers = {"Idempotency-Key": "one"}
    http.post("/v1/jobs", json=BODY, headers=headers)
    answer = http.post("/v1/jobs", json={**BODY, "name": "another"}, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("idempotency-key-reused")
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


@pytest.mark.parametrize("content", ["{}", '"no specification"'])
def test_a_job_that_cannot_be_read_leaves_lists_and_pages_to_the_others(
    http: httpx.Client, database: Database, content: str
) -> None:
    readable = [submit(database)]
    unread = [submit(database) for _ in range(2)]
    readable = [submit(database), *readable]
    with database.writing() as session:
        for job_id in unread:
            session.execute(
                text("UPDATE jobs SET specification = :content WHERE id = :job"), {"content": content, "job": job_id}
            )
    first = http.get("/v1/jobs", params={"page_size": 1}).json()
    rest = http.get("/v1/jobs", params={"page_size": 1, "page_token": first["next_page_token"]}).json()
    assert [job["id"] for job in first["items"] + rest["items"]] == readable
    assert rest["next_page_token"] is None
    page = http.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert [job_id in page.text for job_id in readable + unread] == [True, True, False, False]


def test_pages_give_every_job_once_and_newest_first(http: httpx.Client, database: Database) -> None:
    ids = [submit(database) for _ in range(5)]
    seen: list[str] = []
    token: str | None = None
    sizes = []
    while True:
        params: dict[str, Any] = {"page_size": 2, **({"page_token": token} if token else {})}
        page = http.get("/v1/jobs", params=params).json()
        sizes.append(len(page["items"]))
        seen += [job["id"] for job in page["items"]]
        token = page["next_page_token"]
        if token is None:
            break
    assert sizes == [2, 2, 1]
    assert seen == sorted(ids, reverse=True)


def test_jobs_are_filtered_by_states_and_model(http: httpx.Client, database: Database) -> None:
    running = claimed_job(database).job_id
    queued = submit(database)
    cancelled = submit(database)
    http.post(f"/v1/jobs/{cancelled}/cancel").raise_for_status()

    def listed(**params: Any) -> set[str]:
        return {job["id"] for job in http.get("/v1/jobs", params=params).raise_for_status().json()["items"]}

    assert listed(state=["queued", "running"]) == {queued, running}
    assert listed(state="cancelled") == {cancelled}
    assert listed(workload="digits-mlp") == {queued, running, cancelled}
    assert listed(workload="other") == set()


def test_progress_counts_trials_and_names_the_best(http: httpx.Client, database: Database) -> None:
    job = http.get(f"/v1/jobs/{finished_job(database)}").json()
    assert job["state"] == "succeeded"
    progress = job["progress"]
    assert progress["trials"] == {
        "queued": 0, "running": 0, "completed": 4, "pruned": 0, "failed": 0, "cancelled": 0,
    }  # fmt: skip
    assert progress["num_finished"] == 4
    assert progress["best"] == {"number": 2, "value": 0.2, **FOUND}
    assert progress["baseline_best"] == {"number": 1, "value": 0.4, **FOUND}


def test_cancel_ends_a_job(http: httpx.Client, database: Database) -> None:
    job_id = claimed_job(database).job_id
    answer = http.post(f"/v1/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert http.get(f"/v1/jobs/{job_id}").json()["state"] == "cancelled"


def test_cancel_of_a_finished_job_conflicts(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    answer = http.post(f"/v1/jobs/{job_id}/cancel")
    assert answer.status_code == 409
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["type"].endswith("job-already-finished")
    assert "succeeded" in answer.json()["detail"]
    assert http.get(f"/v1/jobs/{job_id}").json()["state"] == "succeeded"
