"""A browser that opens a page: when it first showed something, and how long it let nobody click."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.chromium import find_chromium
from tests.support.waiting import LONG_PATIENCE_SECONDS

REST_MS = 1500
"""Time after what was waited for: what a page does late counts, too."""
MAIN_THREAD = "CrRendererMain"
TASK = "ThreadControllerImpl::RunTask"


@dataclass(frozen=True, slots=True)
class Look:
    """The waits of a person."""

    first_paint_milliseconds: float
    longest_task_milliseconds: float
    """The longest task of the page's main thread, by the clock."""
    longest_task_processor_milliseconds: float
    """The most that one of its tasks took of a processor: told as well where others use the machine."""


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextmanager
def empty_profile(browser: Browser) -> Iterator[BrowserContext]:
    """A browser's memory that holds nothing yet."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * LONG_PATIENCE_SECONDS)
    yield context
    context.close()


def look_twice(browser: Browser, address: str, drawn: str) -> tuple[Look, Look]:
    """Opens a page with an empty profile, and once more with scripts and styles in its cache.

    Args:
        drawn: selects what is there when the page has drawn its charts.
    """
    with empty_profile(browser) as context:
        page = context.new_page()
        return _look(page, address, drawn), _look(page, address, drawn)


def _look(page: Page, address: str, drawn: str) -> Look:
    session = page.context.new_cdp_session(page)
    events: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    session.on("Tracing.dataCollected", lambda message: events.extend(message["value"]))
    session.on(
        "Tracing.tracingComplete", lambda message: ends.append(message)
    )  # takes an attribute, as `append` does not
    traced = {"includedCategories": ["toplevel"], "excludedCategories": ["*"]}
    session.send("Tracing.start", {"traceConfig": traced, "transferMode": "ReportEvents"})
    page.goto(address)
    page.wait_for_selector(drawn, state="attached")
    page.wait_for_timeout(REST_MS)
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    session.send("Tracing.end")
    while not ends:
        page.wait_for_timeout(50)
    session.detach()
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == MAIN_THREAD
    }
    tasks = [
        event
        for event in events
        if event["name"] == TASK and "dur" in event and (event["pid"], event["tid"]) in threads  # it has ended
    ]
    return Look(
        float(paint),
        max(task["dur"] for task in tasks) / 1000,
        max(task.get("tdur", 0) for task in tasks) / 1000,
    )
