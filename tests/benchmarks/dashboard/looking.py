"""A browser that opens a page: when it first showed something, and how long it let nobody click."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from playwright.sync_api import Browser, sync_playwright

from tests.support.chromium import find_chromium
from tests.support.waiting import LONG_PATIENCE_SECONDS

WATCH = """() => {
  window.longTasks = [];
  new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((each) => each.duration)))
    .observe({ type: "longtask", buffered: true });
}"""
REST_MS = 1500
"""After what was waited for: what a page does late counts, too."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a person waited for."""

    first_paint_milliseconds: float
    longest_task_milliseconds: float
    """0: none took longer than 50 ms."""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def look(browser: Browser, address: str, drawn: str) -> Look:
    """Opens a page twice with an empty profile, the second time with scripts and styles in its cache; tells of that.

    Args:
        drawn: selects what is there when the page has drawn its charts.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * LONG_PATIENCE_SECONDS)
    page = context.new_page()
    page.add_init_script(f"({WATCH})()")
    for _ in range(2):
        page.goto(address)
        page.wait_for_selector(drawn)
        page.wait_for_timeout(REST_MS)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    tasks = page.evaluate("window.longTasks")
    context.close()
    return Look(float(paint), float(max(tasks, default=0.0)))
