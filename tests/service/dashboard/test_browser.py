"""The pages in a real browser. The `page` fixture fails any test whose page logs an error or asks another host."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from service.api.figures import PlotTrial, learning_curves
from service.domain import Direction, JobState, Phase, TrialState
from service.store.session import Database
from tests.service.dashboard.conftest import TIMEOUT_MS, open_page, served, wait_until_live
from tests.support.service.contrast import LOW_CONTRAST
from tests.support.service.stories import Story, submit_digits

NAME_WITH_SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture
def confirmed(sqlite_database: Database) -> Story:
    """A job of 20 trials whose best ones were trained again with three seeds: another one than the luckiest won."""
    now = datetime.now(UTC) - timedelta(hours=2)
    story = Story(sqlite_database, now=now, confirmation={"top_k": 2, "num_seeds": 3})
    for number in range(20):
        story.run(number, {13: 0.0712, 8: 0.0733, 11: 0.0871}.get(number))
    values = {13: [0.0832, 0.0839, 0.0835], 8: [0.0771, 0.0765, 0.0768], 11: [0.0878, 0.0871, 0.0881]}
    number = 20
    for seed in (1, 2, 3):
        for source, finals in values.items():
            story.confirm(number, source, seed, finals[seed - 1])
            number += 1
    assert story.finish() is JobState.SUCCEEDED
    return story


def _num_traces(page: Page, chart: str) -> int:
    return int(page.evaluate("id => document.getElementById(id).data.length", chart))


def _wait_for(page: Page, function: str, argument: object = None) -> None:
    """Waits until a function of JavaScript gives true. Playwright's own way evaluates strings: our CSP refuses it."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not page.evaluate(function, argument):
        assert time.monotonic() < deadline, f"still not true: {function} of {argument!r}"
        page.wait_for_timeout(50)


def _wait_for_traces(page: Page, chart: str, number: int) -> None:
    _wait_for(page, "([id, n]) => document.getElementById(id).data?.length === n", [chart, number])


def _first_number(page: Page) -> str | None:
    return page.locator("#trials tbody tr").first.get_attribute("data-number")


def _hovered(page: Page, chart: str, trace: dict[str, object], point: int = -1) -> str:
    """The text of the label over a point of the trace with this mode and these values of `meta`."""
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    find = """([id, { mode, ...meta }, point]) => {
      const plot = document.getElementById(id), { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
      const same = (trace) => Object.entries(meta).every(([key, value]) => trace.meta[key] === value);
      const { x, y } = plot.data.find((trace) => trace.mode === mode && same(trace));
      return [box.left + xaxis._offset + xaxis.d2p(x.at(point)), box.top + yaxis._offset + yaxis.d2p(y.at(point))];
    }"""
    x, y = page.evaluate(find, [chart, trace, point])
    label = page.locator(f"#{chart} .hoverlayer .hovertext text.nums")
    page.mouse.move(0, 0)
    expect(label).to_have_count(0)
    page.mouse.move(x - 3, y - 3)
    page.mouse.move(x, y)
    expect(label).to_have_count(1)
    return "\n".join(label.locator("tspan.line").all_text_contents() or label.all_text_contents())


def test_the_list_shows_every_job_newest_first(page: Page, finished: Story, sqlite_database: Database) -> None:
    submit_digits(sqlite_database, now=finished.now, name="second job")
    page.goto("/")
    rows = page.locator("table.jobs tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("second job")
    expect(rows.nth(0)).to_contain_text("queued")
    expect(rows.nth(1)).to_contain_text("succeeded")
    expect(rows.nth(1)).to_contain_text("20/20")
    expect(rows.nth(1)).to_contain_text("validation_loss")
    expect(rows.nth(1).locator("time")).to_have_text("2 h ago")
    rows.nth(1).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("digits, first look")


def test_a_long_list_comes_in_pages(page: Page, sqlite_database: Database) -> None:
    now = datetime.now(UTC)
    for number in range(30):
        submit_digits(sqlite_database, now=now, name=f"job number {number}")
    page.goto("/?state=queued")
    expect(page.locator("table.jobs tbody tr")).to_have_count(25)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("table.jobs tbody tr")).to_have_count(5)
    page.get_by_role("link", name="Newest").click()
    expect(page.locator("table.jobs tbody tr")).to_have_count(25)
    page.get_by_role("link", name="running").click()
    expect(page.locator("#jobs")).to_contain_text("No running jobs.")


def test_a_new_job_appears_in_the_open_list(page: Page, sqlite_database: Database) -> None:
    page.goto("/")
    expect(page.locator("#jobs")).to_contain_text("No jobs yet")
    wait_until_live(page)
    story = Story(sqlite_database, now=datetime.now(UTC), name="born just now")
    row = page.locator("table.jobs tbody tr")
    expect(row).to_contain_text("born just now")
    story.run(0)
    expect(row).to_contain_text("1/20")
    expect(row).to_contain_text("running")


def test_a_finished_job_answers_first(page: Page, finished: Story) -> None:
    open_page(page, finished)
    expect(page.locator("#answer h2")).to_contain_text("Shampoo beats AdamW by")
    expect(page.locator("#answer")).to_contain_text("trial #13")
    expect(page.locator("#recommendation h2")).to_have_text("Recommended config")
    expect(page.locator("#recommendation")).to_contain_text("precondition_frequency")
    expect(page.locator("#trials tbody tr")).to_have_count(20)
    expect(page.locator("#trials tbody tr.best")).to_have_count(2)
    expect(page.locator("#cancel")).to_have_count(0)
    expect(page.locator("#stream")).to_be_hidden()


def test_a_confirmed_job_shows_the_seeds_behind_its_answer(page: Page, confirmed: Story) -> None:
    open_page(page, confirmed)
    expect(page.locator("#answer h2")).to_contain_text("Shampoo beats AdamW by")
    expect(page.locator("#answer .detail")).to_contain_text("Over 3 new seeds, the improvement lies between +")
    expect(page.locator("#answer")).to_contain_text("mean of 3 new seeds, config of trial #8")
    expect(page.locator("#answer .caveats li")).to_have_text(
        "The recommended config (Shampoo, trial 8) did worse over new seeds than when it was found, by more than the "
        "noise: 0.07680 ± 0.00030 (mean of 3 new seeds), 0.07330 before. By these seeds another would lie between "
        "0.07531 and 0.07829 (95% interval)."
    )
    expect(page.locator("#budget")).to_contain_text("29 of 29 trials finished, 9 of 9 to confirm")
    table = page.get_by_role("region", name="Trained again with new seeds")
    expect(table.get_by_role("columnheader")).to_have_text(
        ["Config of trial", "When found", "Mean", "±", "seed 1", "seed 2", "seed 3"]
    )
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("#8 Shampoo")
    expect(page.locator("#trials tbody tr.best")).to_have_count(2)
    expect(page.locator("#trial-8")).to_contain_class("best")
    expect(rows.nth(2)).to_contain_text("baseline")
    expect(page.locator("#trial-21")).to_contain_text("confirms #8, seed 1")
    # The confirmation seeks nothing: it has no line of its own, but curves.
    assert _num_traces(page, "best-so-far") == 4
    assert _num_traces(page, "learning-curves") == 22 + 9


def test_both_charts_draw_every_trial(page: Page, finished: Story) -> None:
    open_page(page, finished)
    # A line and the trials' dots for each of the two phases.
    assert _num_traces(page, "best-so-far") == 4
    # Twenty curves, and a cross for each of the two that diverged.
    assert _num_traces(page, "learning-curves") == 22
    axis = page.evaluate("document.getElementById('learning-curves').layout.yaxis.type")
    assert axis == "log"
    page.get_by_role("button", name="time", exact=True).click()
    _wait_for(page, "() => document.getElementById('best-so-far').layout.xaxis.title.text.startsWith('seconds')")


def test_every_chart_says_what_the_pointer_is_over(page: Page, sqlite_database: Database) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}]
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(hours=1), objectives=objectives)
    for number, final in enumerate([0.9, 0.7, 0.5, 1.1]):
        story.run(number, final)
    story.run(6)  # diverges
    open_page(page, story)
    _wait_for_traces(page, "trade-off", 3)
    curve = _hovered(page, "learning-curves", {"mode": "lines", "number": 2}, 12)
    assert curve.splitlines()[0] == "#2 Shampoo, completed"
    assert "lr = " in curve
    assert re.search(r"^step 130: 0\.\d+$", curve.splitlines()[-1])
    cross = _hovered(page, "learning-curves", {"mode": "markers", "number": 6})
    assert cross.splitlines()[0] == "#6 Shampoo, failed (diverged)"
    assert cross.splitlines()[-1] == "diverged after step 30"
    assert _hovered(page, "best-so-far", {"mode": "markers", "role": "search"}, 1) == "#1 Shampoo\n0.7000"
    assert _hovered(page, "best-so-far", {"mode": "lines", "role": "search"}) == "Shampoo\nbest found 0.5000"
    assert _hovered(page, "best-so-far", {"mode": "markers", "role": "baseline"}) == "#3 AdamW\n1.100"
    point = _hovered(page, "trade-off", {"mode": "markers", "role": "baseline"})
    assert point.splitlines()[0] == "#3 AdamW, completed"
    assert point.splitlines()[-1].endswith(", 1.100")


def test_names_are_shown_as_they_are_over_a_curve(page: Page, finished: Story) -> None:
    open_page(page, finished)  # nothing more comes of an ended job, so the figure stays
    _wait_for_traces(page, "learning-curves", 22)
    hostile = PlotTrial(
        7,
        Phase.SEARCH,
        TrialState.COMPLETED,
        parameters={"%{x}": "%{y}", "a<br>b": "<b>c</b>&lt;", "%d": "100%"},
        points=[(10, 2.0), (20, 1.0)],
    )
    labels = {Phase.SEARCH: "%{x}<extra>", Phase.BASELINE: "AdamW"}
    figure = learning_curves([hostile], metric="%{y}<b>loss", direction=Direction.MINIMIZE, labels=labels)
    page.evaluate("async ({data, layout}) => { await Plotly.react('learning-curves', data, layout) }", figure)
    assert _hovered(page, "learning-curves", {"mode": "lines", "number": 7}).splitlines() == [
        "#7 %{x}<extra>, completed",
        "%{x} = %{y}",
        "a<br>b = <b>c</b>&lt;",
        "%d = 100%",
        "step 20: 1.000",
    ]
    chart = page.locator("#learning-curves")
    expect(chart.locator(".ytitle")).to_have_text("%{y}<b>loss")


def test_several_objectives_are_drawn_against_each_other(page: Page, sqlite_database: Database) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}, {"metric": "train_loss"}]
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(hours=1), objectives=objectives)
    for number in range(8):
        story.run(number)
    open_page(page, story)
    _wait_for_traces(page, "trade-off", 3)
    title = "() => document.getElementById('trade-off').layout.xaxis.title.text"
    assert page.evaluate(title) == "validation_accuracy"
    page.get_by_role("button", name="train_loss", exact=True).click()
    _wait_for(page, f"() => ({title})() === 'train_loss'")
    story.run(8)
    _wait_for(page, "() => document.getElementById('trade-off').data[0].x.length === 6")
    assert page.evaluate(title) == "train_loss"


def test_the_config_is_copied_as_python(page: Page, finished: Story) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, finished)
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "Shampoo(\n    model.parameters()," in copied
    compile(copied, "copied", "exec")


def test_an_open_page_follows_the_job_to_its_end(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_until_live(page)
    page.evaluate("window.notReloaded = true")
    expect(page.locator("#budget")).to_contain_text("5 of 20 trials finished")

    running.begin(5)
    expect(page.locator("#trial-5")).to_contain_text("running")
    running.measure(5, until=100)
    expect(page.locator("#trial-5")).to_contain_text("100/200")
    _wait_for_traces(page, "learning-curves", 6)
    running.measure(5, until=200, final=0.05)
    running.end(5, TrialState.COMPLETED)
    expect(page.locator("#trial-5")).to_contain_text("completed")
    expect(page.locator("#budget")).to_contain_text("6 of 20 trials finished")
    expect(page.locator("#budget [role=status]")).to_have_text("running: 6 of 20 trials finished")
    expect(page.locator("#answer")).to_contain_text("trial #5")
    running.begin(6)
    running.diverge(6)
    expect(page.locator("#trial-6")).to_contain_text("failed (diverged)")
    _wait_for_traces(page, "learning-curves", 8)

    running.finish()
    expect(page.locator("#facts")).to_contain_text("succeeded")
    expect(page.locator("#recommendation h2")).to_be_visible()
    expect(page.locator("#cancel")).to_have_count(0)
    expect(page.locator("#stream")).to_be_hidden()
    assert page.evaluate("window.notReloaded") is True


def test_a_page_opened_before_the_first_trial_draws_it(page: Page, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC))
    open_page(page, story)
    expect(page.locator("#trials")).to_contain_text("No trial has been started yet.")
    wait_until_live(page)
    story.run(0)
    expect(page.locator("#trial-0")).to_contain_text("completed")
    _wait_for_traces(page, "learning-curves", 1)


def test_an_open_page_survives_a_restart_of_the_service(
    browser: Browser, running: Story, sqlite_database: Database, tmp_path: Path
) -> None:
    context = browser.new_context()
    page = context.new_page()
    with served(sqlite_database, tmp_path) as address:
        page.goto(f"{address}/jobs/{running.job_id}")
        wait_until_live(page)
    expect(page.locator("#stream")).to_have_text("connection lost, trying again")
    running.run(5)
    with served(sqlite_database, tmp_path, port=urlsplit(address).port or 0):
        expect(page.locator("#trial-5")).to_contain_text("completed")
        wait_until_live(page)
        context.close()


def test_a_failed_job_says_why(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_until_live(page)
    running.finish("the ranks ran out of memory <b>twice</b>")
    expect(page.locator("#failure")).to_contain_text("the ranks ran out of memory <b>twice</b>")


def test_the_table_sorts_by_keyboard_and_keeps_its_order_over_updates(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_until_live(page)
    button = page.get_by_role("button", name="validation_loss")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#column-value")).to_have_attribute("aria-sort", "ascending")
    values = page.locator("#trials tbody td[data-value]:nth-child(2)")
    shown = [float(cell.get_attribute("data-value") or "nan") for cell in values.all()]
    assert shown == sorted(shown)

    running.run(5, final=0.01)
    expect(page.locator("#trial-5")).to_contain_text("completed")
    assert _first_number(page) == "5"
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#column-value")).to_have_attribute("aria-sort", "descending")
    assert page.locator("#trials tbody tr").last.get_attribute("data-number") == "5"


def test_a_picked_trial_stands_out_in_table_and_chart(page: Page, finished: Story) -> None:
    open_page(page, finished)
    button = page.get_by_role("button", name="Trial 13: highlight its curve")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    last = "document.getElementById('learning-curves').data.at(-1)"
    _wait_for(page, f"() => {last}.meta.number === 13 && {last}.line.width > 3")
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")
    _wait_for(page, f"() => {last}.meta.number === 19")


def test_a_clicked_curve_finds_its_row(page: Page, finished: Story) -> None:
    open_page(page, finished)
    page.locator("#learning-curves").scroll_into_view_if_needed()
    # The last point of the best curve lies apart from all others.
    x, y = page.evaluate(
        """() => {
          const plot = document.getElementById("learning-curves"), trace = plot.data.find((t) => t.meta.number === 13);
          const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
          const [x, y] = [xaxis.d2p(trace.x.at(-1)), yaxis.d2p(trace.y.at(-1))];
          return [box.left + xaxis._offset + x, box.top + yaxis._offset + y];
        }"""
    )
    page.mouse.move(x - 20, y)
    page.mouse.move(x - 1, y)
    page.mouse.click(x - 1, y)
    expect(page.get_by_role("button", name="Trial 13: highlight its curve")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#trial-13")).to_be_in_viewport()


def test_what_users_wrote_stays_text(page: Page, sqlite_database: Database) -> None:
    now = datetime.now(UTC)
    job_id = submit_digits(sqlite_database, now=now, name=NAME_WITH_SCRIPT, tags={NAME_WITH_SCRIPT: NAME_WITH_SCRIPT})
    page.goto("/")
    expect(page.get_by_role("link", name=NAME_WITH_SCRIPT)).to_be_visible()
    wait_until_live(page)
    page.goto(f"/jobs/{job_id}")
    expect(page.get_by_role("heading", level=1)).to_have_text(NAME_WITH_SCRIPT)
    assert page.title().startswith(NAME_WITH_SCRIPT)
    wait_until_live(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img").count() == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_scrolls_sideways(page: Page, finished: Story, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.goto("/")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    open_page(page, finished)
    page.locator("summary").first.click()
    page.locator("summary").last.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    plots = page.locator(".plot .main-svg").all()
    assert all((plot.bounding_box() or {"width": 0})["width"] <= width for plot in plots)


def test_an_unknown_address_is_a_page_that_leads_back_and_does_not_scroll_sideways(
    browser: Browser, address: str
) -> None:
    context = browser.new_context(base_url=address, viewport={"width": 390, "height": 844})
    page = context.new_page()  # not the fixture's: the browser itself logs the answer 404 as an error
    for path in ("/" + "nope" * 100, "/jobs/job_" + "x" * 400):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 404
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("link", name="All jobs").click()
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    context.close()


def test_dark_mode_darkens_page_and_charts(page: Page, finished: Story) -> None:
    page.emulate_media(color_scheme="light")
    open_page(page, finished)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("document.getElementById('best-so-far').layout.font.color")
    page.emulate_media(color_scheme="dark")
    _wait_for(page, "ink => document.getElementById('best-so-far').layout.font.color !== ink", ink)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(page: Page, finished: Story, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto("/")
    assert page.evaluate(LOW_CONTRAST) == []
    open_page(page, finished)
    page.locator("summary").first.click()
    assert page.evaluate(LOW_CONTRAST) == []


def test_the_pages_are_marked_up_for_screen_readers(page: Page, finished: Story) -> None:
    page.goto("/")
    expect(page.get_by_role("table", name="Jobs, newest first")).to_be_visible()
    open_page(page, finished)
    levels = page.evaluate("[...document.querySelectorAll('main :is(h1, h2, h3)')].map((h) => h.localName)")
    assert levels[0] == "h1"
    assert set(levels[1:]) == {"h2"}
    expect(page.get_by_role("img", name="Line chart: best validation_loss")).to_be_visible()
    expect(page.get_by_role("img", name="20 of 20 trials finished")).to_be_visible()
    assert page.locator("button:not([type]):not(dialog button)").count() == 0
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
