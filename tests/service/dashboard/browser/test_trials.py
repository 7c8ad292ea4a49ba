"""The table of trials in a real browser: sorted, filtered and paged by the server, and at rest under the reader."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from service.domain import TrialState
from service.store.session import Database
from tests.service.dashboard.conftest import open_page, wait_for, wait_until_live
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.stories.jobs import Story

NUMBERS = "() => [...document.querySelectorAll('#trials tbody tr')].map((row) => Number(row.dataset.number))"


@pytest.fixture
def long(sqlite_database: Database) -> Story:
    """A running job with 12 trials that trained, and 230 that were cancelled before they began."""
    now = datetime.now(UTC) - timedelta(minutes=5)
    story = Story(sqlite_database, now=now, budget={"num_trials": 400})
    for number in range(12):
        story.run(number, {9: 0.05}.get(number))
    story.crowd(range(12, 242))
    return story


def _numbers(page: Page) -> list[int]:
    found: list[int] = page.evaluate(NUMBERS)
    return found


def _wait_for_numbers(page: Page, numbers: list[int]) -> None:
    wait_for(page, f"(wanted) => JSON.stringify(({NUMBERS})()) === JSON.stringify(wanted)", numbers)


def test_the_table_of_all_trials_is_found_again_as_it_was_left(page: Page, long: Story) -> None:
    open_page(page, long)
    found = page.locator("#trials-found")
    expect(found).to_contain_text("1–50 of 242 trials")
    assert _numbers(page) == list(range(241, 191, -1))
    # The best of each side stand above all pages.
    best = page.locator("#trials thead tr.best")
    assert best.first.get_attribute("data-number") == "9"
    page.get_by_role("link", name="Last").click()
    _wait_for_numbers(page, list(range(41, -1, -1)))
    expect(best.first).to_be_attached()
    marks = page.locator("#trials .pick").evaluate_all("found => found.map((mark) => mark.getBoundingClientRect().x)")
    assert len(set(marks)) == 1, "in line, whatever the digits of a number"

    # Sorted by a parameter, and again the other way round, by keyboard.
    lr = page.locator("#trials").get_by_role("button", name="lr", exact=True)
    lr.focus()
    page.keyboard.press("Enter")
    expect(page.locator("[id='column-parameter.lr']")).to_have_attribute("aria-sort", "ascending")
    expect(found).to_contain_text("1–50 of 242")
    expect(lr).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[id='column-parameter.lr']")).to_have_attribute("aria-sort", "descending")

    # Filtered by states, by a range and by a parameter.
    filters = page.locator("#trial-filters")
    filters.get_by_label("completed").check()
    filters.get_by_label("pruned").check()
    expect(found).to_contain_text("1–11 of 11 found of 242 trials")
    filters.get_by_text("Parameters", exact=True).click()
    filters.get_by_label("lr from").fill("1e-4")
    filters.get_by_label("lr to").fill("0.02")
    filters.get_by_label("lr to").press("Enter")
    expect(found.get_by_role("button", name="Without the filter lr 0.0001 to 0.02")).to_be_visible()
    filters.get_by_text("Columns", exact=True).click()
    filters.locator(".columns").get_by_label("epsilon").uncheck()
    expect(page.locator("[id='column-parameter.epsilon']")).to_have_count(0)
    left = _numbers(page)
    assert 0 < len(left) < 11
    with page.expect_download() as download:
        found.get_by_role("link", name="those found").click()
    lines = download.value.path().read_text().splitlines()
    assert sorted(int(line.split(",")[0]) for line in lines[1:]) == sorted(left)

    # All of it stands in the address: after a reload, and after a step away and back.
    page.get_by_role("button", name=f"Trial {left[0]}: highlight its curve").click()
    page.reload()
    assert _numbers(page) == left
    expect(filters.get_by_label("lr to")).to_have_value("0.02")
    expect(filters.get_by_label("completed")).to_be_checked()
    expect(page.locator(f"#trial-{left[0]} .pick")).to_have_attribute("aria-pressed", "true")
    page.goto("/")
    page.go_back()
    _wait_for_numbers(page, left)

    # A range that cannot be is told of, and nothing is asked.
    filters.get_by_text("Parameters", exact=True).click()
    upper = filters.get_by_label("lr to")
    upper.fill("1e-9")
    upper.press("Enter")
    assert upper.evaluate("(input) => input.validationMessage") == "must be 1e-4 or more"
    assert _numbers(page) == left
    found.get_by_role("button", name="All trials").click()
    expect(found).to_contain_text("of 242 trials")
    expect(page.locator("[id='column-parameter.epsilon']")).to_have_count(0)


def test_a_link_to_a_trial_leads_to_its_page_and_picks_it(page: Page, long: Story) -> None:
    page.goto(f"/jobs/{long.job_id}?state=completed#trial-100")
    expect(page.locator("#trial-100")).to_be_in_viewport()
    expect(page.locator("#trial-100 .pick")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#trials-found")).to_contain_text("101–150 of 242 trials")
    page.evaluate("location.hash = 'trial-3'")
    expect(page.locator("#trial-3")).to_be_in_viewport()
    expect(page.locator("#trial-3 .pick")).to_have_attribute("aria-pressed", "true")
    page.go_back()
    expect(page.locator("#trial-100 .pick")).to_have_attribute("aria-pressed", "true")


def test_rows_that_are_read_stay_where_they_are_and_a_note_says_what_is_new(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_until_live(page)
    head = page.get_by_role("button", name="validation_loss", exact=True)
    head.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#column-value")).to_have_attribute("aria-sort", "ascending")
    before = _numbers(page)

    # What only follows moves nothing.
    running.begin(5)
    _wait_for_numbers(page, [*before, 5])
    moved = page.locator("#trials-moved")
    expect(moved).to_be_empty()
    running.measure(5, until=200, final=0.01)
    running.end(5, TrialState.COMPLETED)
    expect(page.locator("#trial-5")).to_contain_text("0.01000")
    expect(page.locator("#trial-5")).to_contain_text("completed")
    expect(moved).to_contain_text("The order has changed")
    assert _numbers(page) == [*before, 5]
    expect(head).to_be_focused()
    # The best is in sight all the same.
    expect(page.locator("#trials thead tr.best").first).to_have_attribute("data-number", "5")
    moved.get_by_role("button", name="show").click()
    _wait_for_numbers(page, [5, *before])
    expect(moved).to_be_empty()

    # Away from the table nothing is held.
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.set_viewport_size({"width": 1280, "height": 400})
    running.begin(6)
    running.diverge(6)
    expect(page.locator("#trial-6")).to_contain_text("failed (diverged)")


def test_a_range_brushed_on_an_axis_filters_the_table_and_stands_in_the_address(page: Page, finished: Story) -> None:
    open_page(page, finished)
    section = page.get_by_role("region", name="Parallel coordinates")
    section.scroll_into_view_if_needed()
    lines = page.locator("#parallel")
    expect(lines).to_have_attribute("data-lines", "20")
    assert section.locator(".names span").all_text_contents()[-1] == "validation_loss"

    def brush(axis: int, low: float, high: float) -> None:
        """Drags along an axis, from one part of it to another, 0 at its foot."""
        box = section.locator(f"[data-axis='{axis}'] .grasp").bounding_box()
        assert box is not None
        x = box["x"] + box["width"] / 2
        places = [box["y"] + box["height"] * (1 - part) for part in (low, (low + high) / 2, high)]
        page.mouse.move(x, places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(x, place)
        page.mouse.up()

    section.locator("svg").evaluate("(svg) => svg.scrollIntoView({ block: 'center' })")
    brush(0, 0.3, 0.8)
    found = page.locator("#trials-found")
    expect(found.get_by_role("button", name="Without the filter lr 0.00")).to_be_visible()
    left = len(_numbers(page))
    assert 0 < left < 20
    expect(lines).to_have_attribute("data-lines", str(left))
    expect(page).to_have_url(re.compile(r"parameter=lr%3D0\.00"))
    page.reload()
    section.scroll_into_view_if_needed()
    expect(lines).to_have_attribute("data-lines", str(left))
    expect(section.locator("[data-axis='0'] .chosen")).to_be_visible()
    assert len(_numbers(page)) == left

    assert_accessible(page)

    # The same by keyboard: the ends can be typed, here of the objective; and a picked trial stands out among the lines.
    upper = page.get_by_role("spinbutton", name="validation_loss to")
    upper.fill("0.2")
    upper.press("Enter")
    expect(found.get_by_role("button", name="Without the filter validation_loss up to 0.2")).to_be_visible()
    expect(lines).to_have_attribute("data-lines", str(len(_numbers(page))))
    number = _numbers(page)[0]
    page.get_by_role("button", name=f"Trial {number}: highlight its curve").press("Enter")
    expect(lines).to_have_attribute("data-picked", str(number))

    found.get_by_role("button", name="All trials").click()
    expect(lines).to_have_attribute("data-lines", "20")
    section.get_by_role("button", name="by side").click()
    expect(section.get_by_text("AdamW")).to_be_visible()
    page.reload()
    expect(section.get_by_role("button", name="by side")).to_have_attribute("aria-pressed", "true")


def test_the_config_of_the_picked_trial_is_copied_beside_the_table(page: Page, running: Story) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, running)
    wait_until_live(page)
    bar = page.get_by_role("region", name="Picked trial")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 700})
        expect(bar).to_be_hidden()
        pick = page.locator("#trial-3 .pick")
        pick.focus()
        page.keyboard.press("Enter")
        expect(bar.get_by_role("link")).to_have_attribute("href", f"/jobs/{running.job_id}/trials/3")
        expect(bar).to_be_in_viewport(ratio=1)
        assert_accessible(page, within="#trials-section")

        bar.get_by_role("button", name="Copy as Python").click()
        expect(bar.get_by_role("button", name="Copied")).to_be_visible()
        # Not by that alone: in the second round the other button may still say so.
        wait_for(page, "async () => (await navigator.clipboard.readText()).includes('the config of trial 3')")
        compile(page.evaluate("navigator.clipboard.readText()"), "copied", "exec")
        bar.get_by_role("button", name="Copy as JSON").click()
        wait_for(page, "async () => (await navigator.clipboard.readText()).startsWith('{')")
        copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
        assert (copied["number"], copied["optimizer"]) == (3, "adamw")
        assert copied["config"]["lr"] > 0

        bar.get_by_role("button", name="Let go").click()
        expect(bar).to_be_hidden()
        expect(pick).to_have_attribute("aria-pressed", "false")
        expect(pick).to_be_focused()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_row_that_a_link_leads_to_is_above_the_bar_of_the_picked_trial(
    page: Page, running: Story, width: int
) -> None:
    running.crowd(range(5, 120))
    page.set_viewport_size({"width": width, "height": 700})
    open_page(page, running)
    page.evaluate("location.hash = '#trial-40'")  # it is on the second page
    expect(page.locator("#picked")).to_be_visible()
    row = page.locator("#trial-40")
    expect(row).to_be_in_viewport()
    page.wait_for_timeout(300)  # until it stands still
    assert row.evaluate(
        """(row) => {
          const { left, top, height } = row.getBoundingClientRect();
          return [4, height - 4].every((y) => row.contains(document.elementFromPoint(left + 60, top + y)));
        }"""
    )
