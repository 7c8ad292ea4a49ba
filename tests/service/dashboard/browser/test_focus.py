"""The keyboard after an action that takes away the button which had it: never at the beginning of the page."""

from __future__ import annotations

from datetime import UTC, datetime

from playwright.sync_api import Page, expect

from service.store.session import Database
from tests.service.dashboard.conftest import open_page, wait_until_live
from tests.support.service.stories.jobs import Story, submit_digits


def _press(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).focus()
    page.keyboard.press("Enter")


def test_after_a_job_is_cancelled_the_keyboard_is_on_its_heading(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_until_live(page)
    _press(page, "Cancel job")
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").press("Enter")
    expect(page.locator("#facts")).to_contain_text("cancelled")
    expect(page.get_by_role("button", name="Cancel job", exact=True)).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_a_button_that_the_page_takes_away_by_itself_leaves_the_keyboard_near(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_until_live(page)
    page.get_by_role("button", name="Cancel job", exact=True).focus()
    running.finish()
    expect(page.get_by_role("button", name="Cancel job", exact=True)).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_what_was_done_to_chosen_jobs_is_told_where_the_keyboard_is(page: Page, sqlite_database: Database) -> None:
    submit_digits(sqlite_database, now=datetime.now(UTC), name="one of them")
    page.goto("/")
    wait_until_live(page)
    page.get_by_label("Choose one of them").check()
    _press(page, "Archive")
    page.get_by_role("dialog").get_by_role("button", name="Archive").press("Enter")
    done = page.locator("#done")
    expect(done).to_contain_text("Archived: 1 job.")
    expect(done).to_be_focused()
    done.get_by_role("button", name="Undo").press("Enter")
    expect(done).to_contain_text("Brought back: 1 job.")
    expect(done).to_be_focused()
    expect(page.get_by_label("Choose one of them")).to_be_visible()
    done.get_by_role("button", name="Close").press("Enter")
    expect(page.get_by_label("Choose all jobs of this page")).to_be_focused()


def test_after_a_dialog_that_followed_another_the_keyboard_is_where_the_first_was_asked_for(page: Page) -> None:
    page.goto("/settings")
    page.wait_for_load_state()
    _press(page, "New webhook")
    page.get_by_label("Address").fill("https://example.org/told")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="The webhook is made").get_by_role("button", name="I have kept it").press("Enter")
    expect(page.locator("#told")).to_have_text("The webhook is made.")
    expect(page.get_by_role("button", name="New webhook")).to_be_focused()


def test_what_the_keyboard_is_on_comes_out_from_behind_the_first_column_of_the_trials(
    page: Page, running: Story
) -> None:
    running.begin(5)
    page.set_viewport_size({"width": 900, "height": 800})
    open_page(page, running)
    region = page.locator("#trials-part > .scroll")
    region.scroll_into_view_if_needed()
    stop = page.get_by_role("button", name="Stop trial 5")
    expect(stop).to_be_visible()
    stop.evaluate(
        """(button) => {
          const region = button.closest(".scroll");
          region.scrollLeft += button.getBoundingClientRect().left - region.getBoundingClientRect().left - 20;
        }"""
    )
    assert region.evaluate("(element) => element.scrollLeft") > 0
    page.get_by_role("button", name="Trial 5: highlight its curve").focus()
    for name in ("5", "Stop trial 5"):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        expect(focused).to_have_accessible_name(name)
        assert focused.evaluate(
            """(element) => {
              const { left, right, top, height } = element.getBoundingClientRect();
              return [left + 1, right - 1].every((x) => document.elementFromPoint(x, top + height / 2) === element);
            }"""
        ), name
