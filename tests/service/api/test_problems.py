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
from service.server.app import create_app
from service.settings import Settings
from service.store.repositories import EventRepository, JobRepository, WorkerRepository
from service.store.session import Database
from tests.support import event_loop
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, submit
from tests.support.waiting import PATIENCE_SECONDS

WORKLOAD = {"workload": {"name": "digits-mlp"}}


def _space(**changes: Any) -> dict[str, Any]:
    parameter = {"type": "float", "name": "lr", "low": 0.001, "high": 0.1, "scale": "log", **changes}
    return {**WORKLOAD, "search_space": {"optimizer": "shampoo", "parameters": [parameter]}}


def _several(*metrics: str, **fields: Any) -> dict[str, Any]:
    """A job with these objectives beside the validation loss."""
    return {**WORKLOAD, "objectives": [{"metric": metric} for metric in ("validation_loss", *metrics)], **fields}


_PRECISION = {"type": "categorical", "name": "training.precision", "choices": ["float32", "bfloat16"]}


def _population(pruner: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {**WORKLOAD, "budget": {"num_trials": 20}, "pruner": {"name": "pbt", **(pruner or {})}, **fields}


IMPOSSIBLE: dict[str, tuple[object, str]] = {
    "no workload": ({}, "workload"),
    "not an object": ([1], "body"),
    "null": (None, "body"),
    "unknown workload": ({"workload": {"name": "imagenet"}}, "workload.name"),
    "unknown workload option": (
        {"workload": {"name": "digits-mlp", "options": {"depth": 3}}},
        "workload.options.depth",
    ),
    "unknown field": ({**WORKLOAD, "bugdet": {}}, "bugdet"),
    "unknown nested field": ({**WORKLOAD, "budget": {"num_trails": 3}}, "budget.num_trails"),
    "negative budget": ({**WORKLOAD, "budget": {"num_trials": -3}}, "budget.num_trials"),
    "no trials": ({**WORKLOAD, "budget": {"num_trials": 0}}, "budget.num_trials"),
    "one trial with a baseline": ({**WORKLOAD, "budget": {"num_trials": 1}}, "budget.num_trials"),
    "a sliver of a CPU": ({**WORKLOAD, "resources": {"cpus_per_worker": 1e-9}}, "resources.cpus_per_worker"),
    "a GPU and a half": ({**WORKLOAD, "resources": {"gpus_per_worker": 1.5}}, "resources.gpus_per_worker"),
    "a sliver of a GPU": ({**WORKLOAD, "resources": {"gpus_per_worker": 1e-6}}, "resources.gpus_per_worker"),
    "half a GPU for each of two ranks": (
        {**WORKLOAD, "resources": {"gpus_per_worker": 0.5, "workers_per_trial": 2}},
        "resources.gpus_per_worker",
    ),
    "no memory": ({**WORKLOAD, "resources": {"memory_per_worker": 0}}, "resources.memory_per_worker"),
    "memory in words": ({**WORKLOAD, "resources": {"memory_per_worker": "8GB"}}, "resources.memory_per_worker"),
    "none of a custom resource": (
        {**WORKLOAD, "resources": {"custom_resources": {"tpu": 0}}},
        "resources.custom_resources.tpu",
    ),
    "a custom resource in words": (
        {**WORKLOAD, "resources": {"custom_resources": {"tpu": "all"}}},
        "resources.custom_resources.tpu",
    ),
    "CPUs as a custom resource": (
        {**WORKLOAD, "resources": {"custom_resources": {"CPU": 1}}},
        "resources.custom_resources.CPU",
    ),
    "custom resources in a list": (
        {**WORKLOAD, "resources": {"custom_resources": ["tpu"]}},
        "resources.custom_resources",
    ),
    "negative time": ({**WORKLOAD, "budget": {"wall_clock_seconds": -1}}, "budget.wall_clock_seconds"),
    "too many steps": ({**WORKLOAD, "training": {"num_steps": 10**12}}, "training.num_steps"),
    "an enormous seed": ({**WORKLOAD, "training": {"seed": 10**400}}, "training.seed"),
    "indivisible batch": (
        {**WORKLOAD, "training": {"batch_size": 5}, "resources": {"workers_per_trial": 2}},
        "training.batch_size",
    ),
    "a confirmation of nothing": ({**WORKLOAD, "confirmation": {"top_k": 0}}, "confirmation.top_k"),
    "a confirmation with one seed": ({**WORKLOAD, "confirmation": {"num_seeds": 1}}, "confirmation.num_seeds"),
    "a confirmation of text": ({**WORKLOAD, "confirmation": "yes"}, "confirmation"),
    "an unknown field of the confirmation": ({**WORKLOAD, "confirmation": {"seeds": [1]}}, "confirmation.seeds"),
    "more to confirm than the search has": (
        {**WORKLOAD, "budget": {"num_trials": 4}, "confirmation": {"top_k": 4}},
        "confirmation.top_k",
    ),
    "unknown metric": ({**WORKLOAD, "objectives": [{"metric": "bleu"}]}, "objectives[0].metric"),
    "unknown second metric": (_several("step_seconds", "bleu"), "objectives[2].metric"),
    "an objective twice": (_several("step_seconds", "step_seconds"), "objectives[2].metric"),
    "the first objective again": (_several("validation_loss"), "objectives[1].metric"),
    "a second objective that needs a target": (_several("seconds_to_target"), "target"),
    "a summary of nothing": ({**WORKLOAD, "objectives": [{"metric": "best_"}]}, "objectives[0].metric"),
    "five objectives": (
        _several("step_seconds", "train_loss", "peak_memory_bytes", "optimizer_share"),
        "objectives",
    ),
    "an objective that is no object": ({**WORKLOAD, "objectives": ["step_seconds"]}, "objectives[0]"),
    "objectives that are no list": ({**WORKLOAD, "objectives": {"metric": "step_seconds"}}, "objectives"),
    "a metric's target within an objective": (
        {**WORKLOAD, "objectives": [{"metric": "validation_loss", "target": 0.1}]},
        "objectives[0].target",
    ),
    "auto for several objectives": (_several("step_seconds", sampler={"name": "auto"}), "sampler.name"),
    "a Gaussian process for several objectives": (_several("step_seconds", sampler={"name": "gp"}), "sampler.name"),
    "CMA-ES for several objectives": (_several("step_seconds", sampler={"name": "cmaes"}), "sampler.name"),
    "a pruner for several objectives": (_several("step_seconds", pruner={"name": "asha"}), "pruner.name"),
    "NSGA-II for one objective": ({**WORKLOAD, "sampler": {"name": "nsga2"}}, "sampler.name"),
    "a population and auto": (_population(sampler={"name": "auto"}), "pruner.name"),
    "a population and several objectives": (
        _population(objectives=[{"metric": "validation_loss"}, {"metric": "step_seconds"}]),
        "pruner.name",
    ),
    "a population in words": (_population({"population": "many"}), "pruner.population"),
    "a population of one": (_population({"population": 1}), "pruner.population"),
    "a population without forks": (_population({"population": 15}), "pruner.population"),
    "a population of two trials": (_population(budget={"num_trials": 3}), "budget.num_trials"),
    "a population that is confirmed": (_population(confirmation={}), "confirmation"),
    "a population with rungs": (_population({"reduction_factor": 3}), "pruner.reduction_factor"),
    "a population with first steps": (_population({"min_steps": 40}), "pruner.min_steps"),
    "an interval of nothing": (_population({"interval": 0}), "pruner.interval"),
    "an interval between measurements": (_population({"interval": 25}), "pruner.interval"),
    "an interval as long as the trial": (_population({"interval": 100_000}), "pruner.interval"),
    "no step to compare at": (
        _population(training={"num_steps": 20, "evaluate_every": 20}),
        "training.evaluate_every",
    ),
    "a population with checkpoints of its own time": (
        _population(training={"checkpoint_every": 20}),
        "training.checkpoint_every",
    ),
    "a population that keeps one checkpoint": (
        _population(training={"keep_checkpoints": 1}),
        "training.keep_checkpoints",
    ),
    "nothing to change in training": (
        _population(search_space={"optimizer": "adamw", "parameters": [_PRECISION]}),
        "search_space",
    ),
    "nothing to change in the baseline's training": (
        _population(baseline={"search_space": {"optimizer": "adamw", "parameters": [_PRECISION]}}),
        "baseline.search_space",
    ),
    "pbt with measurements at other steps in each trial": (
        _population(training={"evaluate_every_seconds": 5.0}),
        "training.evaluate_every_seconds",
    ),
    "a population without pbt": ({**WORKLOAD, "pruner": {"population": 8}}, "pruner.population"),
    "an interval without pbt": ({**WORKLOAD, "pruner": {"name": "asha", "interval": 20}}, "pruner.interval"),
    "unknown preset": ({**WORKLOAD, "search_space": "sham-poo"}, "search_space"),
    "a space that is a number": ({**WORKLOAD, "search_space": 5}, "search_space"),
    "low above high": (_space(low=1, high=0.1), "search_space.parameters[0].low"),
    "unknown parameter": (_space(name="learning_rate"), "search_space.parameters[0].name"),
    "unknown workload option in a space": (_space(name="workload.depth"), "search_space.parameters[0].name"),
    "unknown sampler": ({**WORKLOAD, "sampler": {"name": "annealing"}}, "sampler.name"),
    "text for a number": ({**WORKLOAD, "budget": {"num_trials": "many"}}, "budget.num_trials"),
    "long name": ({**WORKLOAD, "name": "x" * 201}, "name"),
    "tag that is no text": ({**WORKLOAD, "tags": {"a": 1}}, "tags.a"),
    "too many tags": ({**WORKLOAD, "tags": {f"t{i}": "" for i in range(51)}}, "tags"),
    "NUL in a name": ({**WORKLOAD, "name": "a\0b"}, "name"),
    "NUL in a key": ({**WORKLOAD, "tags": {"a\0b": ""}}, "tags['a\\x00b']"),
    "NUL deep inside": ({"workload": {"name": "digits-mlp", "options": {"o": ["\0"]}}}, "workload.options.o[0]"),
}

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
    "a number of 10,000 digits": (b'{"workload": ' + b"1" * 10_000 + b"}", "body"),
}


@pytest.fixture
def contents(database: Database) -> Iterator[tuple[int, int]]:
    """Holds at the end of a test that no job and no event was added."""

    def counts() -> tuple[int, int]:
        with database.reading() as session:
            return len(JobRepository(session).page(limit=100)), EventRepository(session).last_id()

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
    assert value(_space(low=1, high=0.1)) == 1
    assert value({**WORKLOAD, "search_space": "x" * 500}) is None


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


def _app_with(database: Database, path: str, endpoint: Any) -> FastAPI:
    app = create_app(Settings(allowed_hosts=("test",)), database)
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
    job = JobRepository(session).page(limit=1)[0]
    job.lease_worker_id = "worker_nope"
    return {"done": True}


def test_a_commit_that_fails_is_not_answered_with_success(database: Database) -> None:
    job_id = submit(database)
    answer = _post(_app_with(database, "/fails", _fails_at_commit), "/fails")
    assert answer.status_code == 500
    with database.reading() as session:
        assert JobRepository(session).get(job_id).lease_worker_id is None
        assert WorkerRepository(session).alive_since(NOW) == 0
