"""Addresses, parameters and methods that are none: a clear answer that names them."""

from __future__ import annotations

import httpx
import pytest

from service.store.session import Database
from tests.support.service.scenarios import submit


def test_what_does_not_exist_is_not_found(http: httpx.Client, database: Database) -> None:
    job = submit(database)
    for method, path in [
        ("GET", "/v1/jobs/job_nope"),
        ("GET", "/v1/jobs/job%00nope"),
        ("POST", "/v1/jobs/job_nope/cancel"),
        ("GET", "/v1/jobs/job_nope/trials"),
        ("GET", "/v1/jobs/job_nope/trials/0"),
        ("GET", f"/v1/jobs/{job}/trials/0"),
        ("GET", f"/v1/jobs/{job}/trials/0/measurements"),
        ("GET", "/v1/jobs/job_nope/events"),
        ("GET", "/v1/jobs/job_nope/recommendation"),
        ("GET", "/v1/search-spaces/nope"),
        ("GET", "/v1/nope"),
    ]:
        answer = http.request(method, path)
        assert answer.status_code == 404, f"{path}: {answer.text}"
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["detail"]


def test_impossible_parameters_are_refused_naming_them(http: httpx.Client, database: Database) -> None:
    job = submit(database)
    for path, field in [
        ("/v1/jobs?state=done", "state[0]"),
        ("/v1/jobs?page_size=0", "page_size"),
        ("/v1/jobs?page_size=201", "page_size"),
        ("/v1/jobs?page_token=xyz", "page_token"),
        ("/v1/jobs?page_token=%00", "page_token"),
        ("/v1/jobs?workload=%00", "workload"),
        (f"/v1/jobs/{job}/trials?phase=warmup", "phase"),
        (f"/v1/jobs/{job}/trials?page_token=am9iOjE", "page_token"),
        (f"/v1/jobs/{job}/trials/99999999999", "number"),
        (f"/v1/jobs/{job}/trials/first", "number"),
        (f"/v1/jobs/{job}/trials/0/measurements?after_step=99999999999", "after_step"),
        (f"/v1/jobs/{job}/events?after=-1", "after"),
        ("/v1/events?after=99999999999999999999", "after"),
        ("/v1/recommendations?workload=", "workload"),
        ("/v1/recommendations?model=%00", "model"),
        ("/v1/recommendations?fingerprint=%00", "fingerprint"),
        ("/v1/recommendations?batch_size=0", "batch_size"),
        ("/v1/recommendations?match=best", "match"),
    ]:
        answer = http.get(path)
        assert answer.status_code == 422, f"{path}: {answer.text}"
        assert [error["field"] for error in answer.json()["errors"]] == [field], path


def test_a_wrong_method_is_a_problem_document_too(sqlite_http: httpx.Client) -> None:
    answer = sqlite_http.delete("/v1/workloads")
    assert (answer.status_code, answer.headers["Content-Type"]) == (405, "application/problem+json")
    for path, allowed in {
        "/v1/workloads": "GET, HEAD",
        "/v1/jobs": "GET, HEAD, POST",
        "/v1/jobs/x": "DELETE, GET, HEAD, PATCH",
        "/v1/jobs/x/pause": "POST",
        "/static/icon.svg": "GET, HEAD",
        "/docs": "GET, HEAD",
    }.items():
        for method in ("PUT", "OPTIONS", "TRACE", "FOO"):
            answer = sqlite_http.request(method, path)
            assert (answer.status_code, answer.headers["Allow"]) == (405, allowed), (method, path)
            assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.slow
def test_head_is_answered_as_get_without_content(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    for path in (
        "/",
        "/docs",
        "/openapi.json",
        "/v1/jobs",
        f"/v1/jobs/{job_id}",
        "/v1/jobs/none",
        "/nowhere",
        "/static/icon.svg",
    ):
        got, head = sqlite_http.get(path), sqlite_http.head(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        own = {"date": "", "x-request-id": ""}
        assert {**head.headers, **own} == {**got.headers, **own}, path
    for path in ("/v1/events", f"/v1/jobs/{job_id}/events"):
        head = sqlite_http.head(path)
        assert (head.status_code, head.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    assert sqlite_http.head(f"/v1/jobs/{job_id}/pause").status_code == 405


def test_unknown_parameters_are_refused_as_unknown_fields_are(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    job_id = submit(sqlite_database)
    for method, path, told in (
        ("GET", "/v1/jobs?stat=queued&sise=3", ["stat", "sise"]),
        ("GET", f"/v1/jobs/{job_id}?view=full", ["view"]),
        ("POST", f"/v1/jobs/{job_id}/cancel?force=true", ["force"]),
        ("DELETE", f"/v1/jobs/{job_id}?force=true", ["force"]),
        ("GET", f"/v1/jobs/{job_id}/events?last=3", ["last"]),
        ("GET", "/healthz?x=1", ["x"]),
    ):
        answer = sqlite_http.request(method, path)
        assert answer.status_code == 422, path
        assert [error["field"] for error in answer.json()["errors"]] == told
    answer = sqlite_http.get("/v1/jobs?stat=queued")
    assert "did you mean 'state'" in answer.json()["detail"]
    assert sqlite_http.get(f"/v1/jobs/{job_id}").json()["state"] == "queued"
    assert sqlite_http.get("/?state=queued&utm_source=mail").status_code == 200, "a page's address may say more"


def test_a_parameter_that_there_is_not_has_no_place_in_the_body(sqlite_http: httpx.Client) -> None:
    answer = sqlite_http.post("/v1/jobs?dryrun=true", json={"workload": {"name": "digits-mlp"}, "dryrun": 1})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error == {"field": "dryrun", "message": "there is no such parameter: did you mean 'dry_run'?"}
