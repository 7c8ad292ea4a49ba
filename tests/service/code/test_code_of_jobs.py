"""Code over HTTP: sent once in a project, named by jobs, kept as long as one does; who may not send it cannot."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.access.caller import Scope
from service.access.projects import Quotas, create_project
from service.client import ApiError, Client
from service.code.archive import MAX_SENT_BYTES, CodeFile, pack
from service.errors import QuotaExceeded
from service.store.repositories import AuditRepository, CodeRepository, ProjectRepository
from service.store.session import Database
from service.use_cases.keeping.code import KEPT_UNUSED, keep_code, remove_unused_code
from tests.support.service.callers import asking, bearer, give_token
from tests.support.service.commands import run
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, submit
from tests.support.waiting import PATIENCE_SECONDS

ARCHIVE = pack({"their.py": CodeFile(b"class Theirs: ...")})
SAMPLER = {"name": "their:Theirs"}


@pytest.fixture
def http(sqlite_database: Database) -> Iterator[httpx.Client]:
    with (
        running(sqlite_database, allow_code=True) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        yield http


def keep(database: Database, archive: Any = ARCHIVE, *, project: str = "default") -> str:
    with database.writing() as session:
        return keep_code(session, archive, project=project, owner=None, now=NOW)[0].sha256


def test_the_same_code_is_sent_and_stored_once(
    sqlite_database: Database, http: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text("x = 1")
    with Client(str(http.base_url)) as client:
        first = client.send_code(tmp_path)
        assert (first.num_files, first.num_bytes) == (1, 5)
        monkeypatch.setattr("service.client.declared.code.PATH", "/v1/nothing-is-posted-here")
        with pytest.raises(ApiError):
            client.send_code(tmp_path)
        monkeypatch.undo()
        assert client.send_code(tmp_path) == first
    again = http.post("/v1/code", content=pack({"model.py": CodeFile(b"x = 1")}).content)
    assert (again.status_code, again.json()["sha256"]) == (200, first.sha256)
    with sqlite_database.reading() as session:
        assert ProjectRepository(session).stored_bytes("default") == first.stored_bytes


def test_code_is_listed_and_removed_once_no_job_names_it(database: Database) -> None:
    ours, theirs = give_token(database, "ours", Scope.SUBMIT), give_token(database, "their", Scope.READ, project="else")
    used, unused = keep(database), keep(database, pack({"a.py": CodeFile(b"")}))
    keep(database, project="else")
    job = submit(database, workload={"name": "digits-mlp"}, sampler=SAMPLER, code={"sha256": used})
    with asking(database, allow_code=True) as asked, Client(asked.url, token=ours) as client:
        assert {each.sha256: each.num_jobs for each in client.code()} == {used: 1, unused: 0}
        with pytest.raises(ApiError, match="1 job names code") as refused:
            client.remove_code(used)
        assert refused.value.status == 409
        arguments = ("--url", asked.url, "--token", ours)
        listed = run("code", "list", *arguments)
        assert f"{used[:12]}  1 file, 17 bytes  1 job  used 2026-03-01" in listed.stdout
        assert run("code", "remove", "nothing", *arguments).exit_code == 2
        assert run("code", "remove", used[:8], *arguments).exit_code == 1
        removed = run("code", "remove", unused[:12], "--json", *arguments)
        assert json.loads(removed.stdout) == {"sha256": unused}
        assert json.loads(run("code", "list", "--json", *arguments).stdout)["items"][0]["num_jobs"] == 1
        with pytest.raises(ApiError) as gone:
            client.remove_code(unused)
        assert gone.value.status == 404
        with asked.client(theirs) as http:
            assert [each["num_jobs"] for each in http.get("/v1/code").json()["items"]] == [0]
            assert http.delete(f"/v1/code/{used}").status_code == 403
        with database.reading() as session:
            entries = AuditRepository(session).page(project=None, limit=9)
        assert [(entry.action, entry.target) for entry in entries] == [("delete_code", unused)]
        client.cancel(job)
        with pytest.raises(ApiError, match="1 job names code"):  # it may be cloned
            client.remove_code(used)


@pytest.mark.slow
def test_of_two_that_are_sent_at_once_the_second_is_counted_with_the_first(database: Database) -> None:
    with database.writing() as session:
        create_project(session, "small", Quotas(max_stored_bytes=1), now=NOW)
    refused: list[QuotaExceeded] = []

    def send_another() -> None:
        try:
            keep(database, pack({"other.py": CodeFile(b"")}), project="small")
        except QuotaExceeded as error:
            refused.append(error)

    other = threading.Thread(target=send_another)
    with database.writing() as session:
        keep_code(session, ARCHIVE, project="small", owner=None, now=NOW)
        other.start()
        other.join(timeout=0.5)
        assert other.is_alive()
    other.join(PATIENCE_SECONDS)
    assert [error.quota for error in refused] == ["max_stored_bytes"]


@pytest.mark.processes
def test_a_module_that_the_sent_directory_lacks_is_missed_there(sqlite_database: Database, http: httpx.Client) -> None:
    files = {f"{name}.py": CodeFile(b"") for name in "abc"}
    sha256 = keep(sqlite_database, pack({**files, "pkg/__init__.py": CodeFile(b""), "data.txt": CodeFile(b"")}))
    for name, missing in (("nowhere:Mine", "nowhere"), ("pkg.models:Mine", "pkg.models")):
        answer = http.post("/v1/jobs", json={"workload": {"name": name}, "code": {"sha256": sha256}})
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert error["field"] == "workload.name"
        there = "in the directory that was sent as the job's code (it has a, b, c, pkg)"
        assert f"there is no module {missing!r} {there}, among the installed packages or in " in error["message"]
    broken = keep(sqlite_database, pack({"model.py": CodeFile(b"x = 1\ndef f(:\n")}))
    answer = http.post("/v1/jobs", json={"workload": {"name": "model:Mine"}, "code": {"sha256": broken}})
    [error] = answer.json()["errors"]
    assert "SyntaxError: invalid syntax (model.py, line 2)" in error["message"]
    assert "__init__.py" not in error["message"]


def test_lists_of_code_come_in_pages(sqlite_database: Database, http: httpx.Client) -> None:
    known = sorted(keep(sqlite_database, pack({f"m{number}.py": CodeFile(b"")})) for number in range(5))
    first = http.get("/v1/code?page_size=3").json()
    rest = http.get("/v1/code", params={"page_token": first["next_page_token"]}).json()
    assert [each["sha256"] for each in first["items"] + rest["items"]] == known
    assert rest["next_page_token"] is None


def test_what_is_no_code_is_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/code", content=b"nothing")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body")
    assert "no gzipped tar archive" in answer.text
    assert http.post("/v1/code", content=bytes(1_500_000)).status_code == 422  # more than any other request may have
    head = f"POST /v1/code HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_SENT_BYTES + 1}\r\n\r\n"
    with socket.create_connection((http.base_url.host, http.base_url.port or 0), PATIENCE_SECONDS) as connection:
        connection.sendall(head.encode())
        assert b" 413 " in connection.recv(100)
    assert http.get(f"/v1/code/{'0' * 64}").status_code == 404
    assert http.get("/v1/code/0").status_code == 422


def test_only_who_may_name_code_may_send_it(sqlite_database: Database) -> None:
    without = give_token(sqlite_database, "ada", Scope.SUBMIT)
    with_code = give_token(sqlite_database, "cod", Scope.SUBMIT, Scope.CODE)
    with asking(sqlite_database, allow_code=True) as asked, asked.client() as http:
        sent = [http.post("/v1/code", content=ARCHIVE.content, headers=bearer(one)) for one in (without, with_code)]
    assert [answer.status_code for answer in sent] == [403, 201]
    assert sent[1].json()["owner"] == "cod"
    with asking(sqlite_database, allow_code=False) as asked, asked.client() as http:
        refused = http.post("/v1/code", content=ARCHIVE.content, headers=bearer(with_code))
    assert (refused.status_code, "--allow-code" in refused.text) == (422, True)


def test_code_is_of_its_project(sqlite_database: Database, http: httpx.Client) -> None:
    sha256 = keep(sqlite_database, project="theirs")
    assert http.get(f"/v1/code/{sha256}").status_code == 404
    job = {"workload": {"name": "their:Theirs"}, "code": {"sha256": sha256}}
    answer = http.post("/v1/jobs", json=job)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "code.sha256")


@pytest.mark.parametrize(
    ("code", "field", "why"),
    [
        ({"sha256": "abc"}, "code.sha256", "pattern"),
        *(
            ({"sha256": "0" * 64, "environment": {name: "1"}}, "code.environment", "is not a job's to set")
            for name in ("LD_PRELOAD", "PYTHONPATH", "SHAMPOO_TUNER_DATA_DIR", "RAY_ADDRESS", "ray_address", "PATH")
        ),
        ({"sha256": "0" * 64, "environment": {"A=B": "1"}}, "code.environment", "must be letters"),
        ({"sha256": "0" * 64, "requirements": ["timm", "--index-url=x"]}, "code.requirements", "(number 2) is no"),
        ({"sha256": "0" * 64, "requirements": ["timm @ https://x.org/y.whl"]}, "code.requirements", "from an index"),
        ({"sha256": "0" * 64, "requirements": ["timm===/../../../tmp/x"]}, "code.requirements", "or a directory"),
    ],
)
def test_a_job_that_would_change_the_service_is_refused(
    http: httpx.Client, code: dict[str, Any], field: str, why: str
) -> None:
    answer = http.post("/v1/jobs", json={"workload": {"name": "their:Theirs"}, "code": code})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert why in error["message"]


def test_code_that_nothing_imports_is_refused(sqlite_database: Database, http: httpx.Client) -> None:
    code = {"sha256": keep(sqlite_database)}
    answer = http.post("/v1/jobs", json={"workload": {"name": "digits-mlp"}, "code": code})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "code")


def test_code_goes_a_day_after_the_last_job_that_names_it(database: Database) -> None:
    sha256 = keep(database)
    unused = keep(database, pack({"other.py": CodeFile(b"")}))
    job = submit(database, sampler=SAMPLER, code={"sha256": sha256})
    later = NOW + KEPT_UNUSED + timedelta(days=1)
    with database.writing() as session:
        assert remove_unused_code(session, now=NOW) == 0
        assert remove_unused_code(session, now=later) == 1
        assert CodeRepository(session).find("default", unused) is None
        assert CodeRepository(session).archive("default", sha256) == ARCHIVE.content
    with database.writing() as session:
        from service.store.repositories import DeletionRepository, JobRepository

        assert JobRepository(session).get(job).specification.code is not None
        DeletionRepository(session).delete_events(job, limit=100)
        DeletionRepository(session).delete_job(job)
    with database.writing() as session:
        assert remove_unused_code(session, now=later) == 1


def test_a_project_that_may_store_no_more_sends_none(sqlite_database: Database) -> None:
    from service.errors import QuotaExceeded

    with sqlite_database.writing() as session:
        create_project(session, "small", Quotas(max_stored_bytes=1), now=NOW)
    keep(sqlite_database, project="small")
    assert keep(sqlite_database, project="small") == ARCHIVE.sha256  # it is there already
    with pytest.raises(QuotaExceeded):
        keep(sqlite_database, pack({"other.py": CodeFile(b"")}), project="small")
