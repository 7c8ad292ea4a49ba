"""OpenAPI describes everything with examples that hold, and its page needs nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from search_spaces import presets
from service.api import examples
from service.api.schemas import events, jobs, trials
from service.api.schemas.catalogue import SearchSpaceRead, WorkloadRead
from service.api.schemas.common import Problem
from service.api.schemas.insights import JobHealth
from service.api.schemas.many_jobs import JobOutcomes
from service.api.schemas.recommendations import RecommendationRead
from service.dashboard.rendering import HEADERS
from service.server.app import create_app
from service.settings import Settings
from tests.service.access.test_every_route import addresses

FRAGMENT = re.compile(
    r"(How|What|When|Where|Whether|Which|Who|Whose|Why|As|By|For|From|Its|Of|Over|That|Their|The same|Those|To)\b"
)
"""Beginnings of descriptions that ask, or go on from the name of what they describe."""


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def _operations(openapi: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


@pytest.mark.slow
def test_every_operation_is_described_and_tagged(openapi: dict[str, Any]) -> None:
    identifiers = []
    for name, operation in _operations(openapi):
        assert operation["summary"], name
        assert operation["tags"], name
        identifiers.append(operation["operationId"])
    assert len(set(identifiers)) == len(identifiers)


@pytest.mark.slow
def test_every_address_of_the_api_has_the_methods_that_are_described(openapi: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, methods in openapi["paths"].items() for method in methods}
    described.add(("POST", "/v1/nothing"))  # the one that there is not
    paths = {path for _, path in described}
    routes = {(address.method, address.path) for address in addresses()}
    assert {(method, path) for method, path in routes if path in paths or path.startswith("/v1/")} == described


@pytest.mark.slow
def test_every_field_parameter_and_tag_is_described(openapi: dict[str, Any]) -> None:
    wanting = [
        f"{name}.{field}"
        for name, schema in openapi["components"]["schemas"].items()
        for field, told in schema.get("properties", {}).items()
        if not told.get("description")
    ]
    wanting += [
        f"{name}: {parameter['name']}"
        for name, operation in _operations(openapi)
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]
    assert wanting == []


@pytest.mark.slow
def test_answers_that_ask_for_the_same_request_later_say_in_which_header(openapi: dict[str, Any]) -> None:
    later = {
        f"{name}: {status}": answer.get("headers", {})
        for name, operation in _operations(openapi)
        for status, answer in operation["responses"].items()
        if status in ("429", "503")
    }
    assert {name.rpartition(" ")[2] for name in later} == {"429", "503"}
    assert [name for name, headers in later.items() if headers.keys() != {"Retry-After"}] == []


LIMITS = {"items": "maxItems", "additionalProperties": "maxProperties", "patternProperties": "maxProperties"}
"""The limit that a schema needs where it says what each of its parts is."""


def _unbounded(schema: Any, place: str, schemas: dict[str, Any]) -> Iterator[str]:
    """The arrays and objects of a schema that may have any number of parts, each of which may be wrong by itself."""
    if isinstance(schema, list):
        for part in schema:
            yield from _unbounded(part, place, schemas)
    elif isinstance(schema, dict):
        any_value: tuple[object, ...] = (None, True, {})
        for inner, limit in LIMITS.items():
            if schema.get(inner) not in any_value and isinstance(schema[inner], dict) and limit not in schema:
                yield place
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            yield from _unbounded(schemas.pop(name, None), name, schemas)  # once
        for name, part in schema.items():
            if isinstance(part, dict | list):
                yield from _unbounded(part, f"{place}.{name}", schemas)


@pytest.mark.slow
def test_everything_that_a_request_has_many_of_has_a_limit(openapi: dict[str, Any]) -> None:
    bodies = {name: operation["requestBody"] for name, operation in _operations(openapi) if "requestBody" in operation}
    schemas = dict(openapi["components"]["schemas"])
    assert [place for name, body in bodies.items() for place in _unbounded(body["content"], name, schemas)] == []


@pytest.mark.slow
def test_descriptions_of_fields_and_parameters_read_well_alone(openapi: dict[str, Any]) -> None:
    told = [
        (f"{name}.{field}", read["description"])
        for name, schema in openapi["components"]["schemas"].items()
        for field, read in schema.get("properties", {}).items()
    ]
    told += [
        (f"{name}: {parameter['name']}", parameter["description"])
        for name, operation in _operations(openapi)
        for parameter in operation.get("parameters", ())
    ]
    assert [f"{name}: {text}" for name, text in told if FRAGMENT.match(text)] == []
    used = {tag for _, operation in _operations(openapi) for tag in operation["tags"]}
    assert {tag["name"] for tag in openapi["tags"] if tag["description"]} == used
    assert openapi["servers"]
    assert set(openapi["components"]["securitySchemes"]) == {"token", "session"}


@pytest.mark.slow
def test_links_lead_to_operations_that_there_are(openapi: dict[str, Any]) -> None:
    parameters = {
        operation["operationId"]: {parameter["name"] for parameter in operation.get("parameters", ())}
        for _, operation in _operations(openapi)
    }
    links = [
        link
        for _, operation in _operations(openapi)
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]
    assert links
    for link in links:
        assert set(link["parameters"]) <= parameters[link["operationId"]], link


def test_every_request_and_response_has_an_example(openapi: dict[str, Any]) -> None:
    named = openapi["components"]["schemas"]

    def has_example(media: dict[str, Any]) -> bool:
        if "example" in media or "examples" in media:
            return True
        schema = named[media["schema"]["$ref"].rpartition("/")[2]]
        if "examples" in schema:
            return True
        items = schema["properties"]["items"]["items"]  # a page: its items have one
        return "examples" in named[items["$ref"].rpartition("/")[2]]

    for name, operation in _operations(openapi):
        if "/plots/" in name:
            continue  # a Plotly figure: described by Plotly
        for media in operation.get("requestBody", {}).get("content", {}).values():
            assert has_example(media), name
        answered = next(
            operation["responses"][status] for status in ("200", "201", "204") if status in operation["responses"]
        )
        for media in answered.get("content", {}).values():
            assert has_example(media), name


def _schemas(part: Any) -> Iterator[dict[str, Any]]:
    """All that has a type, or alternatives, in a description."""
    if isinstance(part, dict):
        if isinstance(part.get("type"), str) or "anyOf" in part:
            yield part
        for name, one in part.items():
            if name not in ("example", "examples"):
                yield from _schemas(one)
    elif isinstance(part, list):
        for one in part:
            yield from _schemas(one)


def test_generators_of_clients_are_told_what_they_take_wrong_otherwise(openapi: dict[str, Any]) -> None:
    schemas = list(_schemas(openapi))
    formats = {schema["type"]: set[str | None]() for schema in schemas if "type" in schema}
    for schema in schemas:
        if "type" in schema:
            formats[schema["type"]].add(schema.get("format"))
    assert (formats["integer"], formats["number"]) == ({"int64"}, {"double"})
    assert "JsonValue" not in str(openapi)
    for schema in schemas:
        several = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        assert len(several) < 2 or "default" not in schema, schema
        assert not isinstance(schema.get("default"), dict), schema
    named = openapi["components"]["schemas"]
    space = named["JobCreate"]["properties"]["search_space"]
    assert space["anyOf"] == [{"type": "string"}, {"type": "object", "additionalProperties": True}]
    assert space["description"].endswith(" Default: `shampoo`.")
    assert named["WorkloadOptionRead"]["properties"]["default"].keys() == {"description"}  # a field, of any JSON


def test_files_are_bytes_and_tables_of_text_are_text(openapi: dict[str, Any]) -> None:
    def formats(path: str, status: str) -> dict[str, str | None]:
        content = openapi["paths"][path]["get"]["responses"][status]["content"]
        return {media_type: told["schema"].get("format") for media_type, told in content.items()}

    exported = formats("/v1/jobs/{job_id}/export", "200")
    assert exported.pop("text/csv") is None
    assert set(exported.values()) == {"binary"}
    for status in ("200", "206"):
        assert formats("/v1/jobs/{job_id}/weights/{side}", status) == {"application/octet-stream": "binary"}


def test_problems_are_documented_as_problem_json(openapi: dict[str, Any]) -> None:
    for name, operation in _operations(openapi):
        if name.endswith("/plots/{kind}"):
            continue
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert "application/problem+json" in response["content"], (name, status)
        assert "HTTPValidationError" not in str(operation), name


def test_refusals_at_the_door_are_documented(openapi: dict[str, Any]) -> None:
    for name, operation in _operations(openapi):
        assert "421" in operation["responses"], name
        is_probe = name in ("get /healthz", "get /readyz")
        assert [status in operation["responses"] for status in ("401", "403", "429")] == [not is_probe] * 3, name
        assert operation.get("security") == (None if is_probe else [{"token": []}, {"session": []}]), name


def test_examples_of_responses_are_valid() -> None:
    for schema, example in (
        (jobs.JobRead, examples.JOB),
        (jobs.JobEstimate, examples.JOB_ESTIMATE),
        (JobOutcomes, examples.JOB_OUTCOMES),
        (trials.TrialRead, examples.TRIAL),
        (trials.TrialConfigRead, examples.TRIAL_CONFIG_TO_PASTE),
        (trials.MeasurementPage, examples.MEASUREMENTS),
        (events.EventRead, examples.EVENT),
        (RecommendationRead, examples.RECOMMENDATION),
        (WorkloadRead, examples.WORKLOAD),
        (SearchSpaceRead, examples.SEARCH_SPACE),
        (JobHealth, examples.JOB_HEALTH),
        (Problem, examples.PROBLEM),
    ):
        assert schema.model_validate(example).model_dump(mode="json", exclude_unset=True) == example, schema


def test_examples_of_requests_are_accepted(sqlite_http: httpx.Client) -> None:
    for body in (examples.JOB_CREATE, examples.JOB_CREATE_OWN_SPACE):
        answer = sqlite_http.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text


def test_the_catalogue_tells_workloads_and_spaces_that_a_job_can_use(sqlite_http: httpx.Client) -> None:
    workloads = sqlite_http.get("/v1/workloads").json()["items"]
    assert "digits-mlp" in [workload["name"] for workload in workloads]
    spaces = sqlite_http.get("/v1/search-spaces").json()["items"]
    assert {space["name"] for space in spaces} == set(presets())
    space = sqlite_http.get("/v1/search-spaces/shampoo").json()
    body = {"workload": {"name": "digits-mlp"}, "search_space": space["space"]}
    assert sqlite_http.post("/v1/jobs", json=body).status_code == 201
    unknown = sqlite_http.get("/v1/search-spaces/shampo")
    assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (404, "search space")
    assert "known: shampoo, shampoo-sgd" in unknown.json()["detail"]
    assert "did you mean 'shampoo'?" in unknown.json()["detail"]


@pytest.mark.slow
def test_the_documentation_page_loads_only_files_that_the_service_serves(sqlite_http: httpx.Client) -> None:
    answer = sqlite_http.get("/docs")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    page = answer.text
    assert "http://" not in page
    assert "https://" not in page
    links = re.findall(r'(?:src|href)="([^"]+)"', page.partition("</head>")[0])
    assert any(link.endswith(".js") for link in links)
    assert any(link.endswith(".css") for link in links)
    for link in links:
        assert sqlite_http.get(link).status_code == 200, link
    assert sqlite_http.get("/openapi.json").json()["info"]["title"] == "Shampoo tuner"
