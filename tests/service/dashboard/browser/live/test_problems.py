"""Problems of open pages: told for as long as they last, and made up for afterwards."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from service.domain import TrialState
from service.store.session import Database
from service.use_cases.steer_trials import retry_trial
from tests.service.dashboard.conftest import open_page, wait_for_drawn, wait_until_live
from tests.support.service.stories.jobs import Story
from tests.support.service.stories.trials import print_lines

LOST = "connection lost, trying again"
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


@pytest.mark.usefixtures("address")
def test_what_a_trial_prints_comes_once_there_is_a_place_for_its_stream(lenient_page: Page, running: Story) -> None:
    page = lenient_page
    running.begin(5)
    page.route("**/logs?**", lambda route: route.fulfill(status=503, json={"detail": "others wait already"}))
    page.goto(f"/jobs/{running.job_id}/trials/5/logs")
    expect(page.locator("#stream")).to_have_text(LOST)

    page.unroute_all()
    print_lines(running, 5, ["epoch 1: loss 1.9"])
    expect(page.locator("#output")).to_contain_text("epoch 1: loss 1.9")
    expect(page.locator("#stream")).to_have_text("live")


@pytest.mark.parametrize("page_of", ["", "/logs"])
def test_an_open_page_shows_what_a_trial_prints_after_it_was_tried_again(
    page: Page, sqlite_database: Database, running: Story, page_of: str
) -> None:
    running.begin(5)
    running.end(5, TrialState.PRUNED)
    with page.expect_response(lambda answer: "/logs?" in answer.url) as asked:
        page.goto(f"/jobs/{running.job_id}/trials/5{page_of}")
    assert asked.value.status == 204

    with sqlite_database.writing() as session:
        retry_trial(session, running.job_id, 5, now=running.later(1))
    print_lines(running, 5, ["epoch 1: loss 1.9"])
    expect(page.locator("#output")).to_contain_text("epoch 1: loss 1.9")
