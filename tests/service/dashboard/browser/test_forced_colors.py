"""The pages where the reader's system sets all colours: what a colour or a ground tells is told all the same."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from service.domain import OutputStream
from tests.service.dashboard.conftest import open_page
from tests.support.service.stories.jobs import Story
from tests.support.service.stories.trials import print_lines

NO_GROUND = "rgba(0, 0, 0, 0)"


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
