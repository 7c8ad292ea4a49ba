"""Every route of the application, found by itself: nobody without a token, nothing beyond a scope, nothing of another
project."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Mount, Route

from service.access.caller import Scope
from service.api import examples
from service.server.app import create_app
from service.settings import Settings
from service.store.session import Database
from tests.support.service.callers import Asked, asking, give_token
from tests.support.service.live import finished_job
from tests.support.service.scenarios import submit

OPEN = {"/healthz", "/readyz", "/login", "/logout"}
FILES = ("/static/", "/vendor/")
STREAMS = {"/v1/events", "/v1/jobs/{job_id}/events"}
VALUES = {
    "number": "0",
    "kind": "best-so-far",
    "name": "shampoo",
    "checkpoint": "step-00000040",
    "file": "manifest.json",
    "side": "recommended",
    "webhook_id": "hook_of_nobody",
    "delivery_id": "msg_of_nobody",
    "sha256": 64 * "0",
    "prefix": "000000000000",
    "recommendation_id": "rec_of_nobody",
    "format": "yaml",
}
"""Of parameters in paths that lead to something which belongs to a job, or to no project. A new one must come here, and
what it names must be of the caller's project or of none."""
NEED_A_QUERY = {
    "/v1/jobs/{job_id}/trials/{number}/decision",
    "/v1/jobs/{job_id}/plots/slice",
    "/v1/jobs/{job_id}/plots/map",
}
"""Paths that are refused without a parameter in the query, whoever may see the job."""
ABSENT = "job_01KAJ5M0T3XQ8Z7V6R5N4M3K2J"


@dataclass(frozen=True, slots=True)
class Address:
    method: str
    path: str

    def of(self, job_id: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: {"job_id": job_id, **VALUES}[found[1]], self.path)

    @property
    def is_open(self) -> bool:
        return self.path in OPEN or self.path.startswith(FILES)

    @property
    def names_job(self) -> bool:
        return "{job_id}" in self.path


ASK = (Address("POST", "/v1/recommendations"), Address("POST", "/recommendations/untuned"))
"""Questions that are posted, because they are long."""


def _addresses(routes: Sequence[BaseRoute]) -> Iterator[Address]:
    for route in routes:
        inner = getattr(route, "original_router", None)  # FastAPI's, of a router that was included
        if inner is not None:
            yield from _addresses(inner.routes)
        elif isinstance(route, Mount):
            yield Address("GET", f"{route.path}/x")
        else:
            assert isinstance(route, Route | APIRoute), f"a kind of route that this test does not know: {route!r}"
            yield from (Address(method, route.path) for method in sorted(route.methods or ()))


@cache
def addresses() -> list[Address]:
    """Of all routes of the application, and of one that there is not."""
    app = create_app(Settings(data_dir=Path("unused"), database_url="sqlite://"))
    found = [*_addresses(app.routes), Address("GET", "/nothing"), Address("POST", "/v1/nothing")]
    assert len(found) > 25
    return found


DECIDED_BEFOREHAND = pytest.mark.parametrize("database_kind", ["sqlite"])
"""Marks what `Guard` decides by a token alone, before any route asks the database."""
GUARDED = [address for address in addresses() if not address.is_open]


@dataclass(frozen=True, slots=True)
class World:
    """A service with a job in each of two projects, and tokens."""

    asked: Asked
    job: str
    """Of project `ours`: it succeeded, and has a recommendation."""
    other_job: str
    ours: str
    theirs: str
    read: str
    code: str
    submit: str
    metrics: str
    admin: str


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    tokens = {
        "ours": give_token(database, "ours", Scope.SUBMIT, project="ours"),
        "theirs": give_token(database, "theirs", Scope.SUBMIT, Scope.CODE, project="theirs"),
        "read": give_token(database, "read", Scope.READ, project="ours"),
        "code": give_token(database, "code", Scope.CODE, project="ours"),
        "submit": give_token(database, "submit", Scope.SUBMIT, project="ours"),
        "metrics": give_token(database, "metrics", Scope.METRICS),
        "admin": give_token(database, "admin", Scope.ADMIN),
    }
    job = finished_job(database, project="ours", model="our-secret-model")
    other_job = submit(database, project="theirs", model="their-model")
    with asking(database) as asked:
        yield World(asked, job, other_job, **tokens)


def _ask(http: httpx.Client, address: Address, job_id: str, **headers: str) -> httpx.Response:
    """The answer; of a stream, its beginning alone."""
    request = http.build_request(address.method, address.of(job_id), headers=headers)
    answer = http.send(request, stream=True)
    if answer.is_success and answer.headers.get("content-type", "").startswith("text/event-stream"):
        answer.close()
        return answer
    answer.read()
    return answer


@pytest.mark.slow
@DECIDED_BEFOREHAND
def test_without_a_valid_token_every_route_but_probes_files_and_log_in_is_closed(world: World) -> None:
    forged = world.ours[:-1] + ("0" if world.ours[-1] != "0" else "1")
    # One piece of code reads the token of every route: that it is asked for shows with none and with one that is almost
    # right, and what it thinks of the other texts on one route of JSON, one of HTML and one that there is not.
    each_kind = [Address("GET", "/v1/jobs"), Address("GET", "/"), Address("POST", "/v1/nothing")]
    assert set(each_kind) <= set(GUARDED)
    others = ["shampoo_x", world.ours + "0", world.ours.upper(), "é"]
    for token, asked_of in [(None, GUARDED), (forged, GUARDED), *((text, each_kind) for text in others)]:
        with world.asked.client() as http:
            if token is not None:
                http.headers.update({b"Authorization": f"Bearer {token}".encode()})
            for address in asked_of:
                answer = _ask(http, address, world.job)
                assert answer.status_code == 401, (token, address, answer.text)
                assert answer.headers["www-authenticate"].startswith("Bearer realm="), address
                assert ("invalid_token" in answer.headers["www-authenticate"]) is (token is not None)
                assert world.job not in answer.text.replace(f'"instance":"{address.of(world.job)}"', "")
    with world.asked.client() as http:
        http.headers["Authorization"] = f"Basic {world.ours}"
        assert http.get("/v1/jobs").status_code == 401
        http.headers["Authorization"] = world.ours
        assert http.get("/v1/jobs").status_code == 401
        del http.headers["Authorization"]
        assert {path: http.get(path).status_code for path in OPEN - {"/logout"}} == dict.fromkeys(
            OPEN - {"/logout"}, 200
        )
        # A person is led to the page for it, and back.
        page = http.get("/?state=queued", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=/%3Fstate%3Dqueued")
        assert http.get("/v1/jobs", headers={"Accept": "text/html"}).status_code == 401


@pytest.mark.slow
@DECIDED_BEFOREHAND
def test_a_scope_that_is_missing_is_named(world: World) -> None:
    with (
        world.asked.client(world.code) as code,
        world.asked.client(world.read) as read,
        world.asked.client(world.submit) as submitting,
        world.asked.client(world.metrics) as monitor,
    ):
        for address in GUARDED:
            is_admin, reads = address.path.startswith("/v1/admin/"), address.method in ("GET", "HEAD") or address in ASK
            is_for_monitors = address.path == "/metrics"
            needed = "admin" if is_admin else "metrics" if is_for_monitors else "read" if reads else "submit"
            is_special = is_admin or is_for_monitors
            answers = [
                (code, True),
                (read, is_special or not reads),
                (submitting, is_special),
                (monitor, not is_for_monitors),
            ]
            for http, is_refused in answers:
                answer = _ask(http, address, world.job, **{"Content-Type": "application/json"})
                assert (answer.status_code == 403) is is_refused, (address, answer.text)
                if is_refused and address.method != "HEAD":
                    assert answer.json()["type"] == "urn:shampoo-tuner:problem:scope-missing"
                    assert f"scope {needed!r}" in answer.json()["detail"]


@pytest.mark.processes  # the model is built for the prediction of a trial
def test_what_belongs_to_a_job_of_another_project_is_not_there(world: World) -> None:
    named = [address for address in GUARDED if address.names_job]
    assert len(named) >= 15
    with world.asked.client(world.theirs) as theirs, world.asked.client(world.ours) as ours:
        for address in named:
            refused, absent = (_ask(theirs, address, job_id) for job_id in (world.job, ABSENT))
            assert refused.status_code == absent.status_code == 404, (address, refused.text)
            # To the letter what is answered where there is no such job at all.
            assert refused.text == absent.text.replace(ABSENT, world.job), address
            # The checkpoints of trials go with their ends, too few trials have no insights, and what was not confirmed
            # has no weights.
            has_none = address.path.endswith("/insights") or "{checkpoint}" in address.path or "{side}" in address.path
            if address.method in ("GET", "HEAD") and not has_none:
                expected = (422,) if address.path in NEED_A_QUERY else (200, 204)
                assert _ask(ours, address, world.job).status_code in expected, address


@pytest.mark.slow
def test_no_list_tells_of_another_project(world: World) -> None:
    marks = (world.job, world.job[-6:], "our-secret-model", '"owner":"ours"')
    with world.asked.client(world.theirs) as theirs, world.asked.client(world.admin) as admin:
        for address in GUARDED:
            if address.names_job or address.method != "GET" or address.path in STREAMS:
                continue
            if address.path == "/metrics" or "/admin/" in address.path:
                continue
            for query in ("", "?workload=digits-mlp", "?model=asked-of-nobody"):
                text = theirs.get(address.of("") + query).text
                assert not any(mark in text for mark in marks), (address, query, text[:500])
            # Who asks for a name of theirs gets to the letter what he gets for one that nothing has.
            guessed = theirs.get(address.of("") + "?model=our-secret-model").text
            assert guessed.replace("our-secret-model", "asked-of-nobody") == text, address
        known = theirs.get("/v1/recommendations?model=nothing").json()["detail"]
        assert "(known: their-model)" in known
        assert [job["id"] for job in theirs.get("/v1/jobs").json()["items"]] == [world.other_job]
        assert [job["id"] for job in admin.get("/v1/jobs").json()["items"]] == [world.other_job, world.job]
        assert admin.get(f"/v1/jobs/{world.job}").json()["project"] == "ours"
        assert len(admin.get("/v1/recommendations").json()["items"]) == 1
        assert theirs.get("/v1/recommendations").json() == {"items": [], "elsewhere": []}
        asked = {**examples.UNTUNED_QUESTION, "proxy_job": world.job}
        assert theirs.post("/v1/recommendations", json=asked).status_code == 422
        assert "is not known" in admin.post("/v1/recommendations", json=asked).text  # the job is
        guessed = theirs.post("/v1/recommendations", json={**asked, "proxy_job": "job_none"}).json()["detail"]
        assert theirs.post("/v1/recommendations", json=asked).json()["detail"].replace(world.job, "job_none") == guessed
        with theirs.stream("GET", "/v1/events?after=0") as stream:
            lines = stream.iter_lines()
            events = [next(line for line in lines if line.startswith("data:"))]
        assert world.other_job in events[0]


@pytest.mark.slow
def test_a_job_has_the_project_and_the_owner_of_its_token(world: World) -> None:
    body = {"workload": {"name": "digits-mlp"}, "budget": {"num_trials": 4}}
    made = {}
    for name, token in (("ours", world.ours), ("theirs", world.theirs)):
        with world.asked.client(token) as http:
            answers = [http.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [201, 200]
            first, again = (answer.json() for answer in answers)
            assert first["id"] == again["id"]
            assert (first["project"], first["owner"]) == (name, name)
            assert f"by <b>{name}</b>" in http.get(f"/jobs/{first['id']}").text
            made[name] = first["id"]
            other = "theirs" if name == "ours" else "ours"
            assert made.get(other) != first["id"], "the key is of each project its own"
            assert http.post(f"/v1/jobs/{first['id']}/cancel").status_code == 200
    with world.asked.client(world.admin) as admin:
        entries = admin.get("/v1/admin/audit").json()["items"]
        assert [(entry["actor"], entry["action"], entry["target"], entry["address"]) for entry in entries] == [
            (name, action, made[name], "127.0.0.1")
            for name in ("theirs", "ours")
            for action in ("cancel_job", "create_job")
        ]
        page = admin.get("/v1/admin/audit?page_size=1&actor=ours").json()
        assert [entry["action"] for entry in page["items"]] == ["cancel_job"]
        rest = admin.get("/v1/admin/audit", params={"actor": "ours", "page_token": page["next_page_token"]}).json()
        assert [entry["action"] for entry in rest["items"]] == ["create_job"]
