"""Tokens and projects over HTTP: what whoever looks after the service may do, and what not even that one may."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from service.access.caller import Scope
from service.access.token_state import TokenState
from service.client import ApiError, AsyncClient, Client
from service.store.repositories import AuditRepository, TokenRepository
from service.store.session import Database
from tests.support import event_loop
from tests.support.service.callers import asking, give_token
from tests.support.service.live import finished_job, running
from tests.support.waiting import wait_until


class Names(BaseModel):
    """A page of a list, of which the names are read."""

    items: list[dict[str, Any]]
    next_page_token: str | None


@pytest.fixture
def admin(database: Database) -> Iterator[Client]:
    token = give_token(database, "root", Scope.ADMIN)
    with asking(database) as asked, Client(asked.url, token=token) as client:
        yield client


@pytest.mark.slow
def test_a_token_is_made_shown_once_used_and_revoked(admin: Client, database: Database) -> None:
    admin.create_project("vision")
    expires = datetime.now(UTC) + timedelta(days=30)
    made = admin.create_token("ada", scopes=[Scope.SUBMIT], project="vision", expires_at=expires)
    assert re.fullmatch(r"shampoo_[0-9a-f]{12}_[0-9a-f]{64}", made.token)
    assert (made.state, made.project, made.scopes) == (TokenState.VALID, "vision", [Scope.SUBMIT])
    with Client(admin.base_url, token=made.token) as ada:
        job = ada.submit({"workload": {"name": "digits-mlp"}, "budget": {"num_trials": 4}})
        assert (job.owner, job.project) == ("ada", "vision")
        listed = {token.name: token for token in admin.tokens()}
        assert list(listed) == ["root", "ada"]
        assert made.token[-64:] not in str(listed)
        assert listed["ada"].expires_at == expires
        with pytest.raises(ApiError, match="is called 'ada'"):
            admin.create_token("ada", scopes=[Scope.READ], expires_at=None)
        assert admin.revoke_token(made.prefix).state is TokenState.REVOKED
        assert admin.revoke_token(made.prefix).state is TokenState.REVOKED

        def is_shut_out() -> bool:
            try:
                ada.job(job.id)
            except ApiError as error:
                return error.status == 401
            return False

        wait_until(is_shut_out, "a revoked token is refused")
    again = admin.create_token("ada", scopes=[Scope.READ], expires_at=None)
    states = {token.prefix: token.state for token in admin.tokens() if token.name == "ada"}
    assert states == {made.prefix: TokenState.REVOKED, again.prefix: TokenState.VALID}
    with database.reading() as session:
        deeds = [
            (entry.actor, entry.action, entry.target) for entry in AuditRepository(session).page(project=None, limit=9)
        ]
    assert deeds[-1] == ("root", "create_project", "vision")
    assert ("root", "create_token", f"ada ({made.prefix})") in deeds
    assert ("root", "revoke_token", f"ada ({made.prefix})") in deeds
    assert [entry.action for entry in admin.audit(actor="ada")] == ["create_job"]


def test_nobody_gives_what_he_has_not(admin: Client, database: Database) -> None:
    with pytest.raises(ApiError) as refused:
        admin.create_token("runner", scopes=[Scope.SUBMIT, Scope.CODE], expires_at=None)
    assert (refused.value.status, "to give the scope 'code'" in str(refused.value)) == (403, True)
    assert [token.name for token in admin.tokens()] == ["root"]
    whole = give_token(database, "whole", Scope.ADMIN, Scope.CODE)
    with Client(admin.base_url, token=whole) as client:
        made = client.create_token("runner", scopes=[Scope.SUBMIT, Scope.CODE], expires_at=None)
        assert set(made.scopes) == {Scope.SUBMIT, Scope.CODE}
        with pytest.raises(ApiError, match="'code' adds to 'submit': alone it allows nothing") as refused:
            client.create_token("codes", scopes=[Scope.READ, Scope.CODE], expires_at=None)
        assert refused.value.status == 422


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"name": "-x"}, 422, "name"),
        ({"name": ""}, 422, "name"),
        ({"scopes": []}, 422, "scopes"),
        ({"scopes": ["root"]}, 422, "scopes[0]"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, 422, "expires_at"),
        ({"expires_at": "2099-01-01T00:00:00"}, 422, "expires_at"),
        ({"expires_at": 4102444800}, 422, "expires_at"),
        ({"project": "visoin"}, 404, "project"),
        ({"secret": "mine"}, 422, "secret"),
    ],
)
def test_a_token_that_cannot_be_is_refused_with_its_field(
    sqlite_database: Database, change: dict[str, object], status: int, field: str
) -> None:
    token = give_token(sqlite_database, "root", Scope.ADMIN)
    body = {"name": "ada", "scopes": ["read"], "expires_at": None, **change}
    with asking(sqlite_database) as asked, asked.client(token) as http:
        answer = http.post("/v1/admin/tokens", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (status, field), answer.text
        missing = http.post("/v1/admin/tokens", json={"name": "ada", "scopes": ["read"]})
        assert missing.json()["errors"][0]["field"] == "expires_at"


def test_projects_have_quotas_and_tell_what_they_take(admin: Client, database: Database) -> None:
    made = admin.create_project("vision", max_running_jobs=2, max_device_hours=500.0)
    assert (made.max_running_jobs, made.max_queued_jobs, made.usage.queued_jobs) == (2, None, 0)
    with pytest.raises(ApiError, match="there is a project 'vision' already"):
        admin.create_project("vision")
    with pytest.raises(ApiError, match="small letters"):
        admin.create_project("Vision")
    changed = admin.change_project("vision", max_device_hours=None, max_stored_bytes=10**12)
    assert (changed.max_running_jobs, changed.max_device_hours, changed.max_stored_bytes) == (2, None, 10**12)
    with pytest.raises(ApiError) as unknown:
        admin.change_project("visoin", max_running_jobs=1)
    assert unknown.value.status == 404
    with pytest.raises(ApiError) as negative:
        admin.change_project("vision", max_running_jobs=-1)
    assert negative.value.status == 422
    finished_job(database, project="vision")
    found = {project.name: project for project in admin.projects()}
    assert list(found) == ["default", "vision"]
    assert found["vision"].usage.device_hours > 0


@pytest.mark.parametrize("kind", ["projects", "tokens"])
def test_lists_come_in_pages(admin: Client, kind: str) -> None:
    for number in range(5):
        admin.create_project(f"p{number}")
        admin.create_token(f"t{number}", scopes=[Scope.READ], expires_at=None)
    names: list[str] = []
    following: dict[str, str] | None = {}
    while following is not None:
        page = admin.read(Names, "GET", f"/v1/admin/{kind}", params={"page_size": 2, **following})
        names += [item["name"] for item in page.items]
        following = None if page.next_page_token is None else {"page_token": page.next_page_token}
    first = "default" if kind == "projects" else "root"
    assert names == [first, *(f"{kind[0]}{number}" for number in range(5))]


def test_the_first_token_closes_the_doors_of_this_machine(sqlite_database: Database) -> None:
    with running(sqlite_database) as url, Client(url) as anybody:
        made = anybody.create_token("first", scopes=[Scope.ADMIN], expires_at=None)

        def is_closed() -> bool:
            try:
                list(anybody.tokens())
            except ApiError as error:
                return error.status == 401
            return False

        wait_until(is_closed, "whoever asks needs a token")
        with Client(url, token=made.token) as first:
            assert [token.name for token in first.tokens()] == ["first"]


def test_the_client_that_awaits_does_the_same(sqlite_database: Database) -> None:
    token = give_token(sqlite_database, "root", Scope.ADMIN)

    async def story(url: str) -> None:
        async with AsyncClient(url, token=token) as client:
            made = await client.create_token("ada", scopes=[Scope.READ], expires_at=None)
            await client.create_project("vision")
            await client.change_project("vision", max_queued_jobs=3)
            assert (await client.revoke_token(made.prefix)).revoked_at is not None
            assert [project.max_queued_jobs async for project in client.projects()] == [None, 3]
            assert len([entry async for entry in client.audit(actor="root")]) == 4

    with asking(sqlite_database) as asked:
        event_loop.run(story(asked.url))


def test_a_service_that_stops_notes_first_that_a_token_was_used(sqlite_database: Database) -> None:
    token = give_token(sqlite_database, "ada", Scope.READ)
    other = Database(sqlite_database.url)
    held = other.engine.connect()
    held.execution_options(sqlite_begin="IMMEDIATE").begin()
    let_go = threading.Timer(1.0, held.close)
    with asking(sqlite_database) as asked, asked.client(token) as client:
        assert client.get("/v1/jobs").status_code == 200  # answered though nobody can write
        let_go.start()
    assert sqlite_database.connections_in_use == 0
    let_go.join()
    other.close()
    with sqlite_database.reading() as session:
        used = TokenRepository(session).named("ada")
        assert used is not None
        assert used.last_used_at is not None
