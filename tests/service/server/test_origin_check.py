"""Who is let in: requests to the service's own names, and changes that no other site's page asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.types import Message

from service.api import dependencies
from service.api.routers import access, catalogue, events, health, recommendations
from service.api.routers.of_jobs import jobs
from service.api.routers.of_trials import trials
from service.dashboard import log_in
from service.dashboard.job import page as job_page
from service.dashboard.job_list import page as job_list
from service.server.app import create_app
from service.settings import Settings
from service.store.session import Database
from tests.support import event_loop
from tests.support.service.live import running
from tests.support.service.scenarios import submit

ROUTERS = (jobs, trials, events, recommendations, catalogue, access, health, job_list, job_page, log_in)
SETTING = "SHAMPOO_TUNER_ALLOWED_HOSTS"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        problem: dict[str, Any] = json.loads(self.body)
        assert problem["status"] == self.status
        return problem


def _ask(app: FastAPI, method: str, path: str, headers: Iterable[tuple[str, str]]) -> Answer:
    """The answer of `app` to exactly these headers: a client would add a Host, or refuse to send some."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8730),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    async def asked() -> None:
        await app(scope, receive, send)

    event_loop.run(asked())
    start, *rest = sent
    found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in rest))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("origins")


def _app(data_dir: Path, **settings: object) -> FastAPI:
    return create_app(Settings(data_dir=data_dir, **settings))  # type: ignore[arg-type] # pydantic checks them


@pytest.fixture(scope="module")
def app(data_dir: Path) -> FastAPI:
    """The service with the default settings. What is asked of it here needs no database."""
    return _app(data_dir)


def _is_let_in(app: FastAPI, *hosts: str) -> bool:
    answer = _ask(app, "GET", "/healthz", [("Host", host) for host in hosts])
    assert answer.status in (200, 421), answer
    return answer.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/jobs/job_1",
        "/docs",
        "/openapi.json",
        "/static/shared/base.css",
        "/vendor/swagger-ui/swagger-ui.css",
        "/v1/jobs",
        "/v1/jobs/",  # would be redirected, to the name that was asked
        "/v1/events",
        "/v1/jobs/job_1/plots/best-so-far",
        "/healthz",
        "/readyz",
        "/nope",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_a_foreign_host_is_answered_nothing_but_a_problem(app: FastAPI, method: str, path: str) -> None:
    answer = _ask(app, method, path, [("Host", "rebound.example:8730")])
    assert answer.status == 421
    assert "location" not in answer.headers
    problem = answer.problem
    assert "'rebound.example:8730'" in problem["detail"]
    assert SETTING in problem["detail"]
    assert problem["errors"][0]["field"] == "Host"
    assert problem["instance"] == path


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8730",
        "localhost:",
        "LocalHost:1",
        "localhost.:8730",
        "127.0.0.1",
        "127.0.0.1:65535",
        "[::1]",
        "[::1]:8730",
        "[0:0:0:0:0:0:0:1]:8730",
    ],
)
def test_this_machines_own_names_are_let_in(app: FastAPI, host: str) -> None:
    assert _is_let_in(app, host)


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        [" "],
        ["localhost", "localhost"],
        ["rebound.example"],
        ["localhost.example"],
        ["example.localhost"],
        ["127.0.0.1.example"],
        ["localhost.."],
        [".localhost"],
        ["localhost:65536"],
        ["localhost:8730x"],
        ["localhost:-1"],
        ["localhost:8730@rebound.example"],
        ["rebound.example@localhost"],
        ["rebound.example#localhost"],
        ["localhost,rebound.example"],
        ["localhost/"],
        ["http://localhost"],
        ["::1"],
        ["[::1"],
        ["[::1]x"],
        ["[localhost]"],
        ["[127.0.0.1]"],
        ["127.1"],
        ["0.0.0.0:8730"],
        ["10.0.0.7"],
        ["*"],
        ["\xff"],
        ["a" * 100_000],
    ],
    ids=lambda hosts: repr(hosts)[:40],
)
def test_foreign_missing_and_malformed_hosts_are_not_let_in(app: FastAPI, hosts: list[str]) -> None:
    assert not _is_let_in(app, *hosts)
    page = _ask(app, "GET", "/", [*(("Host", host) for host in hosts), ("Accept", "text/html")])
    assert (page.status, page.headers["content-type"]) == (421, "text/html; charset=utf-8")


def test_the_problem_of_a_host_is_short_and_tells_a_missing_one(app: FastAPI) -> None:
    missing = _ask(app, "GET", "/", []).problem
    assert "Host" in missing["detail"]
    assert "value" not in missing["errors"][0]
    assert len(_ask(app, "GET", "/", [("Host", "a" * 100_000)]).body) < 2000


@pytest.mark.parametrize(
    ("settings", "let_in", "refused"),
    [
        ({"host": "10.0.0.7"}, ["10.0.0.7:8730", "localhost"], ["10.0.0.8"]),
        ({"host": "Tuner.lan"}, ["tuner.lan", "TUNER.LAN.:80", "127.0.0.1"], ["lan", "x.tuner.lan"]),
        ({"host": "fd00::7"}, ["[fd00::7]:8730", "[FD00:0::7]"], ["fd00::7"]),
        ({"host": "0.0.0.0"}, ["localhost"], ["0.0.0.0", "10.0.0.7"]),
        ({"host": "::"}, ["[::1]"], ["[::]", "tuner.lan"]),
        ({"host": ""}, ["localhost"], ["tuner.lan"]),
        (
            {"allowed_hosts": "Tuner.Example.org., api, 10.0.0.7,[fd00::7],fd00::8"},
            ["tuner.example.org:443", "api:8730", "10.0.0.7", "[fd00::7]", "[fd00::8]", "localhost"],
            ["example.org", "x.tuner.example.org", "tuner.example.org.rebound.example"],
        ),
        (
            {"allowed_hosts": "*.example.org"},
            ["a.example.org", "A.b.example.org.", "127.0.0.1"],
            ["example.org", "aexample.org", ".example.org", "a.example.org.rebound.example"],
        ),
        ({"allowed_hosts": "*"}, ["rebound.example", "10.0.0.7:1", "[fd00::7]"], ["", "a b", "rebound.example:x"]),
        ({"allowed_hosts": ""}, ["localhost"], ["rebound.example"]),
    ],
    ids=str,
)
def test_settings_say_which_other_hosts_are_let_in(
    data_dir: Path, settings: dict[str, str], let_in: list[str], refused: list[str]
) -> None:
    app = _app(data_dir, **settings)
    assert [host for host in let_in if not _is_let_in(app, host)] == []
    assert [host for host in refused if _is_let_in(app, host)] == []


@pytest.mark.parametrize(
    "value", ["http://tuner.example.org", "tuner:8730", "a b", "*example.org", "a.*.org", "*.", "**", "tüner.example"]
)
def test_a_setting_that_names_no_host_is_refused(value: str) -> None:
    with pytest.raises(ValidationError, match="host"):
        Settings(allowed_hosts=value)  # type: ignore[arg-type] # as the environment has it


def test_other_processes_read_the_same_hosts(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for hosts in ((), ("tuner.example.org", "*.lan", "fd00::7")):
        settings = Settings(data_dir=data_dir, allowed_hosts=hosts)
        for name, value in settings.to_environment().items():
            monkeypatch.setenv(name, value)
        assert Settings() == settings


HOST = ("Host", "localhost:8730")
PROXIED = ("Host", "tuner.example.org")

HARMLESS: dict[str, list[tuple[str, str]]] = {
    "no browser": [HOST],
    "our own page": [HOST, ("Origin", "http://localhost:8730"), ("Sec-Fetch-Site", "same-origin")],
    "our own page, from a browser that sends the origin alone": [HOST, ("Origin", "http://localhost:8730")],
    "a person": [HOST, ("Sec-Fetch-Site", "none")],
    "our own page in IPv6": [("Host", "[::1]:8730"), ("Origin", "http://[::1]:8730")],
    "our own page at port 80": [("Host", "localhost"), ("Origin", "http://localhost")],
    "behind a proxy with TLS": [PROXIED, ("Origin", "https://tuner.example.org"), ("Sec-Fetch-Site", "same-origin")],
    "behind a proxy that names the port": [
        ("Host", "tuner.example.org:443"),
        ("Origin", "https://tuner.example.org"),
        ("Sec-Fetch-Site", "same-origin"),
    ],
    "behind a proxy at another port": [
        ("Host", "tuner.example.org:8443"),
        ("Origin", "https://tuner.example.org:8443"),
    ],
}
HOSTILE: dict[str, list[tuple[str, str]]] = {
    "another site": [HOST, ("Origin", "http://rebound.example"), ("Sec-Fetch-Site", "cross-site")],
    "another site, from a browser that sends the origin alone": [HOST, ("Origin", "http://rebound.example")],
    "another site without an origin": [HOST, ("Sec-Fetch-Site", "cross-site")],
    "a site of the same domain": [PROXIED, ("Sec-Fetch-Site", "same-site")],
    "another port": [HOST, ("Origin", "http://localhost:9999"), ("Sec-Fetch-Site", "same-site")],
    "another port, from a browser that sends the origin alone": [HOST, ("Origin", "http://localhost:9999")],
    "port 80": [HOST, ("Origin", "http://localhost")],
    "TLS at our port's number": [("Host", "localhost:80"), ("Origin", "https://localhost")],
    "another name of this machine": [HOST, ("Origin", "http://127.0.0.1:8730")],
    "a sandboxed frame": [HOST, ("Origin", "null"), ("Sec-Fetch-Site", "cross-site")],
    "a file": [HOST, ("Origin", "null")],
    "an extension": [HOST, ("Origin", "chrome-extension://localhost:8730")],
    "an empty origin": [HOST, ("Origin", "")],
    "an origin without a scheme": [HOST, ("Origin", "localhost:8730")],
    "an origin with a path": [HOST, ("Origin", "http://localhost:8730/x")],
    "two origins": [HOST, ("Origin", "http://localhost:8730"), ("Origin", "http://rebound.example")],
    "a word that no browser sends": [HOST, ("Sec-Fetch-Site", "sideways")],
    "the headers contradict each other": [
        HOST,
        ("Origin", "http://rebound.example"),
        ("Sec-Fetch-Site", "same-origin"),
    ],
}


@pytest.fixture(scope="module")
def proxied(data_dir: Path) -> FastAPI:
    return _app(data_dir, allowed_hosts="tuner.example.org")


@pytest.mark.parametrize("headers", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS"])
def test_a_change_from_our_own_pages_and_from_programs_is_let_in(
    proxied: FastAPI, method: str, headers: list[tuple[str, str]]
) -> None:
    assert _ask(proxied, method, "/healthz", headers).status == 405  # it came as far as the route, which has no such


@pytest.mark.parametrize("headers", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE", "OPTIONS"])
def test_a_change_that_another_origins_page_asks_for_is_refused(
    proxied: FastAPI, method: str, headers: list[tuple[str, str]]
) -> None:
    answer = _ask(proxied, method, "/healthz", headers)
    assert answer.status == 403
    assert answer.problem["errors"][0]["field"] in ("Origin", "Sec-Fetch-Site")


@pytest.mark.parametrize("headers", HOSTILE.values(), ids=HOSTILE)
def test_reading_is_left_to_the_browsers_own_rules(proxied: FastAPI, headers: list[tuple[str, str]]) -> None:
    answer = _ask(proxied, "GET", "/healthz", headers)
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


def _calls(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for found in dependant.dependencies:
        yield from _calls(found)


def test_no_route_that_reads_can_write() -> None:
    routes = [route for module in ROUTERS for route in module.router.routes if isinstance(route, APIRoute)]
    writing = {route.name for route in routes if dependencies._write_session in _calls(route.dependant)}
    assert "cancel_job" in writing
    assert [
        route.path for route in routes if route.name in writing and {"GET", "HEAD"} & (route.methods or set())
    ] == []


def test_a_job_is_cancelled_by_a_program_and_not_by_another_sites_page(sqlite_database: Database) -> None:
    job_id = submit(sqlite_database)
    with running(sqlite_database) as url, httpx.Client(base_url=url, trust_env=False, verify=False) as http:
        path = f"/v1/jobs/{job_id}"
        refused = http.post(f"{path}/cancel", headers={"Origin": "http://rebound.example"})
        assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
        assert http.get(path).json()["state"] == "queued"
        assert http.get(path, headers={"Host": "rebound.example"}).status_code == 421
        assert http.post(f"{path}/cancel").json()["state"] == "cancelled"
