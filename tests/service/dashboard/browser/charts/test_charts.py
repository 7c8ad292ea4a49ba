"""The charts of a job in a real browser: every trial is drawn, named under the pointer and found in the table."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from service.places import NodePlace
from service.store.session import Database
from service.use_cases.run import TrialMeasurements, record_measurements, record_places
from tests.service.dashboard.conftest import (
    drawn_trials,
    hovered,
    open_page,
    wait_for,
    wait_for_drawn,
    wait_for_traces,
    wait_until_live,
)
from tests.support.service.external import submit_external
from tests.support.service.scenarios import NOW, add_worker, begin_trial, claim, end_trial, measure
from tests.support.service.stories.jobs import Story
from tests.support.waiting import PATIENCE_SECONDS
from trainers.config import Measurement


def _wait_for_x_axis(page: Page, chart: str, beginning: str) -> None:
    """Waits until the horizontal axis has a title that begins so; before a chart is drawn it has none."""
    wait_for(
        page,
        """([id, beginning]) => {
          const title = document.getElementById(id).layout?.xaxis.title.text;
          return title !== undefined && title.startsWith(beginning);
        }""",
        [chart, beginning],
    )


def test_the_timeline_and_the_trials_page_tell_where_each_stretch_trained(
    page: Page, running: Story, sqlite_database: Database
) -> None:
    node = "<b>%{x}</b>"
    with sqlite_database.writing() as session:
        for number in range(5):
            place = NodePlace(node, ("0", "2") if number % 2 else ())
            record_places(session, running.lease, number, [place])
    open_page(page, running)
    page.locator("#timeline").scroll_into_view_if_needed()
    wait_for_drawn(page, "timeline", set(range(5)))
    bar = hovered(page, "timeline", {"mode": "none", "group": "completed", "number": 1}, 1)
    assert bar.endswith(f"s\n{node}, GPUs 0 and 2")
    page.get_by_role("button", name="Timeline: show as table").click()
    table = page.get_by_role("table", name="Timeline, as a table")
    expect(table.get_by_role("columnheader")).to_have_text(
        ["Trial", "Then", "Where", "Lane", "Began after, s", "Trained, s"]
    )
    expect(table.get_by_role("row").nth(1).get_by_role("cell").nth(1)).to_have_text(f"{node}, CPU")
    page.goto(f"/jobs/{running.job_id}/trials/1")
    expect(page.locator("#taken")).to_contain_text(f"{node}, GPUs 0 and 2")


def test_all_charts_draw_every_trial_and_a_bar_is_named_under_the_pointer_and_follows_the_zoom(
    page: Page, finished: Story
) -> None:
    open_page(page, finished)
    completed = {number for number in range(20) if not (number % 10 == 6 or (number % 5 in (2, 4) and number > 5))}
    assert drawn_trials(page, "best-so-far") == completed
    assert drawn_trials(page, "learning-curves") == set(range(20))
    assert page.evaluate("document.getElementById('learning-curves').layout.yaxis.type") == "log"
    expect(page.locator("section", has=page.locator("#best-so-far")).locator(".note")).to_have_text(
        re.compile(r"^After 5 finished trials each: Shampoo 0\.\d+, AdamW 0\.\d+\.$")
    )
    crosses = "document.getElementById('learning-curves').data.find((trace) => trace.marker?.symbol === 'x').customdata"
    assert page.evaluate(crosses) == [6, 16]

    page.locator("#timeline").scroll_into_view_if_needed()
    wait_for_drawn(page, "timeline", set(range(20)))
    bar = hovered(page, "timeline", {"mode": "none", "group": "completed", "number": 13}, 1)
    assert re.match(r"#13\ncompleted after \d", bar)
    bars = page.locator("#timeline svg.bars")
    whole = page.evaluate("document.getElementById('timeline').layout.xaxis.range[1]")
    assert bars.get_attribute("viewBox") == f"0 0.5 {whole} 1"
    page.evaluate("async () => { await Plotly.relayout('timeline', {'xaxis.range': [1, 3]}) }")
    expect(bars).to_have_attribute("viewBox", "1 0.5 2 1")


def test_what_is_chosen_in_a_chart_stands_in_the_address_and_survives_a_reload(page: Page, finished: Story) -> None:
    open_page(page, finished)
    page.get_by_role("button", name="time", exact=True).click()
    _wait_for_x_axis(page, "best-so-far", "seconds")
    section = page.locator("section", has=page.locator("#learning-curves"))
    metrics = section.get_by_label("Curves of")
    expect(metrics.locator("option")).to_have_text(["train_loss", "validation_loss", "validation_accuracy"])
    metrics.select_option("validation_accuracy")
    wait_for(page, "() => document.getElementById('learning-curves').layout.yaxis.title.text === 'validation_accuracy'")
    axes = section.get_by_label("Curves over")
    expect(axes.locator("option")).to_have_text(["step", "epoch", "training seconds", "device-seconds"])
    axes.select_option("device-seconds")
    _wait_for_x_axis(page, "learning-curves", "device-seconds")
    last = "document.getElementById('learning-curves').data[0].x"
    assert page.evaluate(f"Math.max(...{last})") == 2 * 200 * 0.013
    section.get_by_role("button", name="log scale").click()
    expect(section.get_by_role("button", name="log scale")).to_have_attribute("aria-pressed", "true")
    section.get_by_role("button", name="ended early").click()
    wait_for_drawn(page, "learning-curves", set(range(20)) - {7, 9, 12, 14, 17, 19})
    page.evaluate("async () => { await Plotly.relayout('learning-curves', {'xaxis.range': [1, 3]}) }")
    section.get_by_role("button", name="Learning curves: show as table").click()
    table = section.get_by_role("table", name="Learning curves, as a table")
    expect(table.get_by_role("row")).to_have_count(21)
    expect(table.get_by_role("row", name="#13 Shampoo completed")).to_be_visible()

    page.reload()
    wait_for_drawn(page, "learning-curves", set(range(20)) - {7, 9, 12, 14, 17, 19})
    _wait_for_x_axis(page, "best-so-far", "seconds")
    _wait_for_x_axis(page, "learning-curves", "device-seconds")
    layout = page.evaluate("document.getElementById('learning-curves').layout")
    assert layout["yaxis"]["title"]["text"] == "validation_accuracy"
    assert layout["yaxis"]["type"] == "log"
    assert layout["xaxis"]["range"] == [1, 3]
    expect(section.get_by_role("button", name="ended early")).to_have_attribute("aria-pressed", "false")
    expect(table.get_by_role("row")).to_have_count(21)


def test_every_chart_says_what_the_pointer_is_over(page: Page, sqlite_database: Database) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}]
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(hours=1), objectives=objectives)
    for number, final in enumerate([0.9, 0.7, 0.5, 1.1]):
        story.run(number, final)
    story.run(6)  # diverges
    open_page(page, story)
    wait_for_traces(page, "trade-off", 3)
    curve = hovered(page, "learning-curves", {"mode": "lines", "group": "search", "number": 2}, 12)
    assert curve.splitlines()[0] == "#2 Shampoo, completed"
    assert "lr = " in curve
    assert re.search(r"^step 130: 0\.\d+$", curve.splitlines()[-1])
    cross = hovered(page, "learning-curves", {"mode": "lines", "group": "diverged", "number": 6}, -2)
    assert cross.splitlines()[0] == "#6 Shampoo, failed (diverged)"
    assert re.search(r"^step 30: \d+\.\d+; then it diverged$", cross.splitlines()[-1])
    assert hovered(page, "best-so-far", {"mode": "markers", "group": "search"}, 1) == "#1 Shampoo\n0.7000"
    assert hovered(page, "best-so-far", {"mode": "lines", "group": "search"}) == "Shampoo\nbest found 0.5000"
    assert hovered(page, "best-so-far", {"mode": "markers", "group": "adamw"}) == "#3 AdamW\n1.100"
    point = hovered(page, "trade-off", {"mode": "markers", "role": "baseline"})
    assert point.splitlines()[0] == "#3 AdamW, completed"
    assert point.splitlines()[-1].endswith(", 1.100")


def test_names_are_shown_as_they_are_over_a_curve(page: Page, finished: Story) -> None:
    open_page(page, finished)  # nothing more comes of an ended job, so the figure stays
    wait_for_drawn(page, "learning-curves", set(range(20)))
    page.evaluate(
        """async () => {
          const { curvesFigure } = await import("/static/charts/curves_figure.js");
          const group = { key: "search", label: "%{x}<extra>", colour: "#000000", dash: "solid" };
          const parameters = [["%{x}", "%{y}"], ["a<br>b", "<b>c</b>&lt;"], ["%d", "100%"]];
          const curve = { number: 7, group, title: group.label, state: "completed", reason: null, confirms: null };
          const points = { parameters, steps: [10, 20], x: [10, 20], y: [2, 1] };
          const curves = new Map([[7, { ...curve, ...points }]]);
          const groups = new Map([["search", group]]);
          const known = { curves, groups, metric: "%{y}<b>loss", over: "step", rungs: [] };
          const { data, layout } = curvesFigure(known, { scale: null, hidden: new Set(), picked: null });
          await Plotly.react("learning-curves", data, layout);
        }"""
    )
    assert hovered(page, "learning-curves", {"mode": "lines", "number": 7}).splitlines() == [
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
    wait_for_traces(page, "trade-off", 3)
    title = "() => document.getElementById('trade-off').layout.xaxis.title.text"
    assert page.evaluate(title) == "validation_accuracy"
    page.locator("section", has=page.locator("#trade-off")).get_by_text("As a table").click()
    table = page.get_by_role("region", name="Trade-off, as a table").get_by_role("row")
    expect(table.first).to_have_text("Drawn asTrialvalidation_accuracyvalidation_loss")
    expect(table.filter(has_text="#3")).to_contain_text("AdamW")
    page.get_by_role("button", name="train_loss", exact=True).click()
    expect(table.first).to_contain_text("train_loss")
    wait_for(page, f"() => ({title})() === 'train_loss'")
    story.run(8)
    wait_for(page, "() => document.getElementById('trade-off').data[0].x.length === 6")
    assert page.evaluate(title) == "train_loss"


def _last_point_of_13(page: Page) -> tuple[float, float]:
    """Its place in the window, where charts above may still be drawn."""
    x, y = page.evaluate(
        """() => {
          const plot = document.getElementById("learning-curves");
          const trace = plot.data.find(({ customdata }) => customdata.includes(13));
          const end = trace.customdata.lastIndexOf(13);
          const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
          const [x, y] = [xaxis.d2p(trace.x[end]), yaxis.d2p(trace.y[end])];
          return [box.left + xaxis._offset + x, box.top + yaxis._offset + y];
        }"""
    )
    return x, y


def test_a_trial_stands_out_in_table_and_chart_whose_button_is_pressed_or_curve_is_clicked(
    page: Page, finished: Story
) -> None:
    open_page(page, finished)
    button = page.get_by_role("button", name="Trial 13: highlight its curve")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    last = "document.getElementById('learning-curves').data.at(-1)"
    wait_for(page, f"() => {last}.meta.number === 13 && {last}.line.width > 3")
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")
    wait_for(page, f"() => {last}.meta.number === undefined")

    page.locator("#learning-curves").scroll_into_view_if_needed()
    # The last point of the best curve lies apart from all others. A click counts on what the chart has noticed, which
    # on a busy machine is a while after the mouse came.
    noticed = page.locator("#learning-curves .hovertext").first
    x, y = _last_point_of_13(page)
    page.mouse.move(x - 20, y)
    for _ in range(int(2 * PATIENCE_SECONDS)):
        if noticed.is_visible():
            break
        page.wait_for_timeout(500)
        x, y = _last_point_of_13(page)
        page.mouse.move(x - 2, y)
        page.mouse.move(x - 1, y)
    expect(noticed).to_be_visible()
    page.mouse.click(x - 1, y)
    expect(page.get_by_role("button", name="Trial 13: highlight its curve")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#trial-13")).to_be_in_viewport()


def test_a_chart_without_a_point_has_words_and_no_axes(page: Page, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(minutes=1))
    story.begin(0)
    measure(sqlite_database, story.lease, 0, 10, math.nan, now=story.later(1))
    open_page(page, story)
    section = page.locator("section", has=page.locator("#learning-curves"))
    shampoo = section.get_by_role("button", name="Shampoo", exact=True)
    expect(shampoo).to_be_visible()
    told = "getComputedStyle(document.getElementById('learning-curves'), '::after').content"
    assert page.evaluate(told) == '"No data yet"'
    expect(page.locator("#learning-curves .plot-container")).to_be_hidden()
    story.run(1)
    wait_for_drawn(page, "learning-curves", {0, 1})
    shampoo.click()
    wait_for(page, f"() => {told} === '\"All that has points is put away: the buttons above bring it back\"'")
    story.finish()
    expect(page.locator("#stream")).to_be_hidden()
    assert page.evaluate(told).startswith('"All that has points is put away')
    shampoo.click()
    expect(page.locator("#learning-curves .plot-container")).to_be_visible()


def test_a_chart_without_a_point_is_small_or_as_high_as_the_one_beside_it_and_has_its_height_with_its_first(
    page: Page, sqlite_database: Database
) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(minutes=1))
    story.begin(0)
    open_page(page, story)
    heights = "['best-so-far', 'learning-curves'].map(id => document.getElementById(id).clientHeight)"
    assert max(page.evaluate(heights)) < 150
    story.measure(0, until=60)
    wait_for_drawn(page, "learning-curves", {0})
    best, curves = page.evaluate(heights)
    assert best >= curves > 300
    story.run(1)
    wait_for_drawn(page, "best-so-far", {1})
    assert min(page.evaluate(heights)) > 300
    drawn = "document.querySelector('#learning-curves .main-svg').clientHeight"
    assert page.evaluate(drawn) == page.evaluate(heights)[1]


@pytest.mark.parametrize("is_over", [False, True])
def test_a_job_without_a_trial_takes_little_room_for_what_it_cannot_draw(
    page: Page, sqlite_database: Database, is_over: bool
) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(minutes=1))
    if is_over:
        story.finish()
    open_page(page, story)
    page.locator("#timeline").scroll_into_view_if_needed()
    expect(page.locator("#timeline")).to_contain_class("nothing")
    charts = ["best-so-far", "learning-curves", "timeline"]
    heights = page.evaluate("ids => ids.map(id => document.getElementById(id).clientHeight)", charts)
    assert max(heights) <= 80
    lines = page.get_by_role("region", name="Parallel coordinates")
    expect(lines).to_have_count(0)
    if not is_over:
        story.run(0)
        lines.scroll_into_view_if_needed()
        expect(page.locator("#parallel")).to_have_attribute("data-lines", "1")


def test_values_that_are_told_alike_have_an_axis_that_tells_them(page: Page, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(minutes=1))
    story.run(0, 0.1040202)
    open_page(page, story)
    wait_until_live(page)
    for numbers in ({0}, {0, 2}):  # a single one, too
        if len(numbers) == 2:
            story.run(2, 0.1040200)
        wait_for_drawn(page, "best-so-far", numbers)
        low, high = page.evaluate("document.getElementById('best-so-far')._fullLayout.yaxis.range")
        assert 0.09 < low < 0.1
        assert 0.108 < high < 0.118


def test_the_axis_of_values_has_numbers_where_a_trial_has_a_value(page: Page, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(minutes=1))
    for number in range(2):
        story.begin(number)
        story.diverge(number)
    open_page(page, story)
    lines = page.locator("#parallel")
    lines.scroll_into_view_if_needed()
    expect(lines).to_have_attribute("data-lines", "2")
    axes = lines.locator("g[data-axis]")
    expect(axes.last.locator("text")).to_have_count(0)
    assert axes.first.locator("text").count() > 1


def test_the_charts_of_a_job_fill_the_page_however_wide_it_is(page: Page, finished: Story) -> None:
    open_page(page, finished)
    best, curves, timeline = (
        page.locator("section.chart", has=page.locator(f"#{name}"))
        for name in ("best-so-far", "learning-curves", "timeline")
    )
    for width in (600, 1280, 1600, 2600):
        page.set_viewport_size({"width": width, "height": 900})
        first, second, whole = (
            box.evaluate("(box) => box.getBoundingClientRect().toJSON()") for box in (best, curves, timeline)
        )
        assert (first["left"], second["right"]) == (whole["left"], whole["right"]), width
        assert (first["y"] == second["y"]) == (width > 1000), width


def test_a_long_name_of_a_metric_stands_whole_beside_its_axes_and_widens_no_page(
    page: Page, sqlite_database: Database
) -> None:
    lines = ["validation_loss_of_the_averaged_", "weights_on_held_out_shards"]
    metrics = dict.fromkeys(["".join(lines), "throughput_in_examples_per_second", "memory_of_a_rank"], "minimize")
    external = {"lease_seconds": 60.0, "metrics": metrics}
    submit_external(sqlite_database, external=external, objectives=[{"metric": metric} for metric in metrics])
    lease = claim(sqlite_database, add_worker(sqlite_database))
    assert lease is not None
    begin_trial(sqlite_database, lease, 0)
    reported = [
        Measurement(step=step, epoch=1.0, seconds=step / 10, metrics=dict.fromkeys(metrics, 1 / step))
        for step in (5, 10)
    ]
    with sqlite_database.writing() as session:
        record_measurements(session, lease, [TrialMeasurements(0, reported)], now=NOW)
    end_trial(sqlite_database, lease, 0)

    pages = {"": ["best-so-far", "learning-curves", "trade-off"], "/trials/0": ["curve"], "/report": []}
    for path, charts in pages.items():
        page.goto(f"/jobs/{lease.job_id}{path}")
        for chart in charts:
            title = page.locator(f"#{chart} .ytitle")
            expect(title.locator("tspan.line")).to_have_text(
                ["validation_loss_of_the_averaged_", "weights_on_held_out_shards"]
            )
            inner, outer = title.bounding_box(), page.locator(f"#{chart}").bounding_box()
            assert inner is not None
            assert outer is not None
            assert outer["x"] <= inner["x"], chart
            assert outer["y"] <= inner["y"], chart
            assert inner["y"] + inner["height"] <= outer["y"] + outer["height"], chart
        page.set_viewport_size({"width": 390, "height": 844})
        wait_for(page, "() => innerWidth === 390 && document.documentElement.scrollWidth === 390")
        page.set_viewport_size({"width": 1280, "height": 900})
