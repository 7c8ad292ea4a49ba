"""An open page of a job while things happen: what it asks for, and what stays as the reader left it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, Response, Route, expect

from service.api.figures.axes import value_axis
from service.domain import TrialState
from service.evidence.in_words.wording import duration
from service.store.session import Database
from service.use_cases.leases import beat
from tests.service.dashboard.conftest import open_page, wait_for, wait_for_drawn, wait_until_live
from tests.support.service.scenarios import (
    NOW,
    add_worker,
    begin_trial,
    claim,
    claimed_job,
    fork_trial,
    measure,
    measure_curve,
    submit,
)
from tests.support.service.stories.jobs import Story
from tests.support.waiting import PATIENCE_SECONDS, wait_until

SET_HIDDEN = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Answers:
    """Answers that a page has got since."""

    def __init__(self, page: Page) -> None:
        self.seen: list[Response] = []
        page.on("response", lambda answer: self.seen.append(answer))

    def of(self, ending: str) -> list[dict[str, Any]]:
        """The JSON of answers whose path ends so."""
        found = [answer for answer in self.seen if urlsplit(answer.url).path.endswith(ending)]
        return [json.loads(answer.text()) for answer in found if answer.status == 200]


LAST_STEP = """(number) => {
  const { data } = document.getElementById("learning-curves");
  const trace = data.find(({ customdata }) => customdata.includes(number));
  return trace && trace.x[trace.customdata.lastIndexOf(number)];
}"""


def test_durations_moments_and_ticks_are_written_as_the_server_writes_them(
    page: Page, sqlite_database: Database
) -> None:
    open_page(page, Story(sqlite_database, now=NOW))
    lengths = [0, 0.042, 3.44, 9.94, 9.96, 59.4, 59.6, 125, 3599.6, 3840, 86_399, 266_400]
    shown = page.evaluate(
        "async (lengths) => lengths.map((await import('/static/shared/times.js')).duration)",
        lengths,
    )
    assert shown == [duration(seconds) for seconds in lengths]

    [of_server] = page.locator("#facts time").evaluate_all("(found) => found.map((time) => time.outerHTML)")
    told = f"{NOW:%Y-%m-%dT%H:%M:%S}.123456+00:00"
    shown = page.evaluate("async (text) => (await import('/static/shared/times.js')).moment(text).outerHTML", told)
    assert shown == of_server
    assert "UTC" in shown

    ranges = [[2e3, 7e9], [3e-9, 2.0], [0.02, 90.0]]
    shown = page.evaluate(
        """async (ranges) => {
          const { valueAxis } = await import("/static/charts/axis.js");
          return ranges.map((values) => valueAxis(values).ticktext);
        }""",
        ranges,
    )
    assert shown == [value_axis(values)["ticktext"] for values in ranges]
    assert shown[0][-1] == "1e10"  # far from one they have an exponent
    assert shown[1][0] == "1e-9"
    assert "0.01" in shown[2]


def test_an_open_page_asks_for_what_has_come_and_moves_nothing(page: Page, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(seconds=60))
    for number in range(4):
        story.run(number)
    story.begin(4)
    story.measure(4, until=50)
    open_page(page, story)
    wait_for_drawn(page, "learning-curves", set(range(5)))
    wait_until_live(page)
    curves = page.locator("#learning-curves")
    curves.scroll_into_view_if_needed()
    page.evaluate("async () => { await Plotly.relayout('learning-curves', {'yaxis.range': [-1, 0]}) }")
    page.locator("#curve-metric").focus()
    before = page.evaluate("scrollY")
    answers = Answers(page)

    story.measure(4, until=100)
    wait_for(page, f"() => ({LAST_STEP})(4) === 100")
    further = answers.of("/charts/curves")
    assert [answer["whole"] for answer in further] == [False] * len(further)
    assert {number for answer in further for number in answer["curves"]["number"]} == {4}
    assert answers.of("/charts/best") == []
    assert answers.of("/plots/learning-curves") == []
    wholes = [answer for answer in answers.seen if urlsplit(answer.url).path.endswith(story.job_id)]
    assert wholes
    assert {urlsplit(answer.url).query for answer in wholes} == {"parts=true"}

    story.end(4, TrialState.COMPLETED)
    wait_for_drawn(page, "best-so-far", {0, 1, 2, 3, 4})
    [best] = answers.of("/charts/best")
    assert (best["whole"], [row[0] for row in best["finished"]]) == (False, [4])
    assert page.evaluate("scrollY") == before
    assert page.evaluate("document.getElementById('learning-curves').layout.yaxis.range") == [-1, 0]
    expect(page.locator("#curve-metric")).to_be_focused()


def test_a_page_that_was_hidden_catches_up_at_once(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_for_drawn(page, "learning-curves", set(range(5)))
    wait_until_live(page)
    page.evaluate(SET_HIDDEN, True)
    for number in (5, 6, 7):
        running.run(number)
    answers = Answers(page)
    with page.expect_response(lambda answer: "/events?" in answer.url) as stream:
        page.evaluate(SET_HIDDEN, False)
    wait_for_drawn(page, "learning-curves", set(range(8)))
    expect(page.locator("#budget")).to_contain_text("8 of 20 trials finished")
    further = answers.of("/charts/curves")
    assert further[0]["curves"]["number"] == [5, 6, 7]
    # The stream begins where the page is: what it missed is not told again, event by event.
    assert parse_qs(urlsplit(stream.value.url).query) == {"after": [str(further[0]["event"])]}
    running.begin(8)
    running.measure(8, until=30)
    wait_for_drawn(page, "learning-curves", set(range(9)))


def test_the_title_says_how_far_the_job_is_also_while_nobody_looks_at_the_page(page: Page, running: Story) -> None:
    page.add_init_script("const every = setInterval; setInterval = (f, ms) => every(f, ms === 30_000 ? 300 : ms);")
    open_page(page, running)
    wait_until_live(page)
    expect(page).to_have_title("5/20 digits, first look · shampoo-tuner")
    running.run(5)
    expect(page).to_have_title("6/20 digits, first look · shampoo-tuner")

    page.evaluate(SET_HIDDEN, True)
    running.run(6)
    expect(page).to_have_title("7/20 digits, first look · shampoo-tuner")
    for number in range(7, 20):
        running.run(number)
    running.finish()
    expect(page).to_have_title("succeeded: digits, first look · shampoo-tuner")

    def asks_nothing_for_a_second() -> bool:
        answers = Answers(page)
        page.wait_for_timeout(1000)
        return not answers.seen

    wait_until(asks_nothing_for_a_second, "the page has had its last answers")
    expect(page.locator("#facts")).to_contain_text("running")  # a hidden page draws nothing
    page.evaluate(SET_HIDDEN, False)
    expect(page.locator("#facts")).to_contain_text("succeeded")


def test_tabs_that_nobody_has_looked_at_yet_leave_the_connections_to_others(page: Page, running: Story) -> None:
    tabs = [page.context.new_page() for _ in range(7)]
    for tab in tabs:
        tab.add_init_script('Object.defineProperty(document, "hidden", { value: true, configurable: true })')
        open_page(tab, running)
    open_page(page, running)
    wait_until_live(page)
    running.run(5)
    tabs[0].evaluate(SET_HIDDEN, False)
    expect(tabs[0].locator("#budget")).to_contain_text("6 of 20 trials finished")
    wait_until_live(tabs[0])


def test_the_page_of_a_job_that_was_deleted_meanwhile_says_so_and_asks_no_more(
    lenient_page: Page, address: str, running: Story
) -> None:
    page = lenient_page
    open_page(page, running)
    wait_until_live(page)
    page.evaluate(SET_HIDDEN, True)
    with httpx.Client(base_url=address, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as client:
        client.post(f"/v1/jobs/{running.job_id}/cancel").raise_for_status()
        client.delete(f"/v1/jobs/{running.job_id}").raise_for_status()
    page.evaluate(SET_HIDDEN, False)
    expect(page.locator("#stream")).to_have_text("deleted")
    expect(page.get_by_role("alert")).to_contain_text("It may have been deleted")
    expect(page.locator("main button")).to_have_count(0)
    expect(page).to_have_title("Not found · shampoo-tuner")
    answers = Answers(page)
    page.wait_for_timeout(4000)
    assert answers.seen == []


@pytest.mark.usefixtures("address")
def test_a_page_whose_service_is_away_asks_for_it_now_and_then(lenient_page: Page, running: Story) -> None:
    page = lenient_page
    open_page(page, running)
    wait_until_live(page)
    asked: list[float] = []

    def refuse(route: Route) -> None:
        asked.append(time.monotonic())
        route.abort()

    page.route("**/jobs/**", refuse)
    running.begin(5)
    while len(asked) < 3:
        page.wait_for_timeout(200)
    assert asked[2] - asked[0] > 5
    page.unroute_all()
    wait_until_live(page)
    expect(page.locator("#budget")).to_contain_text("1 running")


def test_a_stream_that_has_long_been_silent_is_opened_anew(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_until_live(page)
    with page.expect_response(lambda answer: "/events?" in answer.url):
        # As where the machine slept for so long: its clock went on, and nothing has told of the dead connection.
        page.evaluate("() => { const now = Date.now; Date.now = () => now() + 130_000; }")
    wait_until_live(page)
    with page.expect_response(lambda answer: "/charts/curves" in answer.url):
        running.run(5)


def test_the_timeline_and_the_forks_come_when_the_reader_does(page: Page, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    begin_trial(sqlite_database, lease, 0, now=NOW - timedelta(days=36_500))  # by a clock that is far behind
    measure_curve(sqlite_database, lease, 0, {10: 3.0, 20: 2.0})
    fork_trial(sqlite_database, lease, 1, parent=0, step=20, lr=0.1)
    answers = Answers(page)
    page.set_viewport_size({"width": 1280, "height": 500})
    page.goto(f"/jobs/{lease.job_id}")
    wait_until_live(page)
    wait_for_drawn(page, "learning-curves", {0, 1})
    assert answers.of("/charts/timeline") == []
    page.locator("#timeline").scroll_into_view_if_needed()
    wait_for_drawn(page, "timeline", {0, 1})
    wait_for_drawn(page, "forks", {0, 1})
    assert page.evaluate("document.getElementById('timeline').data.flatMap(({ x }) => x).length") < 400
    section = page.get_by_role("region", name="Forks", exact=True)
    expect(section).to_be_visible()
    section.get_by_role("button", name="Forks: show as table").click()
    row = section.get_by_role("table", name="Forks, as a table").get_by_role("row").nth(2)
    expect(row.get_by_role("cell").or_(row.get_by_role("rowheader"))).to_have_text(
        ["#1", "running", "#0", "20", "20", "2.000"]
    )
    timeline = page.get_by_role("region", name="Timeline", exact=True)
    expect(timeline.locator(".note")).to_contain_text("Up to 2 trials ran at once")
    expect(timeline.get_by_role("button", name="running")).to_have_attribute("aria-pressed", "true")
    timeline.get_by_role("button", name="running").click()
    expect(page.locator("#timeline")).to_contain_class("nothing")


@pytest.mark.parametrize("path", ["/", "/cluster", "/compare?jobs={job}"])
def test_a_page_of_many_jobs_is_read_again_where_something_has_happened_and_not_before(
    page: Page, running: Story, path: str
) -> None:
    answers = Answers(page)
    address = path.format(job=running.job_id)

    def pages() -> list[Response]:
        return [answer for answer in answers.seen if answer.url.endswith(address)]

    page.goto(address)
    wait_until_live(page)
    page.wait_for_timeout(1000)  # twice what a page waits from one look to the next
    assert len(pages()) == 1
    with page.expect_response(lambda answer: answer.url.endswith(address)):
        running.run(5)


@pytest.mark.parametrize("path", ["/jobs/{job}", "/jobs/{job}/trials/3"])
def test_a_page_of_a_job_that_has_ended_says_that_it_goes_on_or_is_deleted(
    lenient_page: Page, address: str, running: Story, path: str
) -> None:
    page = lenient_page
    page.clock.install()
    with httpx.Client(base_url=address, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as client:
        client.post(f"/v1/jobs/{running.job_id}/cancel").raise_for_status()
        page.goto(path.format(job=running.job_id))
        page.wait_for_load_state("networkidle")
        expect(page.locator("#stream")).to_be_hidden()
        client.post(f"/v1/jobs/{running.job_id}/resume").raise_for_status()
        page.clock.run_for(11_000)  # longer than from one look to the next
        wait_until_live(page)
        client.post(f"/v1/jobs/{running.job_id}/cancel").raise_for_status()
        expect(page.locator("#stream")).to_be_hidden()
        client.delete(f"/v1/jobs/{running.job_id}").raise_for_status()
        page.clock.run_for(11_000)
    expect(page.get_by_role("alert")).to_contain_text("It may have been deleted")
    expect(page.locator("main button")).to_have_count(0)
    answers = Answers(page)
    page.clock.run_for(11_000)
    page.wait_for_timeout(1000)  # for an answer
    assert answers.seen == []


def _top_of_charts(page: Page) -> float:
    return float(page.locator(".charts").evaluate("charts => charts.getBoundingClientRect().top"))


def test_a_job_says_from_its_first_measurement_what_it_has_come_to_and_what_is_being_tried(
    page: Page, sqlite_database: Database
) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(seconds=60))
    story.begin(0)
    open_page(page, story)
    wait_until_live(page)
    training = page.get_by_role("list", name="In training")
    expect(training).to_contain_text("#0 Shampoo, step 0 of 200")
    expect(page.locator("#waiting")).to_contain_text("its first measurement")
    began = _top_of_charts(page)

    story.measure(0, until=50)
    expect(training).to_contain_text("step 50 of 200: ")
    expect(page.locator("#answer .figures")).to_contain_text("#0 at step 50 of 200")
    expect(page.locator("#waiting")).to_be_empty()
    below = _top_of_charts(page)
    story.measure(0, until=100)
    expect(page.locator("#answer .figures")).to_contain_text("#0 at step 100 of 200")
    assert _top_of_charts(page) == below

    for number in (1, 2, 3, 4):
        story.begin(number)
    expect(training.get_by_role("link")).to_have_count(3)
    expect(training).to_contain_text("and 2 more")
    story.end(0, TrialState.COMPLETED)
    expect(page.locator("#answer .figures")).to_contain_text("search value, one seed, trial #0")
    assert [top for top in (below, _top_of_charts(page)) if abs(top - began) > 2] == []  # a line has 18 pixels


def test_the_reason_for_which_a_job_waits_follows_the_workers_of_whom_no_event_tells(
    page: Page, sqlite_database: Database
) -> None:
    now = datetime.now(UTC)
    job_id = submit(sqlite_database, now=now)
    page.clock.install()
    page.goto(f"/jobs/{job_id}")
    wait_until_live(page)
    reason = page.locator("#waiting > p > span").first
    expect(reason).to_contain_text("no worker has been started")
    page.evaluate("document.querySelector('#waiting > p').dataset.seen = 'before'")
    answers = Answers(page)

    page.clock.run_for(11_000)  # longer than from one look to the next
    expect(reason).to_contain_text("no worker has been started")
    add_worker(sqlite_database, now=datetime.now(UTC))
    page.clock.run_for(11_000)
    expect(reason).to_contain_text("a worker is about to take it")
    assert page.locator("#waiting > p").get_attribute("data-seen") == "before"  # the rest of it stays

    page.evaluate(SET_HIDDEN, True)
    num_looks = len(answers.seen)
    page.clock.run_for(31_000)
    assert len(answers.seen) <= num_looks + 1  # for the title, in place of three for the reason


def test_the_page_of_a_running_job_tells_of_a_worker_that_is_overdue_and_of_its_return(
    page: Page, sqlite_database: Database
) -> None:
    worker = add_worker(sqlite_database, now=datetime.now(UTC))
    submit(sqlite_database, now=datetime.now(UTC))
    lease = claim(sqlite_database, worker, now=datetime.now(UTC))
    assert lease is not None
    begin_trial(sqlite_database, lease, 0, now=datetime.now(UTC))
    measure(sqlite_database, lease, 0, 10, 0.5, now=datetime.now(UTC))
    page.clock.install()
    page.goto(f"/jobs/{lease.job_id}")
    wait_until_live(page)
    waiting = page.locator("#waiting")
    expect(waiting).to_be_empty()

    def is_told(words: str, *, seconds_ago: float) -> bool:
        with sqlite_database.writing() as session:
            beat(session, worker, lease_seconds=30.0, now=datetime.now(UTC) - timedelta(seconds=seconds_ago))
        page.clock.run_for(11_000)  # longer than from one look to the next
        return words in waiting.inner_text() if words else not waiting.inner_text()

    wait_until(lambda: is_told("its worker was last heard of at", seconds_ago=17.0), "the page to tell of its worker")
    wait_until(lambda: is_told("", seconds_ago=0.0), "the page to tell of its return")
