"""The pages for those who read them by keyboard or screen reader, and for readers who are in the middle of one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from service.domain import TrialState
from service.store.session import Database
from tests.service.dashboard.conftest import open_page, wait_until_live
from tests.support.service.external import submit_external
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.stories.jobs import Story, submit_digits
from tests.support.service.stories.trials import print_lines


def test_axe_finds_nothing_on_the_pages_of_a_job_that_has_ended(page: Page, finished: Story) -> None:
    for address in ("/", "/login", f"/jobs/{finished.job_id}/trials/0/logs"):
        page.goto(address)
        assert_accessible(page)
    open_page(page, finished)
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert_accessible(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert_accessible(page)


def test_axe_finds_nothing_while_a_job_runs_and_its_dialogs_are_open(page: Page, running: Story) -> None:
    running.begin(5)
    print_lines(running, 5, ["begun"])
    running.begin(6)
    running.diverge(6)
    open_page(page, running)
    wait_until_live(page)
    expect(page.locator("#trials").get_by_role("button", name="Retry trial 6")).to_be_visible()
    assert_accessible(page)
    page.locator("#cancel").click()
    expect(page.locator("#confirm-cancel")).to_be_visible()
    assert_accessible(page)


@pytest.mark.parametrize(
    ("metric", "num_lines"),
    [("validation_loss", 1), ("validation_loss_of_the_averaged_weights_on_held_out_shards", 3)],
)
def test_the_name_of_a_metric_is_read_in_lines_beside_or_above_its_range(
    page: Page, sqlite_database: Database, metric: str, num_lines: int
) -> None:
    external = {"lease_seconds": 60.0, "metrics": {metric: "minimize"}}
    job = submit_external(sqlite_database, external=external, objectives=[{"metric": metric}])
    page.goto(f"/jobs/{job}")
    filters = page.locator("#trial-filters")
    for width in (320, 390, 640, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        legend, low, high = filters.evaluate(
            """(form) => [...form.querySelectorAll('[data-range=""] :is(legend, input)')].map(
                 (part) => part.getBoundingClientRect().toJSON())"""
        )
        assert legend["height"] <= 20 * num_lines, width
        assert low["y"] == high["y"], width
        assert min(low["width"], high["width"]) >= 90, width
        assert high["x"] + high["width"] <= width
        # Charts follow the width a moment later.
        page.wait_for_function("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_end_of_a_job_does_not_move_what_the_reader_looks_at(page: Page, running: Story) -> None:
    page.set_viewport_size({"width": 1280, "height": 700})
    open_page(page, running)
    wait_until_live(page)
    row = page.locator("#trials-title")
    row.evaluate("title => scrollTo({top: title.getBoundingClientRect().top + scrollY - 40, behavior: 'instant'})")
    before = row.bounding_box()
    running.run(5)
    running.begin(6)
    running.end(6, TrialState.COMPLETED)
    running.finish()
    expect(page.locator("#recommendation h2")).to_be_attached()
    expect(page.locator("#stream")).to_be_hidden()
    after = row.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) <= 1.0


def test_a_job_that_is_over_expects_no_more_data(page: Page, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC))
    open_page(page, story)
    wait_until_live(page)
    told = """ids => ids.map((id) => getComputedStyle(document.getElementById(id), '::after').content)"""
    charts = ["best-so-far", "learning-curves"]
    expect(page.locator("#learning-curves")).to_contain_class("nothing")
    assert page.evaluate(told, charts) == ['"No data yet"', '"No data yet"']
    story.finish()
    expect(page.locator("#stream")).to_be_hidden()
    assert page.evaluate(told, charts) == ['"No trial completed"', '"Nothing was measured"']


def test_names_of_jobs_run_in_the_direction_of_their_language(page: Page, sqlite_database: Database) -> None:
    name = "ضبط (v2) 7 - نهاية"
    submitted = submit_digits(sqlite_database, now=datetime.now(UTC), name=name)
    end_of = """(element) => {
      const text = document.createTreeWalker(element, NodeFilter.SHOW_TEXT).nextNode();
      const place = (at) => {
        const range = document.createRange();
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        return range.getBoundingClientRect().x;
      };
      return place(0) - place(text.data.length - 1);
    }"""
    page.goto("/")
    assert page.locator("#jobs a.name").evaluate(end_of) > 0
    page.goto(f"/jobs/{submitted}")
    assert page.get_by_role("heading", level=1).evaluate(end_of) > 0


def test_a_mark_of_direction_in_a_models_name_turns_no_words_round_beside_it(
    page: Page, sqlite_database: Database
) -> None:
    submit_digits(sqlite_database, now=datetime.now(UTC), name="marked", model="a\u202eb")
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto("/")
    words = page.locator("#jobs .sub", has_text="validation_loss")
    arrow, id_of_job = words.locator(".arrow").bounding_box(), words.locator(".id").bounding_box()
    assert arrow is not None
    assert id_of_job is not None
    assert (arrow["y"], arrow["x"]) < (id_of_job["y"], id_of_job["x"])


def test_long_names_of_compared_jobs_fit_a_phone(page: Page, sqlite_database: Database) -> None:
    name, model = "a_job_without_a_space_" * 9, "m" * 200
    jobs = [submit_digits(sqlite_database, now=datetime.now(UTC), name=name, model=model) for _ in range(3)]
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"/compare?jobs={jobs[0]},{jobs[1]}")
    page.locator("summary", has_text="Add a job").click()
    expect(page.get_by_role("link", name=f"Add {name}")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
