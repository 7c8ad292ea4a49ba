"""Problems that an open page tells of, for as long as they last."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.service.dashboard.conftest import open_page, wait_for_drawn, wait_until_live
from tests.support.service.stories.jobs import Story

NO_ANSWER = "The service does not answer."


@pytest.mark.usefixtures("address")
def test_a_page_that_could_not_ask_for_its_timeline_says_so_until_it_can(lenient_page: Page, running: Story) -> None:
    page = lenient_page
    open_page(page, running)
    page.locator("#timeline").scroll_into_view_if_needed()
    wait_for_drawn(page, "timeline", set(range(5)))
    wait_until_live(page)
    page.route("**/charts/timeline?*", lambda route: route.abort())
    running.run(5)
    expect(page.locator("#problem")).to_have_text(NO_ANSWER)

    page.unroute_all()
    running.run(6)
    wait_for_drawn(page, "timeline", set(range(7)))
    expect(page.locator("#problem")).to_be_hidden()


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize(
    ("path", "asked", "chart"),
    [
        ("/jobs/{job}", "**/jobs/*/charts/best*", "best-so-far"),
        ("/jobs/{job}/trials/5", "**/plots/curve*", "curve"),
        ("/compare?jobs={job},{other}", "**/compare/best-so-far*", "best-so-far"),
    ],
)
def test_a_chart_that_did_not_come_at_first_comes_with_what_happens_next(
    lenient_page: Page, running: Story, path: str, asked: str, chart: str
) -> None:
    page = lenient_page
    other = Story(running.database, now=running.now)
    other.run(0)
    running.begin(5)
    running.measure(5, until=30)
    page.route(asked, lambda route: route.abort())
    page.goto(path.format(job=running.job_id, other=other.job_id))
    expect(page.locator("#problem")).to_have_text(NO_ANSWER)
    wait_until_live(page)

    page.unroute_all()
    page.request.patch(f"/v1/jobs/{running.job_id}/trials/5", data={"note": "it changes no chart"})
    page.locator(f"#{chart}.js-plotly-plot .plot-container").wait_for(state="attached")
    expect(page.locator("#problem")).to_be_hidden()
