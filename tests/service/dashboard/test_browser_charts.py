"""The charts of a job in a real browser: every trial is drawn, named under the pointer and found in the table."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from service.api.figures import PlotTrial, learning_curves
from service.domain import Direction, Phase, TrialState
from service.store.session import Database
from tests.service.dashboard.conftest import (
    num_traces,
    open_page,
    wait_for,
    wait_for_traces,
)
from tests.support.service.stories import Story


def _hovered(page: Page, chart: str, trace: dict[str, object], point: int = -1) -> str:
    """The text of the label over a point of the trace with this mode and these values of `meta`.

    The chart looks at the pointer now and then, and may move meanwhile: until it has seen the pointer at the point,
    another label stands, or none.
    """
    page.locator(f"#{chart}").scroll_into_view_if_needed()
    find = """([id, { mode, ...meta }, point]) => {
      const plot = document.getElementById(id), { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
      const same = (trace) => Object.entries(meta).every(([key, value]) => trace.meta[key] === value);
      const { x, y } = plot.data.find((trace) => trace.mode === mode && same(trace));
      return [box.left + xaxis._offset + xaxis.d2p(x.at(point)), box.top + yaxis._offset + yaxis.d2p(y.at(point))];
    }"""
    is_over = """([id, { mode, ...meta }, point]) => {
      const plot = document.getElementById(id), hovered = plot._hoverdata ?? [];
      if (hovered.length !== 1) return false;
      const { data, pointNumber } = hovered[0], found = Object.entries(meta).every(([k, v]) => data.meta[k] === v);
      return found && data.mode === mode && pointNumber === (point + data.x.length) % data.x.length;
    }"""
    label = page.locator(f"#{chart} .hoverlayer .hovertext text.nums")
    page.mouse.move(0, 0)
    expect(label).to_have_count(0)

    there = None
    while not page.evaluate(is_over, [chart, trace, point]):
        was, there = there, page.evaluate(find, [chart, trace, point])
        if there != was:
            page.mouse.move(there[0] - 3, there[1] - 3)
            page.mouse.move(*there)
        page.wait_for_timeout(50)
    expect(label).to_have_count(1)
    return "\n".join(label.locator("tspan.line").all_text_contents() or label.all_text_contents())


def test_both_charts_draw_every_trial(page: Page, finished: Story) -> None:
    open_page(page, finished)
    # A line and the trials' dots for each of the two phases.
    assert num_traces(page, "best-so-far") == 4
    # Twenty curves, and a cross for each of the two that diverged.
    assert num_traces(page, "learning-curves") == 22
    axis = page.evaluate("document.getElementById('learning-curves').layout.yaxis.type")
    assert axis == "log"
    page.get_by_role("button", name="time", exact=True).click()
    wait_for(page, "() => document.getElementById('best-so-far').layout.xaxis.title.text.startsWith('seconds')")


def test_every_chart_says_what_the_pointer_is_over(page: Page, sqlite_database: Database) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}]
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(hours=1), objectives=objectives)
    for number, final in enumerate([0.9, 0.7, 0.5, 1.1]):
        story.run(number, final)
    story.run(6)  # diverges
    open_page(page, story)
    wait_for_traces(page, "trade-off", 3)
    curve = _hovered(page, "learning-curves", {"mode": "lines", "number": 2}, 12)
    assert curve.splitlines()[0] == "#2 Shampoo, completed"
    assert "lr = " in curve
    assert re.search(r"^step 130: 0\.\d+$", curve.splitlines()[-1])
    cross = _hovered(page, "learning-curves", {"mode": "lines", "number": 6}, 2)
    assert cross.splitlines()[0] == "#6 Shampoo, failed (diverged)"
    assert re.search(r"^step 30: \d+\.\d+; then it diverged$", cross.splitlines()[-1])
    assert _hovered(page, "best-so-far", {"mode": "markers", "role": "search"}, 1) == "#1 Shampoo\n0.7000"
    assert _hovered(page, "best-so-far", {"mode": "lines", "role": "search"}) == "Shampoo\nbest found 0.5000"
    assert _hovered(page, "best-so-far", {"mode": "markers", "role": "baseline"}) == "#3 AdamW\n1.100"
    point = _hovered(page, "trade-off", {"mode": "markers", "role": "baseline"})
    assert point.splitlines()[0] == "#3 AdamW, completed"
    assert point.splitlines()[-1].endswith(", 1.100")


def test_names_are_shown_as_they_are_over_a_curve(page: Page, finished: Story) -> None:
    open_page(page, finished)  # nothing more comes of an ended job, so the figure stays
    wait_for_traces(page, "learning-curves", 22)
    hostile = PlotTrial(
        7,
        Phase.SEARCH,
        TrialState.COMPLETED,
        parameters={"%{x}": "%{y}", "a<br>b": "<b>c</b>&lt;", "%d": "100%"},
        points=[(10, 2.0), (20, 1.0)],
    )
    labels: dict[str, str] = {Phase.SEARCH: "%{x}<extra>", Phase.BASELINE: "AdamW"}
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
    wait_for_traces(page, "trade-off", 3)
    title = "() => document.getElementById('trade-off').layout.xaxis.title.text"
    assert page.evaluate(title) == "validation_accuracy"
    page.get_by_role("button", name="train_loss", exact=True).click()
    wait_for(page, f"() => ({title})() === 'train_loss'")
    story.run(8)
    wait_for(page, "() => document.getElementById('trade-off').data[0].x.length === 6")
    assert page.evaluate(title) == "train_loss"


def test_a_picked_trial_stands_out_in_table_and_chart(page: Page, finished: Story) -> None:
    open_page(page, finished)
    button = page.get_by_role("button", name="Trial 13: highlight its curve")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    last = "document.getElementById('learning-curves').data.at(-1)"
    wait_for(page, f"() => {last}.meta.number === 13 && {last}.line.width > 3")
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")
    wait_for(page, f"() => {last}.meta.number === 19")


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
