"""Jobs as records over HTTP: deleted, archived, cloned, noted, found again, and many at once."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from service.access.caller import Scope
from service.store.repositories import AuditRepository, JobRepository
from service.store.session import Database
from tests.support.service.callers import asking, give_token
from tests.support.service.live import finished_job
from tests.support.service.scenarios import submit

SMALL = {"workload": {"name": "digits-mlp"}, "budget": {"num_trials": 4}}


def _ids(http: httpx.Client, **asked: Any) -> list[str]:
    answer = http.get("/v1/jobs", params=asked)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["items"]]


@pytest.mark.slow
def test_a_deleted_job_is_gone_for_all_who_ask(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database, model="mine")
    running = submit(database)
    refused = http.delete(f"/v1/jobs/{running}")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:shampoo-tuner:problem:job-not-finished")
    assert "cancel it first" in refused.json()["detail"]
    deleted = http.delete(f"/v1/jobs/{job_id}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    paths = ("", "/trials", "/trials/0", "/events", "/recommendation", "/plots/best-so-far", "/trials/0/measurements")
    for path in paths:
        assert http.get(f"/v1/jobs/{job_id}{path}").status_code == 404, path
    assert http.get(f"/jobs/{job_id}").status_code == 404
    for method, path in (("DELETE", ""), ("POST", "/clone"), ("POST", "/archive"), ("PATCH", "")):
        answer = http.request(method, f"/v1/jobs/{job_id}{path}", json={"name": "x"} if method == "PATCH" else None)
        assert answer.status_code == 404, (method, path)
    assert _ids(http) == _ids(http, archived="all") == [running]
    assert http.get("/v1/recommendations", params={"model": "mine"}).status_code == 404, "nobody knows the name"
    with database.reading() as session:
        entry = AuditRepository(session).page(project=None, limit=1)[0]
        assert (entry.action, entry.target) == ("delete_job", job_id)


@pytest.mark.slow
def test_the_answer_that_a_deleted_one_replaced_holds_again(http: httpx.Client, database: Database) -> None:
    job_ids = [finished_job(database, model="mine") for _ in range(2)]

    def answers() -> list[str]:
        found = http.get("/v1/recommendations", params={"model": "mine"}).json()["items"]
        return [answer["job_id"] for answer in found if not answer["superseded"]]

    before = answers()
    assert http.delete(f"/v1/jobs/{job_ids[1]}").status_code == 204
    assert answers() == [job_ids[0]]
    assert set(before) <= set(job_ids)


def test_a_key_of_a_deleted_job_makes_a_new_one(sqlite_http: httpx.Client) -> None:
    headers = {"Idempotency-Key": "once"}
    first = sqlite_http.post("/v1/jobs", json=SMALL, headers=headers).json()["id"]
    assert sqlite_http.post(f"/v1/jobs/{first}/cancel").status_code == 200
    assert sqlite_http.delete(f"/v1/jobs/{first}").status_code == 204
    again = sqlite_http.post("/v1/jobs", json=SMALL, headers=headers)
    assert again.status_code == 201
    assert again.json()["id"] != first


def test_an_archived_job_is_listed_to_those_who_ask_for_it(http: httpx.Client, database: Database) -> None:
    kept, archived = submit(database), submit(database)
    for _ in range(2):
        answer = http.post(f"/v1/jobs/{archived}/archive")
        assert answer.status_code == 200
        assert answer.json()["archived_at"] is not None
    assert answer.json()["state"] == "queued"
    assert _ids(http) == [kept]
    assert _ids(http, archived="true") == [archived]
    assert _ids(http, archived="all") == [archived, kept]
    assert http.get(f"/v1/jobs/{archived}").status_code == 200
    assert http.post(f"/v1/jobs/{archived}/unarchive").json()["archived_at"] is None
    assert _ids(http) == [archived, kept]


def test_a_clone_is_the_same_submission_but_for_what_is_changed(http: httpx.Client) -> None:
    body = {
        **SMALL,
        "name": "first",
        "model": "mine",
        "tags": {"team": "vision", "old": ""},
        "priority": 3,
        "notes": "about the first",
        "training": {"num_steps": 40},
        "pinned": [{"lr": 0.01}],
    }
    original = http.post("/v1/jobs", json=body).json()
    same = http.post(f"/v1/jobs/{original['id']}/clone", headers={"Idempotency-Key": "k"})
    assert same.status_code == 201
    assert same.headers["location"] == f"/v1/jobs/{same.json()['id']}"
    as_before = ("name", "model", "tags", "priority", "specification", "num_trials")
    assert {name: same.json()[name] for name in as_before} == {name: original[name] for name in as_before}
    assert (same.json()["cloned_from"], same.json()["notes"], same.json()["state"]) == (original["id"], None, "queued")
    replayed = http.post(f"/v1/jobs/{original['id']}/clone", headers={"Idempotency-Key": "k"})
    assert (replayed.status_code, replayed.json()["id"]) == (200, same.json()["id"])
    patch: dict[str, Any] = {
        "name": None,
        "tags": {"old": None, "run": "2"},
        "training": {"num_steps": 80, "seed": 7},
        "confirmation": None,
        "pinned": None,
        "workload": {"options": {"hidden_sizes": [32]}},
        "baselines": [],
    }
    changed = http.post(f"/v1/jobs/{original['id']}/clone", json=patch).json()
    specification = changed["specification"]
    assert (changed["name"], changed["tags"]) == ("mine", {"team": "vision", "run": "2"})
    assert (specification["training"]["num_steps"], specification["training"]["seed"]) == (80, 7)
    assert specification["budget"]["num_trials"] == 4
    assert (specification["confirmation"], specification["pinned"], specification["baselines"]) == (None, [], [])
    assert specification["workload"] == {"name": "digits-mlp", "options": {"hidden_sizes": [32]}}


def test_a_clone_of_a_job_without_a_confirmation_can_have_one(sqlite_http: httpx.Client) -> None:
    original = sqlite_http.post("/v1/jobs", json={**SMALL, "confirmation": None}).json()
    cloned = sqlite_http.post(f"/v1/jobs/{original['id']}/clone", json={"confirmation": {"num_seeds": 7}})
    assert cloned.status_code == 201, cloned.text
    assert cloned.json()["specification"]["confirmation"]["num_seeds"] == 7


def test_a_clone_is_checked_as_a_submission(sqlite_http: httpx.Client, sqlite_database: Database) -> None:
    original = submit(sqlite_database)
    refused: list[tuple[dict[str, Any], list[str]]] = [
        ({"budget": {"num_trials": 0}, "training": {"seed": "x"}}, ["budget.num_trials", "training.seed"]),
        ({"budgets": {}, "search_space": "shampo"}, ["budgets", "search_space"]),
        ({"workload": {"options": {"hiden_sizes": [3]}}}, ["workload.options.hiden_sizes"]),
        ({"workload": {"name": "nothing"}}, ["workload.name"]),
        ({"name": "\0"}, ["name"]),
    ]
    for patch, fields in refused:
        answer = sqlite_http.post(f"/v1/jobs/{original}/clone", json=patch)
        assert answer.status_code == 422, patch
        assert [error["field"] for error in answer.json()["errors"]] == fields
        assert ("did you mean 'budget'?" in answer.text) == (fields[0] == "budgets")
    assert sqlite_http.post(f"/v1/jobs/{original}/clone", content=b"[]").status_code in (415, 422)
    assert len(_ids(sqlite_http)) == 1
    dry = sqlite_http.post(f"/v1/jobs/{original}/clone", json={"budget": {"num_trials": 0}}, params={"dry_run": True})
    assert dry.status_code == 422


def test_a_clone_has_none_of_the_trials_that_users_proposed(
    sqlite_http: httpx.Client, sqlite_database: Database
) -> None:
    original = submit(sqlite_database)
    assert sqlite_http.post(f"/v1/jobs/{original}/trials", json={"parameters": {"lr": 0.01}}).status_code == 202
    assert sqlite_http.get(f"/v1/jobs/{original}").json()["num_trials"] == 5
    assert sqlite_http.post(f"/v1/jobs/{original}/clone").json()["num_trials"] == 4


def test_jobs_are_found_by_what_they_are_called_and_when_they_were(http: httpx.Client) -> None:
    made = [
        http.post("/v1/jobs", json={**SMALL, **fields}).json()
        for fields in (
            {"name": "Alpha", "tags": {"team": "vision", 'odd "$.name[0]': "a=b"}, "priority": 5},
            {"name": "beta 100%", "tags": {"team": "text"}, "notes": "compare with ALPHA_1"},
            {"name": "gamma", "priority": 5},
        )
    ]
    alpha, beta, gamma = (job["id"] for job in made)
    assert _ids(http, tag="team") == [beta, alpha]
    assert _ids(http, tag="team=vision") == [alpha]
    assert _ids(http, tag=["team=vision", 'odd "$.name[0]=a=b']) == [alpha]
    assert _ids(http, tag=["team=vision", "team=text"]) == _ids(http, tag="team=") == []
    assert _ids(http, text="alpha") == [beta, alpha]
    assert _ids(http, text="100%") == [beta]
    assert _ids(http, text="a_1") == [beta], "no wildcard"
    assert _ids(http, text="", tag="") == [gamma, beta, alpha], "as an empty form asks"
    assert _ids(http, project="default") == [gamma, beta, alpha]
    assert _ids(http, project="other") == _ids(http, owner="nobody") == []
    assert _ids(http, created_after=made[0]["created_at"], created_before=made[2]["created_at"]) == [beta]
    assert _ids(http, finished_after="2020-01-01T00:00:00Z") == []
    assert _ids(http, order_by="created_at") == [alpha, beta, gamma]
    assert _ids(http, order_by="-priority") == [gamma, alpha, beta]
    assert _ids(http, order_by="priority") == [beta, alpha, gamma]
    for params, field in (
        ({"created_after": "2026-03-01"}, "created_after"),
        ({"created_after": "0001-01-01T00:00:00+14:00"}, "created_after"),
        ({"tag": "=x"}, "tag"),
        ({"order_by": "size"}, "order_by"),
    ):
        answer = http.get("/v1/jobs", params=params)
        assert answer.status_code == 422, params
        assert answer.json()["errors"][0]["field"].startswith(field)


@pytest.mark.slow
def test_pages_in_any_order_meet_each_job_once(http: httpx.Client, database: Database) -> None:
    ended = [finished_job(database) for _ in range(2)]
    jobs = [*ended, *(submit(database) for _ in range(3))]
    with database.writing() as session:
        for number, job_id in enumerate(jobs):
            JobRepository(session).get(job_id).name = "bab"[number % 2]
    for order in ("created_at", "-created_at", "finished_at", "-finished_at", "priority", "name", "-name"):
        met: list[str] = []
        params: dict[str, Any] = {"order_by": order, "page_size": 2}
        while True:
            page = http.get("/v1/jobs", params=params).json()
            met += [job["id"] for job in page["items"]]
            if page["next_page_token"] is None:
                break
            params["page_token"] = page["next_page_token"]
        assert sorted(met) == sorted(jobs), order
        if "finished" in order:
            assert set(met[:2]) == set(ended), "those that have not ended come last"
        assert http.get("/v1/jobs", params={**params, "order_by": "-priority"}).status_code == 422


def test_notes_are_kept_as_they_are_written(http: httpx.Client, database: Database) -> None:
    job_id = submit(database)
    text = "# *Not* <b>bold</b>\n\n- one\n- `two` é"
    assert http.patch(f"/v1/jobs/{job_id}", json={"notes": text}).json()["notes"] == text
    page = http.get(f"/jobs/{job_id}").text
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold</b>" not in page
    assert http.patch(f"/v1/jobs/{job_id}", json={"priority": 1}).json()["notes"] == text
    assert http.patch(f"/v1/jobs/{job_id}", json={"notes": ""}).json()["notes"] is None
    assert http.patch(f"/v1/jobs/{job_id}", json={"notes": "x" * 20_001}).status_code == 422


def test_many_jobs_are_steered_at_once_each_with_its_outcome(database: Database) -> None:
    ended = finished_job(database, project="ours")
    ours = [submit(database, project="ours") for _ in range(2)]
    theirs = submit(database, project="theirs")
    token = give_token(database, "ours", Scope.SUBMIT, project="ours")
    with asking(database) as asked, asked.client(token) as http:
        asked_for = {"job_ids": [ours[0], ended, theirs, "job_x", ours[0], ours[1]]}
        answer = http.post("/v1/jobs:pause", json=asked_for)
        assert answer.status_code == 200, answer.text
        outcomes = {one["job_id"]: one for one in answer.json()["items"]}
        assert [*outcomes] == [ours[0], ended, theirs, "job_x", ours[1]]
        assert [outcomes[job_id]["state"] for job_id in ours] == ["paused", "paused"]
        assert outcomes[ended]["problem"]["status"] == 409
        assert outcomes[theirs]["problem"]["detail"] == f"no job {theirs!r}"
        assert outcomes["job_x"]["problem"]["status"] == outcomes[theirs]["problem"]["status"] == 404
        states = {"resume": "queued", "cancel": "cancelled"}
        for verb, state in states.items():
            answer = http.post(f"/v1/jobs:{verb}", json={"job_ids": ours})
            assert [one["state"] for one in answer.json()["items"]] == [state, state]
        impossible: list[list[Any] | None] = [[], ["x"] * 101, [1], None, ["a\0"]]
        for bad in impossible:
            assert http.post("/v1/jobs:cancel", json={} if bad is None else {"job_ids": bad}).status_code == 422, bad
    with database.reading() as session:
        assert JobRepository(session).get(theirs).state == "queued"
        deeds = [(entry.action, entry.target) for entry in AuditRepository(session).page(project=None, limit=10)]
    assert deeds == [(f"{verb}_job", job_id) for verb in ("cancel", "resume", "pause") for job_id in reversed(ours)]


def test_a_tried_config_that_is_given_up_leaves_a_job_succeeded(http: httpx.Client, database: Database) -> None:
    job_id = finished_job(database)
    recommended = http.get(f"/v1/jobs/{job_id}/recommendation").json()
    assert http.post(f"/v1/jobs/{job_id}/trials", json={"parameters": {"lr": 0.01}}).status_code == 202
    assert http.get(f"/v1/jobs/{job_id}").json()["state"] == "queued"
    ended = http.post(f"/v1/jobs/{job_id}/cancel").json()
    assert (ended["state"], ended["failure"], ended["finished_at"] is None) == ("succeeded", None, False)
    assert ended["progress"]["trials"]["cancelled"] == 1
    assert ended["progress"]["num_finished"] == ended["num_trials"] == 5
    assert http.get(f"/v1/jobs/{job_id}/recommendation").json() == recommended
    assert http.post(f"/v1/jobs/{job_id}/cancel").status_code == 409
