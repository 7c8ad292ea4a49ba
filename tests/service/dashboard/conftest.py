"""The service on a free port, and a real Chromium that looks at it."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect, sync_playwright

from service.domain import JobState
from service.store.session import Database
from tests.support.chromium import find_chromium
from tests.support.service import live
from tests.support.service.stories.copies import copied_into, own_database
from tests.support.service.stories.jobs import Story, confirmed_story

TIMEOUT_MS = 180_000
"""Of each wait for a page: three times what the longest test takes on a busy machine, so that one that misses its
moment ends soon."""
REBOUND = "rebound.example"
"""A foreign name whose address is this machine, as an attacker's name server would have it."""
PORTS = range(20_000, 30_000)
"""Below those that Linux gives to whoever asks for any, and above those of Ray."""
CHROMIUM_ARGUMENTS = [
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
    "--process-per-site",
]


@pytest.fixture(scope="session")
def port() -> int:
    """The same for all tests of a process: the browser keeps what it compiled of Plotly, a core-second a page.

    Not one that the system gives to whoever asks for any: between two tests it would give it to others, too.
    """
    for number in range(len(PORTS)):
        port = PORTS[(os.getpid() + number) % len(PORTS)]
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


@pytest.fixture
def address(sqlite_database: Database, tmp_path: Path, port: int, warm_process: None) -> Iterator[str]:  # noqa: ARG001 # the service forks it
    """The service on the test's database."""
    with live.running(sqlite_database, port=port, data_dir=tmp_path / "data") as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for the session. Its absence is a failure: the dashboard is not tested without it."""
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, with what it complained of and asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._note_error)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _note_error(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def check(self, address: str) -> None:
        """Fails if the page logged an error or asked another host for something."""
        assert self.errors == []
        foreign = [url for url in self.requests if urlsplit(url).netloc != urlsplit(address).netloc]
        assert [url for url in foreign if not url.startswith(("data:", "blob:"))] == []


def open_context(browser: Browser, *, base_url: str | None = None, width: int = 1280) -> BrowserContext:
    """A browser's memory of its own, whose pages wait as long as tests do."""
    context = browser.new_context(base_url=base_url, viewport={"width": width, "height": 900})
    context.set_default_timeout(TIMEOUT_MS)
    return context


@pytest.fixture(scope="session")
def profile(browser: Browser, port: int) -> Iterator[BrowserContext]:
    """A browser's memory that all pages of a process share, for what it has compiled.

    Its first page stays open, on an empty document of the site: what was compiled ends with the site's last page.
    """
    address = f"http://127.0.0.1:{port}"
    context = open_context(browser, base_url=address)
    held = context.new_page()
    held.route("**", lambda route: route.fulfill(body="<title>held</title>", content_type="text/html"))
    held.goto(address)
    yield context
    context.close()


@pytest.fixture
def page(profile: BrowserContext, address: str) -> Iterator[Page]:
    """A page at 1280 pixels. After the test: it logged no error, and asked no other host for anything.

    Of the tests before it the browser knows no cookie, no permission and nothing that a page has stored.
    """
    watched = Watched(profile.new_page())
    yield watched.page
    _forget(profile, watched.page, address)
    watched.check(address)


@pytest.fixture
def lenient_page(profile: BrowserContext, port: int, warm_process: None) -> Iterator[Page]:  # noqa: ARG001 # the service forks it
    """A page like `page` that may log errors: the browser itself logs every answer 401, 404 or 422 as one.

    The service need not run: a test may start its own on `port`.
    """
    page = profile.new_page()
    yield page
    _forget(profile, page, f"http://127.0.0.1:{port}")


def _forget(profile: BrowserContext, page: Page, address: str) -> None:
    """Closes this page and those that it opened, and clears what the browser has kept of them."""
    stored = {"origin": address, "storageTypes": "cookies,local_storage,indexeddb,service_workers"}
    profile.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
    for left in profile.pages[1:]:
        left.close()
    profile.clear_permissions()
    profile.unroute_all()


@pytest.fixture
def running(sqlite_database: Database) -> Story:
    """A job with five trials behind it."""
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(seconds=60))
    for number in range(5):
        story.run(number)
    return story


@pytest.fixture(scope="session")
def first_finished(migrated_sqlite_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with own_database(migrated_sqlite_file, tmp_path_factory.mktemp("finished")) as database:
        story = Story(database, now=datetime.now(UTC) - timedelta(hours=2))
        for number in range(20):
            story.run(number, {13: 0.0812}.get(number))
        assert story.finish() is JobState.SUCCEEDED
        yield story


@pytest.fixture(scope="session")
def first_confirmed(migrated_sqlite_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with own_database(migrated_sqlite_file, tmp_path_factory.mktemp("confirmed")) as database:
        yield confirmed_story(database, now=datetime.now(UTC) - timedelta(hours=2))


@pytest.fixture
def finished(first_finished: Story, sqlite_database: Database) -> Story:
    """A job of 20 trials that has ended, with a search that won."""
    return copied_into(sqlite_database, first_finished)


@pytest.fixture
def confirmed(first_confirmed: Story, sqlite_database: Database) -> Story:
    """A job that has ended, whose best configs were trained again with new seeds."""
    return copied_into(sqlite_database, first_confirmed)


def open_page(page: Page, story: Story) -> None:
    """Opens the job's page and waits for its charts.

    `expect` would describe the whole page to us each time that it found none yet.
    """
    page.goto(f"/jobs/{story.job_id}")
    for chart in ("best-so-far", "learning-curves"):
        page.locator(f"#{chart}.js-plotly-plot .plot-container").wait_for(state="attached")


def wait_for_scripts(page: Page, part: Locator) -> None:
    """Waits until a page that a link led to has this part, and its scripts, without which its buttons do nothing."""
    expect(part).to_be_attached()
    page.wait_for_load_state()


def wait_until_live(page: Page) -> None:
    page.locator("#stream", has_text=re.compile("^live$")).wait_for(state="attached")


def wait_for(page: Page, function: str, argument: object = None) -> None:
    """Waits until a function of JavaScript gives true. Playwright's own way evaluates strings: our CSP refuses it."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not page.evaluate(function, argument):
        assert time.monotonic() < deadline, f"still not true: {function} of {argument!r}"
        page.wait_for_timeout(50)


def num_traces(page: Page, chart: str) -> int:
    return int(page.evaluate("id => document.getElementById(id).data.length", chart))


def wait_for_traces(page: Page, chart: str, number: int) -> None:
    wait_for(page, "([id, n]) => document.getElementById(id).data?.length === n", [chart, number])


def drawn_trials(page: Page, chart: str) -> set[int]:
    """The trials that a chart's points tell of."""
    found = page.evaluate("id => document.getElementById(id).data.flatMap((trace) => trace.customdata ?? [])", chart)
    return {number for number in found if number is not None}


def wait_for_drawn(page: Page, chart: str, numbers: set[int]) -> None:
    wait_for(
        page,
        """([id, wanted]) => {
          const traces = document.getElementById(id).data ?? [];
          const drawn = new Set(traces.flatMap((trace) => trace.customdata ?? []).filter((number) => number !== null));
          return drawn.size === wanted.length && wanted.every((number) => drawn.has(number));
        }""",
        [chart, sorted(numbers)],
    )


def hovered(page: Page, chart: str, trace: dict[str, object], point: int = -1) -> str:
    """The text of the label over a point of the trace with this mode and these values of `meta`; with a `number`, over
    a point of that trial.

    The chart looks at the pointer now and then, and may move meanwhile: until it has seen the pointer at the point,
    another label stands, or none. Of a curve and the cross that ends it either may be told of, by its version.
    """
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    place = """const place = (plot) => {
        const same = (trace) => Object.entries(meta).every(([key, value]) => trace.meta[key] === value);
        const curve = plot.data.findIndex((trace) => trace.mode === mode && same(trace));
        const { x, customdata } = plot.data[curve];
        const own = [...x.keys()].filter((index) => number === undefined || customdata[index] === number);
        return [curve, own.at(point)];
      };"""
    find = f"""([id, {{ mode, number, ...meta }}, point]) => {{
      {place}
      const plot = document.getElementById(id), box = plot.getBoundingClientRect();
      const {{ xaxis, yaxis }} = plot._fullLayout;
      const [curve, index] = place(plot), {{ x, y }} = plot.data[curve];
      return [box.left + xaxis._offset + xaxis.d2p(x[index]), box.top + yaxis._offset + yaxis.d2p(y[index])];
    }}"""
    is_over = f"""([id, {{ mode, number, ...meta }}, point]) => {{
      {place}
      const plot = document.getElementById(id), hovered = plot._hoverdata ?? [];
      if (hovered.length !== 1) return false;
      const [curve, index] = place(plot), {{ x, y }} = plot.data[curve];
      if (hovered[0].curveNumber === curve) return hovered[0].pointNumber === index;
      const isThere = hovered[0].x === x[index] && hovered[0].y === y[index];
      return isThere && number !== undefined && hovered[0].customdata === number;
    }}"""
    label = page.locator(f"#{chart} .hoverlayer .hovertext text.nums")
    page.mouse.move(0, 0)
    expect(label).to_have_count(0)

    there = None
    until = time.monotonic() + TIMEOUT_MS / 1000
    while not page.evaluate(is_over, [chart, trace, point]):
        assert time.monotonic() < until, f"no label over {trace} of {chart}"
        was, there = there, page.evaluate(find, [chart, trace, point])
        if there != was:
            page.mouse.move(there[0] - 3, there[1] - 3)
            page.mouse.move(*there)
        page.wait_for_timeout(50)
    expect(label).to_have_count(1)
    return "\n".join(label.locator("tspan.line").all_text_contents() or label.all_text_contents())
