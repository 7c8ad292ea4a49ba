"""The buttons of a job's page in a real browser, and what other users' buttons do to it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, Request, expect

from service.access.caller import Scope
from service.access.tokens import revoke_token
from service.domain import JobState, TrialState
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.leases import release_job
from service.use_cases.steer import cancel_job, change_budget, pause_job, resume_job
from tests.service.dashboard.conftest import Watched, open_page, wait_for, wait_until_live
from tests.support.service.callers import asking, give_token
from tests.support.service.scenarios import add_worker, claim
from tests.support.service.stories.jobs import Story


def test_a_job_is_cancelled_after_a_question(page: Page, running: Story, sqlite_database: Database) -> None:
    running.begin(5)
    open_page(page, running)
    page.locator("#cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel this job?")
    dialog.get_by_role("button", name="Keep it running").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#facts")).to_contain_text("running")
    page.locator("#cancel").click()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#facts")).to_contain_text("running")

    page.locator("#cancel").click()
    dialog.get_by_role("button", name="Cancel job").click()
    expect(page.locator("#facts")).to_contain_text("cancelled")
    expect(page.locator("#trial-5")).to_contain_text("cancelled")
    expect(page.locator("#cancel")).to_have_count(0)
    with sqlite_database.reading() as session:
        assert JobRepository(session).get(running.job_id).state is JobState.CANCELLED

    # What has ended is annotated, put away, cloned and deleted.
    page.get_by_role("button", name="Edit notes").click()
    page.get_by_role("textbox", name="Notes").fill("# why\n<b>so</b>")
    page.get_by_role("button", name="Keep notes").click()
    expect(page.locator("#notes")).to_have_text("# why\n<b>so</b>")
    page.get_by_role("button", name="Archive").click()
    expect(page.locator("#facts")).to_contain_text("archived")
    address = page.url
    page.get_by_role("button", name="Clone", exact=True).click()
    page.get_by_role("textbox", name="Name").fill("the second")
    page.get_by_role("button", name="Clone job").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("the second")
    page.get_by_role("link", name=f"…{running.job_id[-6:]}").click()
    page.wait_for_url(address)  # and for its scripts, without which a button does nothing
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete job").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.request.get(address).status == 404


def test_after_a_dialog_the_keyboard_is_where_it_was_though_the_page_has_changed(
    page: Page, running: Story, sqlite_database: Database
) -> None:
    open_page(page, running)
    wait_until_live(page)
    heading = page.get_by_role("heading", level=1)
    for opener, change, told, focused in (
        ("Cancel job", pause_job, "pausing", page.locator("#cancel")),
        ("Clone", resume_job, "running", page.get_by_role("button", name="Clone", exact=True)),
        ("Cancel job", cancel_job, "cancelled", heading),  # the button is gone
    ):
        page.get_by_role("button", name=opener, exact=True).focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        with sqlite_database.writing() as session:
            change(session, running.job_id, now=datetime.now(UTC))
        expect(page.locator("#facts")).to_contain_text(told)
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(focused).to_be_focused()


def test_a_running_job_is_paused_and_goes_on(page: Page, running: Story, sqlite_database: Database) -> None:
    running.begin(5)
    open_page(page, running)
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("#facts")).to_contain_text("pausing")
    told = page.get_by_role("status").filter(has_text="trials finished")  # for who does not see that the button changes
    expect(told).to_have_text("running, pausing: 5 of 20 trials finished; it can be resumed")
    with sqlite_database.writing() as session:
        release_job(session, running.lease, now=datetime.now(UTC), crash=None)
    expect(page.locator("#facts")).to_contain_text("paused")
    expect(told).to_have_text("paused: 5 of 20 trials finished; it can be resumed")
    expect(page.locator("#trial-5")).to_contain_text("queued")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#facts")).to_contain_text("queued")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


def test_a_finished_job_gets_more_budget_and_the_open_page_follows_it(
    page: Page, finished: Story, sqlite_database: Database
) -> None:
    open_page(page, finished)
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    page.get_by_role("button", name="Change budget").click()
    dialog = page.get_by_role("dialog", name="Change the budget")
    expect(dialog.get_by_label("Trials", exact=True)).to_have_value("20")
    expect(dialog.get_by_label("Device-hours")).to_have_value("")
    dialog.get_by_role("button", name="Leave it").click()
    expect(dialog).to_be_hidden()

    page.get_by_role("button", name="Change budget").click()
    dialog.get_by_label("Trials", exact=True).fill("24")
    dialog.get_by_label("Device-hours").fill("1.5")
    page.keyboard.press("Enter")
    expect(page.locator("#facts")).to_contain_text("queued")
    expect(page.locator("#budget")).to_contain_text("20 of 24 trials finished")
    expect(page.locator("#budget")).to_contain_text("of 1.5 device-hours")
    wait_until_live(page)
    lease = claim(sqlite_database, add_worker(sqlite_database), now=datetime.now(UTC), lease_seconds=600)
    assert lease is not None
    finished.lease = lease
    expect(page.locator("#facts")).to_contain_text("running")
    finished.run(20)
    expect(page.locator("#trial-20")).to_contain_text("completed")


def test_the_page_of_a_finished_job_learns_when_it_is_looked_at_that_the_job_goes_on(
    page: Page, finished: Story, sqlite_database: Database
) -> None:
    open_page(page, finished)
    with sqlite_database.writing() as session:
        change_budget(session, finished.job_id, {"num_trials": 24}, now=datetime.now(UTC))
        resume_job(session, finished.job_id, now=datetime.now(UTC))
    page.evaluate("() => { document.dispatchEvent(new Event('visibilitychange')) }")
    expect(page.locator("#facts")).to_contain_text("queued")
    wait_until_live(page)


@pytest.mark.usefixtures("address")
def test_a_refused_budget_says_why(lenient_page: Page, running: Story) -> None:
    page = lenient_page
    open_page(page, running)
    page.get_by_role("button", name="Change budget").click()
    page.get_by_role("dialog").get_by_label("Trials", exact=True).fill("3")
    page.get_by_role("dialog").get_by_role("button", name="Change budget").click()
    expect(page.get_by_role("alert")).to_contain_text("budget.num_trials: 3 would leave")
    expect(page.locator("#facts")).to_contain_text("running")


def test_what_the_service_does_not_answer_is_said_in_words(lenient_page: Page, address: str, running: Story) -> None:
    page = lenient_page
    open_page(page, running)
    page.route(f"{address}/v1/jobs/*/archive", lambda route: route.abort())
    page.get_by_role("button", name="Archive").click()
    expect(page.locator("#problem")).to_have_text(
        "The service does not answer: what was asked for may have been done, or not."
    )


def test_a_trial_is_stopped_and_another_tried_again_from_the_table_after_a_question(
    page: Page, running: Story, sqlite_database: Database
) -> None:
    running.begin(5)
    running.begin(6)
    running.diverge(6)
    open_page(page, running)
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST":
            sent.append(request.url.rsplit("/trials/")[-1])

    page.on("request", note)
    page.get_by_role("button", name="Stop trial 5").click()
    page.get_by_role("dialog", name="Stop trial 5?").get_by_role("button", name="Stop trial").click()
    expect(page.locator("#trial-5")).to_contain_text("stopping")
    page.get_by_role("button", name="Retry trial 6").click()
    dialog = page.get_by_role("dialog", name="Try trial 6 again?")
    expect(dialog).to_contain_text("up to 200 steps")
    dialog.get_by_role("button", name="Leave it").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Retry trial 6").click()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(page.locator("#trial-6")).to_contain_text("failed (diverged)")
    with sqlite_database.reading() as session:
        assert TrialRepository(session).get(running.job_id, 6).state is TrialState.FAILED

    page.get_by_role("button", name="Retry trial 6").click()
    dialog.get_by_role("button", name="Try again").click()
    expect(page.locator("#trial-6")).to_contain_text("queued")
    expect(page.locator("#facts")).to_contain_text("restarting")
    assert sent == ["5/stop", "6/retry"]
    expect(page.get_by_role("button", name="Retry trial 0")).to_have_count(0)
    assert page.locator("button.pick[aria-pressed=true]").count() == 0


SCOPES = {"ada": Scope.SUBMIT, "an-onlooker-with-a-long-name@example.org": Scope.READ}
"""Of tokens, by their names."""


def test_a_person_logs_in_with_a_token_and_may_what_it_may(
    lenient_page: Page, port: int, running: Story, sqlite_database: Database
) -> None:
    token, of_reader = (give_token(sqlite_database, name, scope) for name, scope in SCOPES.items())
    with asking(sqlite_database, port=port) as asked:
        watched = Watched(lenient_page)
        page = watched.page
        page.goto(f"/jobs/{running.job_id}")
        expect(page).to_have_url(f"{asked.url}/login?next=/jobs/{running.job_id}")
        label, field, button = (page.locator(f".login {part}").bounding_box() for part in ("label", "#token", "button"))
        assert label
        assert field
        assert button
        assert label["y"] + label["height"] + 4 <= field["y"]
        assert field["y"] + field["height"] + 4 <= button["y"]
        page.get_by_label("Token").fill("shampoo_wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("no valid token")
        watched.errors.clear()  # Chromium logs each 401
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"{asked.url}/jobs/{running.job_id}")
        expect(page.locator(".session")).to_contain_text("ada")
        wait_until_live(page)  # the stream, too, goes by the cookie
        page.get_by_role("button", name="Pause", exact=True).click()
        expect(page.locator("#facts")).to_contain_text("pausing")
        assert page.evaluate("document.cookie") == ""
        watched.check(asked.url)
        # Once the token has ended, the open page says so, and leads to where one logs in, and back.
        with sqlite_database.writing() as session:
            revoke_token(session, "ada", now=datetime.now(UTC))
        expect(page.locator("#stream")).to_have_text("session ended")
        page.get_by_role("alert").get_by_role("link", name="Log in again").click()
        expect(page).to_have_url(f"{asked.url}/login?next=%2Fjobs%2F{running.job_id}")
        with sqlite_database.writing() as session:
            cancel_job(session, running.job_id, now=datetime.now(UTC))
        # Of a token that may read alone, the page has no button that would be refused.
        watched.errors.clear()
        page.set_viewport_size({"width": 390, "height": 800})
        page.get_by_label("Token").fill(of_reader)
        page.keyboard.press("Enter")
        expect(page.locator("#trials tbody tr")).to_have_count(5)
        expect(page.locator("#facts")).to_contain_text("cancelled")
        assert page.locator("main button[data-act]:not(dialog *), #change-budget, #cancel").count() == 0
        wait_for(page, "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        watched.check(asked.url)
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(f"{asked.url}/login")
        page.goto(f"/jobs/{running.job_id}")
        expect(page).to_have_url(f"{asked.url}/login?next=/jobs/{running.job_id}")
