"""The page of the HTTP API, in the frame and under the headers of the other pages."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.service.dashboard.conftest import wait_for
from tests.support.service.pages.accessible import LOW_CONTRAST


def test_the_documentation_has_the_frame_and_the_colours_of_the_other_pages_and_shows_an_operation(page: Page) -> None:
    page.goto("/docs")
    expect(page.get_by_role("heading", level=1)).to_have_text("HTTP API")
    here = page.get_by_role("navigation", name="Site").get_by_role("link", name="API")
    expect(here).to_have_attribute("aria-current", "page")
    operation = page.locator(".opblock-summary", has_text="Submit a job")
    expect(operation).to_be_visible()
    expect(page.locator("#servers")).to_be_hidden()  # there is one
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), width
        page.emulate_media(color_scheme="light")
        wait_for(page, "() => !document.documentElement.classList.contains('dark-mode')")
        assert page.evaluate(LOW_CONTRAST) == [], width
        page.emulate_media(color_scheme="dark")
        wait_for(page, "() => document.documentElement.classList.contains('dark-mode')")
        assert page.evaluate(LOW_CONTRAST) == [], width
    operation.click()
    expect(page.get_by_role("heading", name="Request body")).to_be_visible()
