"""The pages elsewhere than on a usual screen: on paper, and where the reader's system sets all colours."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from service.domain import OutputStream
from tests.service.dashboard.conftest import open_page
from tests.support.service.pages.accessible import LOW_CONTRAST
from tests.support.service.stories.jobs import Story
from tests.support.service.stories.trials import print_lines

NO_GROUND = "rgba(0, 0, 0, 0)"
WIDTHS = """() => ["best-so-far", "learning-curves"].map(
  (id) => document.querySelector(`#${id} .main-svg`).getBoundingClientRect().width)"""
TEXT_PIXELS = 646
"""Across a box of an upright sheet of A4, with a browser's usual margins."""


def test_on_paper_figures_have_their_names_and_no_trial_is_cut_off(page: Page, finished: Story) -> None:
    open_page(page, finished)
    page.emulate_media(media="print")
    table = page.get_by_role("table").filter(has=page.locator('tbody tr[data-number="0"]'))
    for name in ("validation_loss", "lr"):
        expect(table.get_by_role("columnheader").get_by_text(name, exact=True)).to_be_visible()
    expect(page.get_by_role("group", name="Sides shown in the chart").get_by_text("AdamW")).to_be_visible()
    expect(page.get_by_role("button", name="Archive")).to_be_hidden()
    region = page.locator("#trials-part > .scroll")
    assert region.evaluate("(element) => element.scrollHeight - element.clientHeight") <= 1
    expect(page.locator("#timeline")).to_be_hidden()


def test_on_paper_no_page_has_anything_to_press(page: Page, finished: Story) -> None:
    page.emulate_media(media="print")
    job = f"/jobs/{finished.job_id}"
    for address in ("/", f"{job}/trials/0", f"/compare?jobs={finished.job_id}", "/recommendations", "/cluster"):
        page.goto(address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        shown = page.locator("nav, :is(button, .button, input):not(.group)").filter(visible=True)
        assert shown.all_inner_texts() == [], address


def test_charts_are_as_wide_as_a_sheet_and_afterwards_as_their_places(page: Page, finished: Story) -> None:
    open_page(page, finished)
    page.evaluate("document.querySelector('#timeline-title').scrollIntoView()")
    page.locator("#timeline.js-plotly-plot .bars").wait_for(state="attached")
    before = page.evaluate(WIDTHS)
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.onPaper = ({WIDTHS})(); }})")
    page.pdf()
    on_paper = page.evaluate("window.onPaper")
    assert max(on_paper) <= TEXT_PIXELS
    assert on_paper != before
    assert page.evaluate(WIDTHS) == before


def test_a_dark_screen_prints_dark_on_light(page: Page, confirmed: Story) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    for address in ("/", f"/jobs/{confirmed.job_id}/trials/8", f"/compare?jobs={confirmed.job_id}", "/recommendations"):
        page.goto(address)
        assert page.evaluate(LOW_CONTRAST) == [], address
    page.emulate_media(media="screen", color_scheme="dark")
    open_page(page, confirmed)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(LOW_CONTRAST) == []
    tick = page.locator("#best-so-far .xtick text").first.evaluate("(text) => getComputedStyle(text).fill")
    assert tick == page.locator("#best-title ~ .choices, #facts").first.evaluate(
        "(part) => getComputedStyle(part).color"
    )


@pytest.mark.usefixtures("confirmed")
def test_the_code_of_a_recommendation_is_on_paper_whole(page: Page) -> None:
    page.goto("/recommendations")
    page.locator(".recommendations .name").click()
    code = page.locator(".copy[open] pre")
    expect(code).to_contain_text("optimizer.step()")
    page.emulate_media(media="print")
    hidden = "(pre) => [pre.scrollHeight - pre.clientHeight, pre.scrollWidth - pre.clientWidth]"
    assert max(code.evaluate(hidden)) <= 1


def test_a_long_table_begins_on_the_first_sheet(page: Page, finished: Story) -> None:
    page.emulate_media(media="print")
    breaks = "(part) => getComputedStyle(part).breakInside"
    trials = ".box:has(#trials-part)"
    for address, box in (
        ("/", ".box.scroll"),
        ("/recommendations", ".box.scroll"),
        (f"/jobs/{finished.job_id}", trials),
    ):
        page.goto(address)
        assert page.locator(box).evaluate(breaks) == "auto"
        assert page.locator(f"{box} tbody tr").first.evaluate(breaks) == "avoid"


def _style(part: Locator, name: str, pseudo: str = "") -> str:
    found = part.evaluate("(element, [name, pseudo]) => getComputedStyle(element, pseudo)[name]", [name, pseudo])
    assert isinstance(found, str)
    return found


def test_states_sides_and_choices_of_a_job_are_told_apart(page: Page, finished: Story) -> None:
    page.emulate_media(forced_colors="active")
    open_page(page, finished)
    ground = _style(page.locator("body"), "backgroundColor")
    assert _style(page.locator("#facts .state"), "backgroundColor", "::before") not in (ground, NO_GROUND)
    lines = page.get_by_role("group", name="Sides shown in the chart").locator(".line")
    expect(lines).to_have_count(2)
    assert len({_style(lines.nth(number), "borderTopColor") for number in range(2)}) == 2
    axis = page.get_by_role("group", name="Horizontal axis")
    pressed, other = (_style(axis.get_by_role("button", name=name), "backgroundColor") for name in ("trials", "time"))
    assert pressed != other
    pick = page.locator("#trials-part .pick").first
    before = _style(pick, "backgroundColor", "::before")
    pick.click()
    assert _style(pick, "backgroundColor", "::before") != before
    page.goto("/")
    nav = page.get_by_role("navigation", name="Site")
    here, elsewhere = (_style(nav.get_by_role("link", name=name), "backgroundColor") for name in ("Jobs", "Cluster"))
    assert here != elsewhere


def test_only_standard_error_is_marked_as_such(page: Page, running: Story) -> None:
    print_lines(running, 0, ["said"])
    print_lines(running, 0, ["complained"], stream=OutputStream.STDERR)
    page.emulate_media(forced_colors="active")
    page.goto(f"/jobs/{running.job_id}/trials/0/logs")
    ground = _style(page.locator("body"), "backgroundColor")
    assert _style(page.locator('.printed[data-stream="stdout"]'), "borderLeftColor") == ground
    assert _style(page.locator('.printed[data-stream="stderr"]'), "borderLeftColor") != ground
