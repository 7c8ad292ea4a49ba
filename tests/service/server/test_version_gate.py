"""A database that another version migrates under an API that goes on."""

from __future__ import annotations

import httpx
from sqlalchemy import event, text

from service.monitoring.database_version import LOOK_AFTER, WAIT_AFTER
from service.store.migrate import current_revision, downgrade, migrate
from service.store.session import VERSION_TABLE, Database
from tests.support.service.live import running
from tests.support.service.scenarios import Clock, specification, submit
from tests.support.waiting import PATIENCE_SECONDS

NEWER = "the database is of a newer version of shampoo-tuner: revision 9999"


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)


def set_revision(database: Database, revision: str) -> None:
    with database.writing() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"))


def test_every_request_is_refused_once_a_newer_version_has_migrated_the_database(database: Database) -> None:
    clock, revision = Clock(), str(current_revision(database))
    job = specification().model_dump(mode="json", exclude_unset=True)
    job_id = submit(database)
    with running(database, clock=clock) as url, client(url) as http:
        assert http.get("/v1/jobs").status_code == 200
        set_revision(database, "9999")
        clock.advance(WAIT_AFTER.total_seconds())
        for answer in (
            http.get("/v1/jobs"),
            http.post("/v1/jobs", json=job),
            http.get(f"/v1/jobs/{job_id}"),
            http.get(f"/v1/jobs/{job_id}/events"),
            http.get("/v1/workloads"),
            http.get("/v1/nothing"),
            http.get("/metrics"),
            http.get("/readyz"),
        ):
            assert answer.status_code == 503, answer.url
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert answer.headers["Retry-After"]
            detail = answer.json()["detail"].removeprefix("migrations: ")
            assert detail.startswith(f"{NEWER}, and this one knows those up to {revision}. Install that version")
        page = http.get("/", headers={"Accept": "text/html"})
        assert (page.status_code, NEWER in page.text) == (503, True)
        assert http.get("/healthz").status_code == 200
        assert http.get("/static/shared/base.css").status_code == 200

        set_revision(database, revision)
        clock.advance(WAIT_AFTER.total_seconds())
        assert [shown["id"] for shown in http.get("/v1/jobs").json()["items"]] == [job_id]


def test_a_statement_that_fails_has_the_version_looked_at_at_once(database: Database) -> None:
    with running(database, clock=Clock()) as url, client(url) as http:
        assert http.get("/v1/jobs").status_code == 200
        downgrade(database, "0020")
        for answer in (http.get("/v1/jobs"), http.get("/v1/workloads")):
            assert answer.status_code == 503
            assert answer.json()["detail"].startswith("the database is at revision 0020, before ")
            assert answer.json()["detail"].endswith(": run `shampoo-tuner migrate`")
        migrate(database)
        assert http.get("/v1/jobs").status_code == 503  # as was found by that clock


def test_an_error_in_tables_of_this_version_stays_one(sqlite_database: Database) -> None:
    with running(sqlite_database, clock=Clock()) as url, client(url) as http:
        assert http.get("/v1/jobs").status_code == 200
        with sqlite_database.writing() as session:
            session.execute(text("ALTER TABLE jobs RENAME TO no_jobs"))
        answer = http.get("/v1/jobs")
        assert (answer.status_code, answer.json()["detail"]) == (503, "the database is unavailable")


def test_the_version_is_looked_at_once_in_a_while_and_not_for_each_request(sqlite_database: Database) -> None:
    statements: list[str] = []
    clock = Clock()

    def note(*given: object) -> None:
        statements.append(str(given[2]))

    event.listen(sqlite_database.engine, "before_cursor_execute", note)
    try:
        with running(sqlite_database, clock=clock) as url, client(url) as http:
            for _ in range(5):
                for _ in range(10):
                    assert http.get("/v1/jobs").status_code == 200
                clock.advance(LOOK_AFTER.total_seconds())
    finally:
        event.remove(sqlite_database.engine, "before_cursor_execute", note)
    assert sum(f"FROM {VERSION_TABLE}" in statement for statement in statements) == 5


def test_a_stream_ends_in_order(sqlite_database: Database) -> None:
    clock = Clock()
    job_id = submit(sqlite_database)
    with running(sqlite_database, clock=clock) as url, client(url) as http:
        with http.stream("GET", f"/v1/jobs/{job_id}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("retry:")
            set_revision(sqlite_database, "9999")
            clock.advance(WAIT_AFTER.total_seconds())
            submit(sqlite_database)  # has streams look for news
            for line in lines:
                assert "9999" not in line
        assert http.get(f"/v1/jobs/{job_id}/events").status_code == 503
