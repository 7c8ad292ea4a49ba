"""Charts of a job in a real browser: curves and trials far worse than all others do not squeeze these."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from service.store.session import Database
from tests.service.dashboard.conftest import open_page, wait_for, wait_for_drawn
from tests.support.service.stories.jobs import Story


def _wait_for_range(page: Page, chart: str, low: tuple[float, float], high: tuple[float, float]) -> None:
    """Waits until the vertical axis of a chart begins and ends between these values."""
    wait_for(
        page,
        """([id, ...wanted]) => {
          const axis = document.getElementById(id)._fullLayout?.yaxis;
          const ends = axis?.range.map((end) => (axis.type === "log" ? 10 ** end : end));
          return ends?.every((end, index) => wanted[index][0] < end && end < wanted[index][1]);
        }""",
        [chart, low, high],
    )


def test_outliers_are_left_out_and_said_and_a_button_brings_them_back(page: Page, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(hours=1))
    for number, final in enumerate([0.3, 0.25, 40_000.0, 0.2, 0.22, 0.35, None, 0.21, 0.4]):
        story.run(number, final)  # trial 6 diverges from 2.4 to 11
    story.finish()
    open_page(page, story)
    wait_for_drawn(page, "learning-curves", set(range(9)))
    section = page.locator("section", has=page.locator("#learning-curves"))
    expect(section.locator(".note")).to_contain_text(re.compile(r"Left out as outliers: 2 curves above 1\.\d+\.$"))
    _wait_for_range(page, "learning-curves", (0, 0.2), (1.8, 2))
    best = page.locator("section", has=page.locator("#best-so-far"))
    expect(best.locator(".note")).to_contain_text("Left out as outliers: 1 trial above 0.4.")
    _wait_for_range(page, "best-so-far", (0.18, 0.2), (0.4, 0.42))

    section.get_by_role("button", name="outliers").click()
    expect(section.locator(".note")).not_to_contain_text("Left out")
    _wait_for_range(page, "learning-curves", (0, 0.2), (4e4, 2e5))
    expect(section.get_by_role("button", name="outliers")).to_have_attribute("aria-pressed", "true")
    expect(best.locator(".note")).to_contain_text("Left out as outliers: 1 trial above 0.4.")
    page.reload()
    _wait_for_range(page, "learning-curves", (0, 0.2), (4e4, 2e5))
    section.get_by_role("button", name="outliers").click()
    _wait_for_range(page, "learning-curves", (0, 0.2), (1.8, 2))
    assert "outliers" not in page.url


@pytest.mark.parametrize(
    ("worst", "best", "direction", "scale", "expected"),
    [
        pytest.param([2.0, 2.1, 2.2, 2.3, 900.0], 0.1, "minimize", None, (1, True, 2.3), id="a high loss"),
        pytest.param([0.1, 0.1, 0.1, 0.1, -70.0], 0.9, "maximize", None, (1, False, 0.1), id="a low reward"),
        pytest.param([0.1, 0.1, 0.1, 0.1, 0.0], 0.9, "maximize", None, None, id="chance"),
        pytest.param([2.0, 2.1, 2.2, 2.3], 1e-9, "minimize", None, None, id="the best is no outlier"),
        pytest.param([2.0, 2.1, 2.2, 2.3, 3.0], 0.1, "minimize", None, None, id="little room"),
        pytest.param([2.0, 2.1, 900.0], 0.1, "minimize", None, None, id="few curves"),
        pytest.param([2.0, 3.0, 900.0, 1e3, 2e3], 0.1, "minimize", None, None, id="many of them"),
        pytest.param([2.0, 2.1, 2.2, 2.3, 30.0], 1e-4, "minimize", None, None, id="of a logarithmic axis"),
        pytest.param([2.0, 2.1, 2.2, 2.3, 30.0], 1e-4, "minimize", "linear", (1, True, 2.3), id="of a linear axis"),
        pytest.param([2.0, 2.1, 2.2, 2.3, 900.0], 0.1, None, None, (1, True, 2.3), id="nobody knows the direction"),
        pytest.param([5.0, 5.0, 5.0, 5.0], 5.0, "minimize", None, None, id="equal values"),
    ],
)
def test_outliers_are_by_tukeys_fences_on_the_bad_side_alone(
    page: Page,
    worst: list[float],
    best: float,
    direction: str | None,
    scale: str | None,
    expected: tuple[int, bool, float] | None,
) -> None:
    page.goto("/static/charts/outliers.js")
    found = page.evaluate(
        """async ([worst, best, direction, scale]) => {
          const { outliersOf } = await import("/static/charts/outliers.js");
          return outliersOf(worst, best, { direction, scale });
        }""",
        [worst, best, direction, scale],
    )
    assert (found and (found["number"], found["isAbove"], found["end"])) == expected
