"""The report of a job: the whole answer in one file that asks for nothing else."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect
from typer.testing import CliRunner

from service.access.caller import Scope
from service.cli.commands import app
from service.dashboard.report.drawing import drawing_of, nice_ticks
from service.dashboard.written_json import LONGEST, written
from service.domain import JobState
from service.store.session import Database
from tests.service.dashboard.conftest import open_context
from tests.support.service.callers import asking, give_token
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.scenarios import submit
from tests.support.service.stories.jobs import Story
from tests.support.waiting import PATIENCE_SECONDS

NAME = "digits <script>window.hacked = 1</script>"


@pytest.fixture
def confirmed(sqlite_database: Database) -> Story:
    """A job whose best configs were trained again with four seeds."""
    story = Story(
        sqlite_database,
        now=datetime.now(UTC),
        name=NAME,
        budget={"num_trials": 32},
        confirmation={"top_k": 2, "num_seeds": 4},
    )
    for number in range(32):
        story.run(number, {13: 0.0712, 8: 0.0733, 11: 0.0871}.get(number))
    chosen = [(13, 1, 0.0832), (8, 1, 0.0771), (11, 1, 0.0878)]
    compared = [
        (source, seed, final) for seed in (2, 3, 4) for source, final in ((8, 0.0768), (11, 0.0875 + seed / 1e4))
    ]
    for number, (source, seed, value) in enumerate([*chosen, *compared], start=32):
        story.confirm(number, source, seed, value)
    assert story.finish() is JobState.SUCCEEDED
    return story


def test_a_report_from_the_command_line_opens_from_disk_and_holds_the_whole_answer(
    browser: Browser, address: str, confirmed: Story, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    written = CliRunner().invoke(app, ["report", confirmed.job_id, "-o", str(path), "--url", address])
    assert written.exit_code == 0, written.output
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text
    assert not re.search(r"""(src|href)=["']/""", text)  # nothing that only the service has
    context = open_context(browser)
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text(NAME)
    expect(page.locator(".verdict h2")).to_contain_text("Shampoo beats AdamW by")
    expect(page.locator(".standing")).to_have_text(
        "Confirmed against the baseline: with 3 new seeds it fell behind the value that it was found with, and beat "
        "the baseline"
    )
    expect(page.locator("svg.drawing")).to_have_count(2)
    expect(
        page.get_by_role("img", name="Learning curves of the best configs: validation_loss over step")
    ).to_be_visible()
    expect(page.locator("table.seeds tbody tr")).to_have_count(3)
    expect(page.locator(".health li").first).to_contain_text("The baseline is under-tuned")
    expect(page.get_by_text("Shampoo(\n    model.parameters(),")).to_be_visible()
    expect(page.get_by_text('"num_trials": 32')).to_be_visible()
    assert page.evaluate("window.hacked") is None
    assert_accessible(page)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()


def test_a_report_of_a_job_without_an_answer_says_what_there_is(address: str, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC))
    report = httpx.get(f"{address}/jobs/{story.job_id}/report", trust_env=False, timeout=PATIENCE_SECONDS, verify=False)
    assert report.status_code == 200
    assert "The job has not ended: all of this may change." in report.text
    assert '<svg class="drawing"' not in report.text
    story.finish("no such module")
    report = httpx.get(f"{address}/jobs/{story.job_id}/report", trust_env=False, timeout=PATIENCE_SECONDS, verify=False)
    assert 'The job failed:</b> <span class="verbatim">no such module</span>' in report.text
    missing = CliRunner().invoke(app, ["report", "job_none", "-o", "-", "--url", address])
    assert missing.exit_code != 0
    assert "job_none" in missing.output


def test_a_figure_is_drawn_in_the_coordinates_of_the_page() -> None:
    trace = {
        "mode": "lines",
        "name": "a &lt; b",
        "x": [0, 10],
        "y": [1.0, 3.0],
        "line": {"color": "#123456", "shape": "hv"},
    }
    dots = {**trace, "mode": "markers", "marker": {"color": "#654321"}, "showlegend": False, "y": [2.0, None]}
    axes = {"xaxis": {"title": {"text": "step"}}, "yaxis": {"title": {"text": "loss"}, "type": "linear"}}
    drawing = drawing_of({"data": [trace, dots], "layout": axes})
    assert drawing is not None
    steps, points = drawing.lines
    assert steps.points == [(64.0, 278.0), (696.0, 278.0), (696.0, 10.0), (696.0, 10.0)]
    assert (points.points, points.is_dots) == ([(64.0, 144.0)], True)
    assert [key.name for key in drawing.keys] == ["a < b"]
    assert [tick.text for tick in drawing.y_ticks] == ["1", "1.5", "2", "2.5", "3"]
    assert drawing_of({"data": [], "layout": axes}) is None


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 200.0, [0, 50, 100, 150, 200]),
        (0.07, 0.31, [0.1, 0.15, 0.2, 0.25, 0.3]),
        (-1.0, 1.0, [-1, -0.5, 0, 0.5, 1]),
        (3.0, 3.0, [3]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert nice_ticks(low, high) == ticks


@pytest.mark.parametrize(
    "value",
    [{}, [], {"a": {"b": [{}, []]}}, [[1, 2], {"é": None}], {"x": 'a"b', "y": [0.1, True, None, "\n"]}, "text", 7],
)
def test_json_for_people_is_that_of_the_value(value: Any) -> None:
    assert json.loads(written(value)) == value


def test_plain_values_of_a_list_stand_on_one_line() -> None:
    value: Any = {"sizes": [64, 32], "pinned": [{"lr": 0.1}, {"betas": [0.9, 0.99]}]}
    assert written(value).splitlines() == [
        "{",
        '  "sizes": [64, 32],',
        '  "pinned": [',
        "    {",
        '      "lr": 0.1',
        "    },",
        "    {",
        '      "betas": [0.9, 0.99]',
        "    }",
        "  ]",
        "}",
    ]


def test_a_job_of_very_many_numbers_has_a_page_that_can_be_read_and_a_whole_report(sqlite_database: Database) -> None:
    sizes = [1] * 400_000
    large = submit(sqlite_database, workload={"name": "digits-mlp", "options": {"hidden_sizes": sizes}})
    usual = submit(sqlite_database)
    with asking(sqlite_database) as asked, asked.client(give_token(sqlite_database, "ada", Scope.READ)) as http:
        page, report = http.get(f"/jobs/{large}").text, http.get(f"/jobs/{large}/report").text
        other = http.get(f"/jobs/{usual}").text
    assert len(page) < LONGEST + 100_000
    link = f'<a href="/v1/jobs/{large}">all of the job as JSON</a>'
    assert link in page
    assert ", ".join(map(str, sizes)) in report
    assert "all of the job as JSON" not in other
