"""Attempts of those who have no token, or no right: to spend the database's time, to name an address, to run code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from service.access.caller import Scope
from service.access.tokens import KnownToken, look_up, new_token_text
from service.store.repositories import AuditRepository
from service.store.session import Database, Session
from service.use_cases.waiting import WorkerFault
from tests.support.service.callers import Asked, asking, bearer, give_token
from tests.support.service.live import running
from tests.support.service.scenarios import submit


@pytest.mark.parametrize("named", ["192.0.2.1", "2001:db8::{:x}"])  # who has one address of IPv6 has all of a network
def test_made_up_tokens_are_looked_up_no_more_often_than_the_rate(
    named: str, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = list[str]()

    def counted(session: Session, prefix: str) -> KnownToken | None:
        looked_up.append(prefix)
        return look_up(session, prefix)

    monkeypatch.setattr("service.api.authentication.look_up", counted)
    token = give_token(sqlite_database, "ada", Scope.READ)
    # Four at once, and then one a second.
    behind_proxy = asking(sqlite_database, requests_per_second=1.0, allowed_hosts="tuner.example.org")
    with behind_proxy as asked, asked.client() as http:
        assert http.get("/v1/jobs", headers=bearer(token)).status_code == 200
        headers = [bearer(str(new_token_text())) | {"X-Forwarded-For": named.format(number)} for number in range(1, 41)]
        statuses = [http.get("/v1/jobs", headers=each).status_code for each in headers]
        assert (statuses[0], statuses[-1]) == (401, 429)
        assert len(looked_up) - 1 <= statuses.count(401) + 1
        assert (
            http.get("/v1/jobs", headers=bearer(token)).status_code == 200
        )  # one that was seen is let in all the same


@pytest.mark.parametrize(
    ("peer", "allowed_hosts", "named", "noted"),
    [
        ("127.0.0.1", "", "6.6.6.6", "127.0.0.1"),  # no proxy can stand in front
        ("127.0.0.1", "tuner.example.org", "6.6.6.6", "6.6.6.6"),
        ("127.0.0.1", "tuner.example.org", "no address", None),
        ("127.0.0.1", "tuner.example.org", "fe80::1%<b>", "fe80::1"),
        ("127.0.0.1", "tuner.example.org", "::ffff:6.6.6.6", "6.6.6.6"),
        ("::ffff:127.0.0.1", "tuner.example.org", "6.6.6.6", "6.6.6.6"),  # as the service bound to `::` sees it
        ("::ffff:9.9.9.9", "tuner.example.org", "6.6.6.6", "9.9.9.9"),
    ],
)
def test_an_address_is_what_a_proxy_may_name_and_nothing_else(
    sqlite_database: Database,
    monkeypatch: pytest.MonkeyPatch,
    peer: str,
    allowed_hosts: str,
    named: str,
    noted: str | None,
) -> None:
    monkeypatch.setattr("uvicorn.protocols.http.h11_impl.get_remote_addr", lambda _: (peer, 50000))
    token, job = give_token(sqlite_database, "ada", Scope.SUBMIT), submit(sqlite_database)
    with asking(sqlite_database, allowed_hosts=allowed_hosts) as asked, asked.client(token) as http:
        assert http.post(f"/v1/jobs/{job}/pause", headers={"X-Forwarded-For": named}).status_code == 200
    with sqlite_database.reading() as session:
        (entry,) = AuditRepository(session).page(project=None, limit=9)
    assert entry.address == noted


def test_the_log_of_the_services_worker_is_told_to_those_alone_who_see_all_projects(sqlite_database: Database) -> None:
    """Its last line may be of any job: the error that ended another project's, with a path and a piece of code."""
    ada = give_token(sqlite_database, "ada", Scope.SUBMIT, project="ours")
    root = give_token(sqlite_database, "root", Scope.ADMIN)
    job = submit(sqlite_database, project="ours")
    fault = WorkerFault("it ended by SIGKILL", "job_of_theirs failed in /srv/theirs/model.py", "its log is there")
    with asking(sqlite_database, why_no_worker=lambda: fault) as asked, asked.client() as http:
        for path in (f"/v1/jobs/{job}", "/v1/jobs", f"/jobs/{job}", "/", "/cluster"):
            told = http.get(path, headers=bearer(ada)).text
            assert "it ended by SIGKILL; its log is there" in told, path
            assert "theirs" not in told, path
            last = "SIGKILL (last in its log: job_of_theirs failed in /srv/theirs/model.py); "
            assert last in http.get(path, headers=bearer(root)).text


@pytest.mark.slow
def test_who_only_reads_is_not_told_all_of_a_webhooks_address(sqlite_database: Database) -> None:
    """The part after the host is what lets anybody post there, of Slack's and many others."""
    ada, bob = (
        give_token(sqlite_database, name, scope) for name, scope in (("ada", Scope.SUBMIT), ("bob", Scope.READ))
    )
    with asking(sqlite_database) as asked, asked.client() as http:
        made = http.post("/v1/webhooks", json={"url": "https://example.org:8443/T0/s3cret?x=1"}, headers=bearer(ada))
        paths = ("/v1/webhooks", f"/v1/webhooks/{made.json()['id']}", "/settings")
        for path in paths:
            assert "s3cret" in http.get(path, headers=bearer(ada)).text
            told = http.get(path, headers=bearer(bob)).text
            assert "https://example.org:8443/..." in told
            assert "s3cret" not in told


@contextmanager
def _open_to_anybody(database: Database) -> Iterator[httpx.Client]:
    with running(database) as url, Asked(url).client() as http:
        yield http


@pytest.mark.slow
def test_code_runs_again_only_where_it_may_be_named(sqlite_database: Database) -> None:
    job = submit(sqlite_database, sampler={"name": "ours_of_test:Ours"})
    again = (f"/v1/jobs/{job}/resume", f"/v1/jobs/{job}/trials/0/retry")
    with _open_to_anybody(sqlite_database) as http:
        assert http.post(f"/v1/jobs/{job}/pause").status_code == 200
        for path in again:
            answer = http.post(path)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "sampler.name")
    without = give_token(sqlite_database, "ada", Scope.SUBMIT)
    with_code = give_token(sqlite_database, "cod", Scope.SUBMIT, Scope.CODE)
    with asking(sqlite_database, allow_code=True) as asked, asked.client() as http:
        assert [http.post(path, headers=bearer(without)).status_code for path in again] == [403, 403]
        assert http.post(again[0], headers=bearer(with_code)).json()["state"] == "queued"
