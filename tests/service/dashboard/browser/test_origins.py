"""Pages of other sites in a real browser: they can do nothing to the service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from service.domain import JobState
from service.store.repositories import JobRepository
from service.store.session import Database
from tests.service.dashboard.conftest import REBOUND, open_context
from tests.support.service.stories.jobs import Story


class _EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>hostile</title>")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the base class calls it so
        pass


@contextmanager
def _another_site() -> Iterator[int]:
    """The port of a server of empty pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EmptyPage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def stranger(browser: Browser) -> Iterator[Page]:
    """A page without the address of the service, whose errors are expected."""
    context = open_context(browser)
    yield context.new_page()
    context.close()


def _state(database: Database, job_id: str) -> JobState:
    with database.reading() as session:
        return JobRepository(session).get(job_id).state


def test_a_page_whose_name_was_pointed_at_the_service_reads_and_changes_nothing(
    stranger: Page, address: str, running: Story, sqlite_database: Database
) -> None:
    rebound = f"http://{REBOUND}:{urlsplit(address).port}"
    for path in ("/", "/v1/jobs", "/v1/jobs/", "/docs", "/static/shared/base.css"):
        answer = stranger.goto(rebound + path)
        assert answer is not None
        assert (answer.status, answer.url) == (421, rebound + path)
        assert "SHAMPOO_TUNER_ALLOWED_HOSTS" in answer.text()
    told = stranger.evaluate(
        """async ([read, cancel, event]) => [
            (await fetch(read)).status,
            (await fetch(cancel, { method: "POST" })).status,
            (await fetch(event)).status,
        ]""",
        ["/v1/jobs", f"/v1/jobs/{running.job_id}/cancel", "/v1/events"],
    )
    assert told == [421, 421, 421]
    assert _state(sqlite_database, running.job_id) is JobState.RUNNING


@pytest.mark.parametrize("name", ["127.0.0.1", REBOUND])
def test_another_origins_page_cancels_no_job(
    stranger: Page, address: str, running: Story, sqlite_database: Database, name: str
) -> None:
    cancel = f"{address}/v1/jobs/{running.job_id}/cancel"
    with _another_site() as port:
        stranger.goto(f"http://{name}:{port}/")
        post = "url => fetch(url, { method: 'POST', mode: 'no-cors' }).then(() => 'answered', () => 'kept from it')"
        assert stranger.evaluate(post, cancel) == "kept from it"
        with stranger.expect_navigation() as navigated:
            stranger.evaluate(
                """url => {
                    const form = document.body.appendChild(document.createElement("form"));
                    form.method = "post";
                    form.action = url;
                    form.submit();
                }""",
                cancel,
            )
        assert navigated.value.status == 403
        assert stranger.url == cancel
    assert _state(sqlite_database, running.job_id) is JobState.RUNNING


def test_another_origins_page_is_given_nothing_that_it_could_show_or_measure(
    stranger: Page, address: str, running: Story
) -> None:
    with _another_site() as port:
        stranger.goto(f"http://127.0.0.1:{port}/")
        given = stranger.evaluate(
            """([address, job]) => {
              const shown = (name, path) => new Promise((done) => {
                const element = document.createElement(name);
                element.onload = () => done(true);
                element.onerror = () => done(false);
                element.src = address + path;
                document.body.append(element);
              });
              const read = (path) => fetch(address + path, { mode: "no-cors" }).then(() => true, () => false);
              const opened = new Promise((done) => {
                const socket = new WebSocket(address.replace("http", "ws") + "/v1/events");
                socket.onopen = () => done(true);
                socket.onerror = () => done(false);
              });
              return Promise.all([
                shown("img", "/static/icon.svg"),
                shown("script", "/static/shared/address.js"),
                read(`/v1/jobs/${job}/export`),
                read("/v1/events"),
                opened,
              ]);
            }""",
            [address, running.job_id],
        )
        assert given == [False] * 5
        frame = stranger.evaluate_handle(
            """(address) => new Promise((done) => {
              const frame = document.createElement("iframe");
              frame.onload = () => done(frame);
              frame.src = address;
              document.body.append(frame);
            })""",
            f"{address}/jobs/{running.job_id}",
        )
        element = frame.as_element()
        assert element is not None
        inside = element.content_frame()
        assert inside is not None
        assert inside.url == "chrome-error://chromewebdata/"
