"""Open pages whose session ends: each says so, leads to a new log-in and back, and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Page, Response, expect

from service.access.caller import Scope
from service.access.tokens import revoke_token
from service.store.session import Database
from tests.service.dashboard.conftest import wait_for_scripts, wait_until_live
from tests.support.service.callers import Asked, asking, give_token
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.stories.jobs import Story


@pytest.fixture
def asked(sqlite_database: Database, port: int) -> Iterator[Asked]:
    with asking(sqlite_database, port=port) as asked:
        yield asked


def _log_in(page: Page, database: Database, address: str, *, name: str = "ada") -> None:
    """Opens a page of the service with a token of this name."""
    token = give_token(database, name, Scope.SUBMIT)
    page.goto(address)
    _enter(page, token)


def _enter(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.keyboard.press("Enter")


def _revoke(database: Database, name: str = "ada") -> None:
    with database.writing() as session:
        revoke_token(session, name, now=datetime.now(UTC))


def _notice(page: Page) -> None:
    """Waits until the page says that its session has ended."""
    notice = page.get_by_role("alert").filter(has_text="Your session has ended.")
    expect(notice).to_be_in_viewport()
    parts = urlsplit(page.url)
    here = parts.path + (f"?{parts.query}" if parts.query else "")
    link = notice.get_by_role("link", name="Log in again")
    expect(link).to_have_attribute("href", f"/login?next={quote(here, safe='')}")


@pytest.mark.parametrize(  # not all at once: browsers allow six connections to a host
    "parts", [("/jobs/{job}", "/jobs/{job}/trials/5", "/"), ("/jobs/{job}/trials/5/logs", "/cluster")]
)
def test_a_live_page_says_that_its_session_has_ended_and_asks_no_more(
    lenient_page: Page, asked: Asked, running: Story, sqlite_database: Database, parts: tuple[str, ...]
) -> None:
    running.begin(5)
    first, *others = [asked.url + part.format(job=running.job_id) for part in parts]
    _log_in(lenient_page, sqlite_database, first)
    wait_until_live(lenient_page)
    pages = [lenient_page]
    for address in others:
        pages.append(lenient_page.context.new_page())
        pages[-1].goto(address)
        wait_until_live(pages[-1])
    for page in pages:
        expect(page.locator("#session-ended")).to_be_hidden()
    _revoke(sqlite_database)
    for page in pages:
        _notice(page)
        expect(page.locator("#stream")).to_have_text("session ended")
        assert_accessible(page)
    later: list[Response] = []
    for page in pages:
        page.on("response", lambda answer: later.append(answer))
    lenient_page.wait_for_timeout(6000)
    assert later == []
    # Logged in again in another tab, a page goes on once somebody comes back to it.
    other = lenient_page.context.new_page()
    _log_in(other, sqlite_database, f"{asked.url}/", name="bo")
    expect(other.get_by_role("heading", level=1)).to_have_text("Jobs")
    for page in pages:
        page.evaluate("() => { dispatchEvent(new Event('focus')) }")
        wait_until_live(page)
        expect(page.locator("#session-ended")).to_be_hidden()


def test_the_page_of_what_has_ended_says_so_too_and_so_does_what_is_done_on_it(
    lenient_page: Page, asked: Asked, finished: Story, sqlite_database: Database
) -> None:
    page = lenient_page
    _log_in(page, sqlite_database, f"{asked.url}/jobs/{finished.job_id}")
    page.locator("#trials-section").scroll_into_view_if_needed()
    _revoke(sqlite_database)
    _notice(page)
    page.get_by_role("button", name="Archive").click()
    expect(page.locator("#problem")).to_have_text("Archive failed: your session has ended")


def test_a_form_outlasts_the_session_that_it_was_typed_in(
    lenient_page: Page, asked: Asked, sqlite_database: Database
) -> None:
    page = lenient_page
    _log_in(page, sqlite_database, f"{asked.url}/jobs/new")
    page.get_by_label("Name", exact=True).fill("long thought over")
    expect(page.locator("#yaml")).to_contain_text("long thought over")
    page.context.clear_cookies()  # as where it has lasted its time, or was ended in another tab
    page.get_by_role("button", name="Submit job").click()
    _notice(page)
    expect(page.locator("#verdict")).to_have_text("Not submitted: your session has ended.")
    expect(page.locator("#problem")).to_be_hidden()
    page.get_by_label("Name", exact=True).fill("longer thought over")
    expect(page.locator("#verdict")).to_have_text("Not known: your session has ended.")
    page.get_by_role("link", name="Log in again").click()
    _enter(page, give_token(sqlite_database, "bo", Scope.SUBMIT))
    expect(page.get_by_label("Name", exact=True)).to_have_value("longer thought over")
    expect(page).to_have_url(f"{asked.url}/jobs/new")


def test_a_dialog_has_the_way_to_a_new_log_in_and_keeps_what_was_typed(
    lenient_page: Page, asked: Asked, sqlite_database: Database
) -> None:
    page = lenient_page
    page.goto(f"{asked.url}/settings")
    _enter(page, give_token(sqlite_database, "ada", Scope.ADMIN))
    new_token = page.get_by_role("button", name="New token")
    wait_for_scripts(page, new_token)
    new_token.click()
    dialog = page.get_by_role("dialog", name="Make a token")
    dialog.get_by_label("Name").fill("bo")
    _revoke(sqlite_database)
    notice = dialog.get_by_role("alert").filter(has_text="Your session has ended.")
    expect(notice).to_be_in_viewport()
    dialog.get_by_role("button", name="Make token").click()
    expect(dialog.get_by_role("button", name="Make token")).to_be_focused()
    assert_accessible(page)
    with page.context.expect_page() as opened:
        notice.get_by_role("link", name="Log in again").click()
    other = opened.value
    _enter(other, give_token(sqlite_database, "eve", Scope.ADMIN, Scope.SUBMIT))
    expect(other.get_by_role("heading", level=1)).to_have_text("Settings")
    page.evaluate("() => { dispatchEvent(new Event('focus')) }")
    expect(notice).to_be_hidden()
    expect(dialog.get_by_label("Name")).to_have_value("bo")
    dialog.get_by_role("button", name="Make token").click()
    expect(page.get_by_role("dialog", name="Token bo")).to_be_visible()


def test_a_dialog_that_is_opened_after_the_session_has_ended_has_it_too(
    lenient_page: Page, asked: Asked, running: Story, sqlite_database: Database
) -> None:
    page = lenient_page
    _log_in(page, sqlite_database, f"{asked.url}/jobs/{running.job_id}")
    wait_until_live(page)
    _revoke(sqlite_database)
    _notice(page)
    page.get_by_role("button", name="Cancel job").click()
    dialog = page.get_by_role("dialog", name="Cancel this job?")
    expect(dialog.get_by_role("link", name="Log in again")).to_be_visible()
    page.keyboard.press("Escape")
    _notice(page)
    expect(dialog).to_be_hidden()


def test_the_messages_of_a_webhook_are_asked_for_no_more(
    lenient_page: Page, asked: Asked, sqlite_database: Database
) -> None:
    page = lenient_page
    token = give_token(sqlite_database, "ada", Scope.SUBMIT)
    with asked.client(token) as http:
        http.post("/v1/webhooks", json={"url": "https://example.org/told"}).raise_for_status()
    page.goto(f"{asked.url}/settings")
    _enter(page, token)
    messages = page.get_by_role("button", name="Messages")
    wait_for_scripts(page, messages)
    messages.click()
    dialog = page.get_by_role("dialog", name="Messages")
    expect(dialog.get_by_text("None was sent yet.")).to_be_visible()
    _revoke(sqlite_database)
    expect(dialog.get_by_role("link", name="Log in again")).to_be_visible()
    later: list[Response] = []
    page.on("response", lambda answer: later.append(answer))
    page.wait_for_timeout(5000)
    assert later == []
