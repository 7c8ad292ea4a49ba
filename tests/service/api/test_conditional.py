"""Answers that a client still has, and changes that rest on what it has read."""

from __future__ import annotations

import httpx
import pytest

from service.domain import TrialState
from service.store.session import Database
from tests.support.service.live import finished_job
from tests.support.service.scenarios import begin_trial, claimed_job, end_trial, measure, submit


def test_what_a_client_still_has_is_not_sent_again(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/trials/0"):
        first = http.get(path)
        tag = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "private, no-cache"
        for known in (tag, f'"other", W/{tag}', "*"):
            again = http.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
        assert http.get(path, headers={"If-None-Match": '"other"'}).json() == first.json()
        assert http.head(path, headers={"If-None-Match": tag}).status_code == 304
    tag = http.get(f"/v1/jobs/{job_id}").headers["ETag"]
    http.patch(f"/v1/jobs/{job_id}", json={"notes": "x"})
    assert http.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.slow
def test_recommendations_and_the_catalogue_are_not_sent_again_either(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    tags = {}
    for path in (
        f"/v1/jobs/{job_id}/recommendation",
        "/v1/recommendations?workload=digits-mlp",
        "/v1/search-spaces",
        "/v1/search-spaces/shampoo",
        "/v1/workloads",
    ):
        first = http.get(path)
        tags[path] = tag = first.headers["ETag"]
        assert first.headers["Cache-Control"] == "private, no-cache"
        again = http.get(path, headers={"If-None-Match": f'"other", {tag}'})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
        assert http.get(path, headers={"If-None-Match": '"other"'}).json() == first.json()
    finished_job(database)
    asked = {path: http.get(path, headers={"If-None-Match": tag}).status_code for path, tag in tags.items()}
    assert list(asked.values()) == [304, 200, 304, 304, 304]


def test_a_change_that_rests_on_an_old_state_is_refused(http: httpx.Client, database: Database) -> None:
    lease = claimed_job(database)
    path = f"/v1/jobs/{lease.job_id}"
    begin_trial(database, lease, 0)
    tag = http.get(path).headers["ETag"]
    measure(database, lease, 0, 10, 0.5)
    assert http.get(path).headers["ETag"] != tag
    # Progress makes no change wrong, but another user's change does.
    assert http.patch(path, json={"notes": "mine"}, headers={"If-Match": tag}).status_code == 200
    for method, where in (("PATCH", ""), ("POST", "/pause"), ("POST", "/cancel"), ("POST", "/archive"), ("DELETE", "")):
        body = {"notes": "lost"} if method == "PATCH" else None
        refused = http.request(method, path + where, json=body, headers={"If-Match": tag})
        assert refused.status_code == 412, (method, where)
        assert refused.json()["type"] == "urn:shampoo-tuner:problem:changed-meanwhile"
        assert refused.json()["errors"][0]["field"] == "If-Match"
    assert http.get(path).json()["notes"] == "mine"
    current = http.get(path).headers["ETag"]
    assert http.post(f"{path}/archive", headers={"If-Match": f'"x", {current}'}).status_code == 200
    assert http.post(f"{path}/unarchive", headers={"If-Match": "*"}).status_code == 200
    assert http.patch("/v1/jobs/job_x", json={"notes": ""}, headers={"If-Match": "*"}).status_code == 404
    assert http.patch("/v1/jobs/job_x", json={"notes": ""}, headers={"If-Match": tag}).status_code == 404
    trial_tag = http.get(f"{path}/trials/0").headers["ETag"]
    measure(database, lease, 0, 20, 0.4)
    for note, status in (("mine", 200), ("lost", 412)):
        answer = http.patch(f"{path}/trials/0", json={"note": note}, headers={"If-Match": trial_tag})
        assert answer.status_code == status
    assert http.post(f"{path}/trials/0/stop", headers={"If-Match": trial_tag}).status_code == 412
    assert http.get(f"{path}/trials/0").json()["note"] == "mine"
    assert http.patch(f"{path}/trials/9", json={"note": ""}, headers={"If-Match": "*"}).status_code == 404
    trial_tag = http.get(f"{path}/trials/0").headers["ETag"]
    end_trial(database, lease, 0, TrialState.PRUNED)
    assert http.post(f"{path}/trials/0/retry", headers={"If-Match": trial_tag}).status_code == 412
    trial_tag = http.get(f"{path}/trials/0").headers["ETag"]
    assert http.post(f"{path}/trials/0/retry", headers={"If-Match": trial_tag}).status_code == 200


def test_a_job_in_the_queue_is_deleted_only_as_it_was_seen(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    path = f"/v1/jobs/{submit(sqlite_database)}"
    assert sqlite_http.post(f"{path}/cancel").status_code == 200
    tag = sqlite_http.get(path).headers["ETag"]
    sqlite_http.patch(path, json={"tags": {"keep": ""}})
    assert sqlite_http.delete(path, headers={"If-Match": tag}).status_code == 412
    assert sqlite_http.delete(path, headers={"If-Match": sqlite_http.get(path).headers["ETag"]}).status_code == 204
