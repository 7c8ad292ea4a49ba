"""Log-in, sessions and streams: who has logged in may what the token may, from pages of the service, while it holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from service.access.caller import Scope
from service.access.sessions import LIFETIME, cookie_name, signed
from service.access.tokens import revoke_token
from service.store.repositories import AuditRepository, TokenRepository
from service.store.session import Database
from service.use_cases.steer import pause_job
from tests.support.service.callers import Asked, asking, give_token
from tests.support.service.scenarios import Clock, begin_trial, claimed_job, submit
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class World:
    asked: Asked
    database: Database
    clock: Clock
    token: str
    job: str

    @property
    def page(self) -> dict[str, str]:
        """Headers that a browser sends with a change that a page of the service asks for."""
        return {"Origin": self.asked.url, "Sec-Fetch-Site": "same-origin"}

    @property
    def cookie(self) -> str:
        return cookie_name(urlsplit(self.asked.url).netloc)

    def log_in(self, http: httpx.Client, *, next_page: str = "/", **headers: str) -> httpx.Response:
        asked = {**self.page, **headers}
        return http.post("/login", params={"next": next_page}, data={"token": self.token}, headers=asked)

    def revoke(self) -> None:
        with self.database.writing() as session:
            revoke_token(session, "ada", now=self.clock.now)
        self.clock.advance(3)  # what is known of a token holds for two seconds


@pytest.fixture
def world(sqlite_database: Database) -> Iterator[World]:
    clock = Clock()
    token = give_token(sqlite_database, "ada", Scope.SUBMIT, clock=clock)
    job = submit(sqlite_database)
    with asking(sqlite_database, clock=clock) as asked:
        yield World(asked, sqlite_database, clock, token, job)


@pytest.mark.slow
def test_a_session_may_what_its_token_may_and_ends_with_log_out(world: World) -> None:
    with world.asked.client() as http:
        answer = world.log_in(http, next_page=f"/jobs/{world.job}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{world.job}")
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        assert world.token.rpartition("_")[2] not in cookie
        page = http.get(f"/jobs/{world.job}")
        assert (page.status_code, "Log out" in page.text) == (200, True)
        with http.stream("GET", f"/v1/jobs/{world.job}/events") as stream:
            assert stream.status_code == 200
        assert http.post(f"/v1/jobs/{world.job}/pause", headers=world.page).json()["state"] == "paused"
        assert http.get("/v1/admin/audit").status_code == 403
        copied = {"Cookie": f"{world.cookie}={http.cookies[world.cookie]}"}
        out = http.post("/logout", headers=world.page)
        assert (out.status_code, out.headers["location"]) == (303, "/login")
        assert http.get("/v1/jobs").status_code == 401
        assert httpx.get(f"{world.asked.url}/v1/jobs", headers=copied, trust_env=False, verify=False).status_code == 401
        world.clock.advance(0.001)
        world.log_in(http)
        assert http.get("/v1/jobs").status_code == 200
        assert httpx.get(f"{world.asked.url}/v1/jobs", headers=copied, trust_env=False, verify=False).status_code == 401
    with world.database.reading() as session:
        entries = AuditRepository(session).page(project=None, limit=9)
        token = TokenRepository(session).named("ada")
    assert [(entry.actor, entry.action) for entry in entries] == [
        ("ada", action) for action in ("log_in", "log_out", "pause_job", "log_in")
    ]
    assert token is not None
    assert token.last_used_at is not None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://rebound.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_a_change_with_a_cookie_comes_from_a_page_of_the_service(world: World, headers: dict[str, str]) -> None:
    with world.asked.client() as http:
        world.log_in(http)
        for method, path in (
            ("POST", f"/v1/jobs/{world.job}/cancel"),
            ("PATCH", f"/v1/jobs/{world.job}"),
            ("POST", "/v1/jobs"),
        ):
            answer = http.request(method, path, headers=headers, json={"priority": 1})
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:shampoo-tuner:problem:cross-origin")
        job = http.get(f"/v1/jobs/{world.job}").json()
        assert (job["state"], job["priority"]) == ("queued", 0)
        if headers:
            assert http.post("/logout", headers=headers).status_code == 403
            assert http.post("/login", data={"token": world.token}, headers=headers).status_code == 403
    with world.asked.client(world.token) as program:  # which has no pages
        assert program.post(f"/v1/jobs/{world.job}/cancel").status_code == 200


def test_a_session_ends_with_its_token_and_after_its_time(world: World) -> None:
    with world.asked.client() as http:
        world.log_in(http)
        world.clock.advance(LIFETIME.total_seconds() - 5)
        assert http.get("/v1/jobs").status_code == 200
        assert http.get("/session").status_code == 204
        world.clock.advance(10)
        for answer in (http.get("/v1/jobs"), http.get("/session"), http.post("/v1/jobs", headers=world.page)):
            problem = answer.json()
            assert (answer.status_code, problem["type"]) == (401, "urn:shampoo-tuner:problem:session-ended")
            assert (problem["title"], "/login" in problem["detail"]) == ("The session has ended", True)
            assert "Bearer" not in problem["detail"]
        world.log_in(http)
        assert http.get("/v1/jobs").status_code == 200
        world.revoke()
        assert http.get("/v1/jobs").status_code == 401
        refused = world.log_in(http)
        assert (refused.status_code, "no valid token" in refused.text) == (401, True)


def test_services_on_two_ports_of_a_host_have_sessions_apart(world: World) -> None:
    bo = give_token(world.database, "bo", Scope.READ, clock=world.clock)
    with asking(world.database, clock=world.clock) as other, world.asked.client() as http:
        world.log_in(http)
        pages = {"Origin": other.url}
        assert http.post(f"{other.url}/login", data={"token": bo}, headers=pages).status_code == 303
        assert "<b>ada</b>" in http.get("/").text
        assert "<b>bo</b>" in http.get(f"{other.url}/").text
        assert http.post(f"{other.url}/logout", headers=pages).status_code == 303
        assert [http.get(f"{url}/v1/jobs").status_code for url in (world.asked.url, other.url)] == [200, 401]


@pytest.mark.parametrize(
    ("host", "ending"),
    [
        ("localhost:8730", "_8730"),
        ("tuner.example.org", ""),
        ("[::1]:8730", "_8730"),
        ("[::1]", ""),
        ("localhost:", ""),
        ("", ""),
        ("a:1;x=y", ""),
    ],
)
def test_the_cookie_is_named_by_the_port(host: str, ending: str) -> None:
    assert cookie_name(host) == f"shampoo_tuner_session{ending}"


def test_a_forged_cookie_is_none(world: World) -> None:
    prefix = world.token.split("_")[1]
    with world.asked.client() as http:
        cookie = world.log_in(http).cookies[world.cookie]
        http.cookies.clear()
        for forged in ("", "x", cookie[:-1], cookie[1:], signed(prefix, key="00" * 32, now=world.clock.now), prefix):
            answer = http.get("/v1/jobs", headers={"Cookie": f"{world.cookie}={forged}"})
            assert answer.status_code == 401, forged
        assert http.get("/v1/jobs", headers={"Cookie": f"{world.cookie}={cookie}"}).status_code == 200


@pytest.mark.parametrize(
    "next_page",
    [
        "//rebound.example",
        "/\\rebound.example",
        "http://rebound.example",
        "/\t/rebound.example",
        "x",
        "",
        "/é",
        "/a\r\nX: y",
    ],
)
def test_log_in_leads_to_pages_of_the_service_alone(world: World, next_page: str) -> None:
    with world.asked.client() as http:
        answer = world.log_in(http, next_page=next_page)
        assert (answer.status_code, answer.headers["location"], "x" in answer.headers) == (303, "/", False)
        form = http.get("/login", params={"next": next_page}).text
        assert 'action="/login?next=/"' in form


def test_behind_tls_the_cookie_is_for_tls_alone(sqlite_database: Database) -> None:
    token = give_token(sqlite_database, "ada", Scope.READ)
    with asking(sqlite_database, allowed_hosts="tuner.example.org") as asked, asked.client() as http:
        headers = {"Host": "tuner.example.org", "Origin": "https://tuner.example.org"}
        answer = http.post("/login", data={"token": token}, headers=headers)
        assert "Secure" in answer.headers["set-cookie"].split("; ")


@pytest.mark.parametrize(
    "body", [b"", b"token", b"token=%ff", b"\xff", b"a=1&b=2&c=3&d=4&e=5", b"token=" + b"a" * 9999]
)
def test_a_form_that_is_none_is_answered_with_the_form(world: World, body: bytes) -> None:
    with world.asked.client() as http:
        assert http.post("/login", content=body, headers=world.page).status_code == 401


def test_a_stream_ends_when_its_token_does(world: World) -> None:
    with world.asked.client(world.token) as http, http.stream("GET", f"/v1/jobs/{world.job}/events") as stream:
        chunks = stream.iter_bytes()
        next(chunks)
        world.revoke()
        submit(world.database)  # an event, which has streams look
        wait_until(lambda: next(chunks, None) is None, "the end of the stream")


def test_a_stream_ends_with_the_session_that_opened_it(world: World) -> None:
    with world.asked.client() as http:
        world.log_in(http)
        with http.stream("GET", "/v1/events") as stream:
            chunks = stream.iter_bytes()
            next(chunks)
            world.clock.advance(LIFETIME.total_seconds() - 1)
            told = submit(world.database)
            assert told in next(chunks).decode()
            world.clock.advance(2)
            submit(world.database)
            assert next(chunks, None) is None


def test_where_only_this_machine_asks_the_first_token_closes_the_doors(sqlite_database: Database) -> None:
    clock = Clock()
    with asking(sqlite_database, clock=clock, access="auto") as asked, asked.client() as http:
        assert http.get("/v1/jobs").status_code == 200
        assert http.get("/login?next=/docs").headers["location"] == "/docs"
        token = give_token(sqlite_database, "ada", Scope.READ, clock=clock)
        clock.advance(3)
        assert http.get("/v1/jobs").status_code == 401
        with sqlite_database.writing() as session:
            revoke_token(session, "ada", now=clock.now)
        assert http.get("/v1/jobs").status_code == 401, "the doors stay closed"
    with asking(sqlite_database, access="open") as asked, asked.client(token) as http:
        assert http.get("/v1/jobs").status_code == 200


@pytest.mark.slow
def test_a_page_offers_what_its_caller_may(world: World) -> None:
    tokens: dict[str, str] = {scope: give_token(world.database, scope, scope, clock=world.clock) for scope in Scope}
    tokens["both"] = give_token(world.database, "both", Scope.SUBMIT, Scope.CODE, clock=world.clock)
    coded = submit(world.database, sampler={"name": "mine:Mine"})
    with world.database.writing() as session:
        for job in (world.job, coded):
            pause_job(session, job, now=world.clock.now)
    offered = {}
    with asking(world.database, clock=world.clock, allow_code=True) as asked:
        for name, token in tokens.items():
            with asked.client(token) as http:
                pages = [http.get(f"/jobs/{job}") for job in (world.job, coded)]
                offered[name] = [(">Resume<" in page.text, 'id="cancel"' in page.text) for page in pages]
        with asked.client() as http:
            answer = World(asked, world.database, world.clock, tokens[Scope.METRICS], "").log_in(http)
            assert (answer.status_code, "lacks the scope read" in answer.text) == (401, True)
            assert dict(http.cookies) == {}
    nothing = [(False, False)] * 2
    assert offered == {
        Scope.READ: nothing,
        Scope.SUBMIT: [(True, True), (False, True)],
        Scope.CODE: nothing,  # refused: it gives nothing alone
        Scope.METRICS: nothing,
        Scope.ADMIN: [(True, True), (False, True)],
        "both": [(True, True)] * 2,
    }


def test_a_download_breaks_off_when_its_token_ends(sqlite_database: Database, tmp_path: Path) -> None:
    clock = Clock()
    token = give_token(sqlite_database, "ada", Scope.READ, clock=clock)
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0)
    step = tmp_path / lease.job_id / "0" / "step-00000040"
    step.mkdir(parents=True)
    with (step / "rank-00000.safetensors").open("wb") as file:
        file.truncate(2**28)  # more than is sent before anybody reads it
    path = f"/v1/jobs/{lease.job_id}/trials/0/checkpoints/{step.name}/rank-00000.safetensors"
    with (
        asking(sqlite_database, clock=clock, checkpoint_directory=str(tmp_path)) as asked,
        asked.client(token) as http,
        http.stream("GET", path) as answer,
    ):
        pieces = answer.iter_raw()
        next(pieces)
        with sqlite_database.writing() as session:
            revoke_token(session, "ada", now=clock.now)
        clock.advance(3)
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
            deque(pieces, maxlen=0)
        assert http.get(path).status_code == 401
