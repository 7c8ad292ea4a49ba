"""Bad input gets a clear answer that names the field, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from service.api.dependencies import WriteSession
from service.api.request_body import Spot, spot_of
from service.server.app import create_app
from service.settings import Access, Settings
from service.store.repositories import EventRepository, JobRepository, WorkerRepository
from service.store.session import Database
from tests.support import event_loop
from tests.support.service.impossible_jobs import IMPOSSIBLE, WORKLOAD, own_space
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, submit
from tests.support.waiting import PATIENCE_SECONDS

UNREADABLE: dict[str, tuple[bytes, str]] = {
    "cut off": (b'{"workload": {"name": "digi', "body"),
    "empty": (b"", "body"),
    "not UTF-8": (b'{"workload": "\xff\xfe"}', "body"),
    "NaN": (
        b'{"workload": {"name": "digits-mlp"}, "budget": {"wall_clock_seconds": NaN}}',
        "budget.wall_clock_seconds",
    ),
    "Infinity inside free JSON": (
        b'{"workload": {"name": "digits-mlp", "options": {"label_smoothing": Infinity}}}',
        "workload.options.label_smoothing",
    ),
    "half a surrogate pair": (b'{"workload": {"name": "digits-mlp"}, "name": "\\ud800"}', "name"),
    "nested beyond the parser": (b"[" * 100_000 + b"]" * 100_000, "body"),
    "nested deep": (b'{"workload": {"name": "digits-mlp", "options": {"o": ' + b"[" * 400 + b"]" * 400 + b"}}}", "[0]"),
    "a name twice": (b'{"workload": {"name": "digits-mlp", "options": {}, "name": "digits-cnn"}}', "body"),
    "a number of 10,000 digits": (b'{"workload": ' + b"1" * 10_000 + b"}", "body"),
}


@pytest.fixture
def contents(database: Database) -> Iterator[tuple[int, int]]:
    """Holds at the end of a test that no job and no event was added."""

    def counts() -> tuple[int, int]:
        with database.reading() as session:
            return len(JobRepository(session).page(project=None, limit=100)), EventRepository(session).last_id()

    before = counts()
    yield before
    assert counts() == before


def _assert_names(answer: httpx.Response, status: int, field: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["instance"] == "/v1/jobs"
    assert problem["title"]
    fields = [error["field"] for error in problem["errors"]]
    assert any(found == field or (field.startswith("[") and found.endswith(field)) for found in fields), problem
    assert all(error["message"] for error in problem["errors"])


@pytest.mark.usefixtures("contents")
def test_impossible_jobs_are_refused_naming_the_field(http: httpx.Client) -> None:
    for body, field in IMPOSSIBLE.values():
        _assert_names(http.post("/v1/jobs", json=body), 422, field)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"objective": {"metric": "validation_loss", "also": ["step_seconds"]}},
            "objective",
            "there is no such field: did you mean 'objectives'?",
        ),
        (
            {"objectives": [{"metric": "validation_loss", "also": ["step_seconds"]}]},
            "objectives[0].also",
            "there is no such field (known: metric)",
        ),
        (
            {"training": {"batchsize": 64}},
            "training.batchsize",
            "there is no such field: did you mean 'batch_size'?",
        ),
        (
            {"baselines": [{"budget_shares": 0.5}]},
            "baselines[0].budget_shares",
            "there is no such field: did you mean 'budget_share'?",
        ),
        (
            {"baseline": {"budget_shares": 0.5}},
            "baseline.budget_shares",
            "there is no such field: did you mean 'budget_share'?",
        ),
        (
            {"confirmation": {"top_k": 2, "num_seed": 3}},  # where "auto" may stand, too
            "confirmation.num_seed",
            "there is no such field: did you mean 'num_seeds'?",
        ),
    ],
)
def test_an_unknown_field_is_answered_with_the_nearest_name_or_all_there_are(
    sqlite_http: httpx.Client, fields: dict[str, Any], field: str, message: str
) -> None:
    answer = sqlite_http.post("/v1/jobs", json={**WORKLOAD, **fields})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["message"]) == (field, message)


@pytest.mark.parametrize(
    ("fields", "field", "meant"),
    [
        ({"workload": {"name": "digit-mlp"}}, "workload.name", "digits-mlp"),
        (
            {"workload": {"name": "digits-mlp", "options": {"label_smothing": 0.1}}},
            "workload.options.label_smothing",
            "label_smoothing",
        ),
        ({"search_space": "shampo"}, "search_space", "shampoo"),
        ({"baseline": {"search_space": "AdamW"}}, "baseline.search_space", "adamw"),
        ({"baselines": [{"search_space": "AdamW"}]}, "baselines[0].search_space", "adamw"),
        ({"search_space": {"optimizer": "adamw", "parameters": [], "fixd": {}}}, "search_space.space", "fixed"),
        (
            {"search_space": {"optimizer": "adamw", "fixed": {"weight_dekay": 0.1}}},
            "search_space.fixed",
            "weight_decay",
        ),
        ({"objectives": [{"metric": "validaton_loss"}]}, "objectives[0].metric", "validation_loss"),
        ({"target": {"metric": "accuracy", "value": 0.9}}, "target.metric", "validation_accuracy"),
        ({"constraints": [{"metric": "peak_memory", "max": 1.0}]}, "constraints[0].metric", "peak_memory_bytes"),
        ({"sampler": {"name": "ramdom"}}, "sampler.name", "random"),
        ({"pruner": {"name": "hyper-band"}}, "pruner.name", "hyperband"),
        ({"training": {"precision": "bfloat-16"}}, "training.precision", "bfloat16"),
    ],
)
def test_an_unknown_name_is_answered_with_the_one_that_was_probably_meant(
    sqlite_http: httpx.Client, fields: dict[str, Any], field: str, meant: str
) -> None:
    answer = sqlite_http.post("/v1/jobs", json={**WORKLOAD, **fields})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert error["message"].endswith(f": did you mean '{meant}'?")


@pytest.mark.usefixtures("contents")
def test_unreadable_bodies_are_refused(http: httpx.Client) -> None:
    for content, field in UNREADABLE.values():
        answer = http.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        _assert_names(answer, 422, field)


def test_a_refused_value_is_given_back_if_it_is_small(sqlite_http: httpx.Client) -> None:
    def value(body: object) -> object:
        return sqlite_http.post("/v1/jobs", json=body).json()["errors"][0].get("value")

    assert value({**WORKLOAD, "budget": {"num_trials": -3}}) == -3
    assert value(own_space(low=1, high=0.1)) == 1
    assert value({**WORKLOAD, "search_space": "x" * 500}) is None


def test_a_large_body_that_is_all_wrong_is_answered_in_few_words(sqlite_http: httpx.Client) -> None:
    long = "x" * 900_000
    bodies: list[dict[str, Any]] = [
        {"workload": {"name": long}},
        {"workload": {"name": "digits-mlp", "options": {long: 1}}},
        {"workload": {"name": "digits-mlp"}, **{f"field{index}": 1 for index in range(40_000)}},
    ]
    for body in bodies:
        answer = sqlite_http.post("/v1/jobs", json=body)
        assert answer.status_code == 422
        assert len(answer.content) < 20_000


def test_malformed_json_tells_where(sqlite_http: httpx.Client) -> None:
    answer = sqlite_http.post(
        "/v1/jobs", content='{\n  "workload": oops\n}', headers={"Content-Type": "application/json"}
    )
    assert "line 2, column 15" in answer.json()["detail"]


def test_another_content_type_is_refused(sqlite_http: httpx.Client) -> None:
    answer = sqlite_http.post("/v1/jobs", data={"workload": "digits-mlp"})
    _assert_names(answer, 415, "Content-Type")


def test_a_large_body_is_refused_whether_its_length_is_declared_or_not(sqlite_database: Database) -> None:
    body = json.dumps({**WORKLOAD, "name": "x" * 5000}).encode()

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(body), 500):
            yield body[start : start + 500]

    headers = {"Content-Type": "application/json"}
    with running(sqlite_database, max_request_bytes=4000) as url:
        declared = httpx.post(
            f"{url}/v1/jobs", content=body, headers=headers, trust_env=False, verify=False, timeout=PATIENCE_SECONDS
        )
        chunked = httpx.post(
            f"{url}/v1/jobs", content=chunks(), headers=headers, trust_env=False, verify=False, timeout=PATIENCE_SECONDS
        )
        _assert_names(declared, 413, "body")
        _assert_names(chunked, 413, "body")
        fits = httpx.post(f"{url}/v1/jobs", json=WORKLOAD, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
        assert fits.status_code == 201


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


def _app_with(database: Database, path: str, endpoint: Any) -> FastAPI:
    app = create_app(Settings(allowed_hosts=("test",), access=Access.OPEN), database)
    app.post(path)(endpoint)
    return app


def _post(app: FastAPI, path: str) -> httpx.Response:
    async def post() -> httpx.Response:
        transport = ASGITransport(app, raise_app_exceptions=False)
        async with AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(path)

    return event_loop.run(post())


async def _fails() -> None:
    raise RuntimeError("secret")


def test_an_unexpected_error_is_a_500_without_internals(
    sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    answer = _post(_app_with(sqlite_database, "/fails", _fails), "/fails")
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def _fails_at_commit(session: WriteSession) -> dict[str, bool]:
    # A job of no existing worker: the foreign key refuses it, on PostgreSQL and SQLite, when it is flushed.
    job = JobRepository(session).page(project=None, limit=1)[0]
    job.lease_worker_id = "worker_nope"
    return {"done": True}


def test_a_commit_that_fails_is_not_answered_with_success(database: Database) -> None:
    job_id = submit(database)
    answer = _post(_app_with(database, "/fails", _fails_at_commit), "/fails")
    assert answer.status_code == 500
    with database.reading() as session:
        assert JobRepository(session).get(job_id).lease_worker_id is None
        assert WorkerRepository(session).alive_since(NOW) == 0


def test_all_faulty_fields_are_told_at_once_each_with_a_pointer(sqlite_http: httpx.Client) -> None:
    by_kind = {
        "workload": {"name": "digits-mlp"},
        "training": {"batch_size": "big", "seeds": 1},
        "budget": {"num_trials": 0},
        "baselines": [{"search_space": 3}],
    }
    by_meaning = {
        "workload": {"name": "digits-mlp", "options": {"hiden_sizes": [3]}},
        "search_space": "shampo",
        "objectives": [{"metric": "validation_los"}],
        "constraints": [{"metric": "x"}, {"metric": "validation_loss"}],
        "resources": {"custom_resources": {"TPU": 0.00001, "-": 1}},
        "training": {"parallelism": {"mode": "fsdp2"}},
        "baselines": [{"search_space": "adam"}, {"search_space": "muon"}],
    }
    inside = {"workload": {"name": "digits-mlp"}, "pinned": [{"lr": 1e9}, {"betas[0]": 2.0}, {"learning": 1}]}
    space = {
        "optimizer": "shampoo",
        "parameters": [
            {"type": "float", "name": "lr", "low": "small", "high": 0.1},
            {"type": "float", "name": "weight_decay", "low": 0.5, "high": 0.1, "scale": "log"},
            {"type": "integer", "name": "nothing", "low": 1, "high": 2},
        ],
        "fixed": {"betas": [0.9]},
    }
    cases: list[tuple[dict[str, Any], list[str]]] = [
        (
            {"workload": {"name": "digits-mlp"}, "search_space": space, "objectives": [{"metric": "validation_los"}]},
            [
                "/objectives/0/metric",
                "/search_space/fixed/betas",
                "/search_space/parameters/0/low",
                "/search_space/parameters/1/low",
                "/search_space/parameters/2/name",
            ],
        ),
        (by_kind, ["/training/batch_size", "/training/seeds", "/budget/num_trials", "/baselines/0/search_space"]),
        (
            by_meaning,
            [
                "/workload/options/hiden_sizes",
                "/objectives/0/metric",
                "/constraints/0/metric",
                "/constraints/1",
                "/resources/custom_resources/TPU",
                "/resources/custom_resources/-",
                "/training/parallelism/mode",
                "/search_space",
                "/baselines/0/search_space",
            ],
        ),
        (inside, ["/pinned/0/lr", "/pinned/1/betas[0]", "/pinned/2"]),
        ({"name": "a\0", "tags": {"b\0": "c\0"}}, ["/name", "/tags/b\0", "/tags/b\0"]),
    ]
    for body, pointers in cases:
        answer = sqlite_http.post("/v1/jobs", json=body)
        assert answer.status_code == 422
        errors = answer.json()["errors"]
        assert sorted(error["pointer"] for error in errors) == sorted(pointers), answer.text
    told = {error["pointer"]: error for error in sqlite_http.post("/v1/jobs", json=by_meaning).json()["errors"]}
    assert told["/search_space"]["value"] == "shampo"
    for pointer in ("/search_space", "/workload/options/hiden_sizes", "/objectives/0/metric"):
        assert "did you mean" in told[pointer]["message"], told[pointer]
    query = sqlite_http.get("/v1/jobs", params={"page_size": 0}).json()["errors"]
    assert [(error["field"], "pointer" in error) for error in query] == [("page_size", False)]


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


@pytest.mark.parametrize(
    ("body", "field", "pointer", "value"),
    [
        ({"a": {"b/c": [1, {"~": 2}]}}, "a.b/c[1].~", "/a/b~1c/1/~0", 2),
        ({"p": [{"betas[0]": 3, "schedule.warmup": 4}]}, "p[0].betas[0]", "/p/0/betas[0]", 3),
        ({"p": [{"betas[0]": 3, "schedule.warmup": 4}]}, "p[0].schedule.warmup", "/p/0/schedule.warmup", 4),
        ({"a": {"odd 'name": 5}}, "a.odd 'name", "/a/odd 'name", 5),
        ({"a": {}}, "a['b c'][0]", "/a/b c/0", None),
        ({}, "training.batch_size", "/training/batch_size", None),
        ([1], "body", "", None),
        ({"x": 1}, "", "", {"x": 1}),
    ],
)
def test_a_path_leads_to_a_place_in_the_body(body: object, field: str, pointer: str, value: Any) -> None:
    assert spot_of(body, field) == Spot(pointer, value)
