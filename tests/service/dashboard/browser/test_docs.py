"""The page of the HTTP API, under the headers of the other pages."""

from __future__ import annotations

from playwright.sync_api import Page, expect


def test_the_documentation_opens_and_shows_an_operation(page: Page) -> None:
    page.goto("/docs")
    operation = page.locator(".opblock-summary", has_text="Submit a job")
    operation.click()
    expect(page.get_by_role("heading", name="Request body")).to_be_visible()
