"""The pages in a real browser. The `page` fixture fails any test whose page logs an error or asks another host."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, Route, expect

from service.dashboard.assets import PLOTLY_FILE
from service.domain import TrialState
from service.store.session import Database
from tests.service.dashboard.conftest import (
    drawn_trials,
    open_page,
    wait_for,
    wait_for_drawn,
    wait_until_live,
)
from tests.support.service import live
from tests.support.service.pages.accessible import LOW_CONTRAST
from tests.support.service.stories.jobs import Story, submit_digits

NAME_WITH_SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


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
    expect(rows.nth(1).locator("time").first).to_have_text("2 h ago")
    rows.nth(1).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("digits, first look")


def test_a_long_list_comes_in_pages(page: Page, sqlite_database: Database) -> None:
    now = datetime.now(UTC)
    for number in range(30):
        submit_digits(sqlite_database, now=now, name=f"job number {number}")
    page.goto("/?state=queued")
    expect(page.locator("table.jobs tbody tr")).to_have_count(25)
    page.get_by_role("link", name="Next").click()
    expect(page.locator("table.jobs tbody tr")).to_have_count(5)
    page.get_by_role("link", name="First").click()
    expect(page.locator("table.jobs tbody tr")).to_have_count(25)
    page.get_by_role("link", name="running").click()
    expect(page.locator("#jobs")).to_contain_text("No running jobs are found.")


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


def test_a_finished_job_answers_first_and_its_config_is_copied_as_python(page: Page, finished: Story) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_page(page, finished)
    expect(page.locator("#answer h2")).to_contain_text("Undecided: too few trials to tell Shampoo from AdamW")
    expect(page.locator("#answer")).to_contain_text("trial #13")
    expect(page.locator("#recommendation h2")).to_have_text("Recommended config provisional")
    expect(page.locator("#recommendation")).to_contain_text("precondition_frequency")
    expect(page.locator("#trials tbody tr")).to_have_count(20)
    expect(page.locator("#trials tbody tr.best")).to_have_count(2)
    expect(page.locator("#cancel")).to_have_count(0)
    expect(page.locator("#stream")).to_be_hidden()
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "Shampoo(\n    model.parameters()," in copied
    compile(copied, "copied", "exec")

    # A wide screen shows the answer beside the config, and all columns.
    page.set_viewport_size({"width": 2560, "height": 1200})
    answer, config = (page.locator(f"#{part}").bounding_box() for part in ("answer", "recommendation"))
    assert answer is not None
    assert config is not None
    assert config["x"] > answer["x"] + answer["width"]
    assert page.locator("#trials").evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
    heights = "all => all.map(one => one.clientHeight)"
    for named in ("#recommendation .config dt", "#answer .figures .value"):
        assert max(page.locator(named).evaluate_all(heights)) < 35, named  # no name and no figure has two lines


def test_a_confirmed_job_shows_the_seeds_behind_its_answer(page: Page, confirmed: Story) -> None:
    open_page(page, confirmed)
    expect(page.locator("#answer h2")).to_contain_text("Shampoo beats AdamW by")
    expect(page.locator("#answer .detail")).to_contain_text("Over 3 new seeds, the improvement lies between +")
    expect(page.locator("#answer")).to_contain_text("mean of 3 new seeds, config of trial #8")
    expect(page.locator("#answer .caveats li")).to_have_text(
        "The recommended config (Shampoo, trial 8): its search value 0.07330 was luck: it has 0.07680 ± 0.00030 (mean "
        "of 3 new seeds), and by these seeds another would lie between 0.07531 and 0.07829 (95% interval). Trial 8"
    )
    expect(page.locator("#answer .caveats").get_by_role("link")).to_have_attribute(
        "href", f"/jobs/{confirmed.job_id}/trials/8"
    )
    # What to paste comes before what to mend.
    parts = ("answer", "recommendation", "health", "confirmation")
    tops = [page.locator(f"#{part}").evaluate("part => part.getBoundingClientRect().top") for part in parts]
    assert tops == sorted(tops)
    expect(page.locator("#budget")).to_contain_text("41 of 41 trials finished, 9 of 9 to confirm (22% of the trials)")
    page.locator("#confirmation summary").click()
    table = page.get_by_role("region", name="Trained again with new seeds")
    expect(table.get_by_role("columnheader")).to_have_text(
        ["Config of trial", "Search value", "Mean", "±", "Is the best", "seed 1 chose", "seed 2", "seed 3", "seed 4"]
    )
    rows = table.locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("#8 Shampoo")
    expect(page.locator("#trials tbody tr.best")).to_have_count(2)
    expect(page.locator("#trial-8")).to_contain_class("best")
    expect(rows.nth(2)).to_contain_text("baseline")
    expect(page.locator("#trial-33")).to_contain_text("confirms #8, seed 1")
    expect(page.locator("#trial-33 .phase")).to_have_attribute("data-phase", "search")
    expect(page.locator("#trial-34 .phase")).to_have_attribute("data-phase", "baseline")
    # The confirmation seeks nothing: it has no line of its own, but curves.
    assert drawn_trials(page, "best-so-far") < set(range(32))
    assert drawn_trials(page, "learning-curves") == set(range(41))
    shown = page.get_by_role("group", name="Curves shown in the chart").get_by_role("button")
    expect(shown).to_have_text(
        ["Shampoo", "AdamW", "Shampoo, confirmation", "AdamW, confirmation", "ended early", "diverged"]
    )


def test_an_open_page_follows_the_job_to_its_end(page: Page, running: Story) -> None:
    open_page(page, running)
    wait_until_live(page)
    page.evaluate("window.notReloaded = true")
    expect(page.locator("#budget")).to_contain_text("5 of 20 trials finished")

    running.begin(5)
    expect(page.locator("#trial-5")).to_contain_text("running")
    running.measure(5, until=100)
    expect(page.locator("#trial-5")).to_contain_text("100/200")
    wait_for_drawn(page, "learning-curves", set(range(6)))
    running.measure(5, until=200, final=0.05)
    running.end(5, TrialState.COMPLETED)
    expect(page.locator("#trial-5")).to_contain_text("completed")
    expect(page.locator("#budget")).to_contain_text("6 of 20 trials finished")
    expect(page.locator("#budget [role=status]")).to_have_text("running: 6 of 20 trials finished")
    expect(page.locator("#answer")).to_contain_text("trial #5")
    running.begin(6)
    running.diverge(6)
    expect(page.locator("#trial-6")).to_contain_text("failed (diverged)")
    wait_for_drawn(page, "learning-curves", set(range(7)))

    running.finish()
    expect(page.locator("#facts")).to_contain_text("succeeded")
    expect(page.locator("#recommendation h2")).to_be_visible()
    expect(page.locator("#cancel")).to_have_count(0)
    expect(page.locator("#stream")).to_be_hidden()
    assert page.evaluate("window.notReloaded") is True


def test_a_page_opened_before_the_first_trial_draws_it_and_says_why_the_job_failed(
    page: Page, sqlite_database: Database
) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC))
    open_page(page, story)
    expect(page.locator("#trials")).to_contain_text("No trial has been started yet.")
    wait_until_live(page)
    story.run(0)
    expect(page.locator("#trial-0")).to_contain_text("completed")
    wait_for_drawn(page, "learning-curves", {0})
    story.run(6)
    story.finish("the ranks ran out of memory <b>twice</b>")
    expect(page.locator("#failure")).to_contain_text("the ranks ran out of memory <b>twice</b>")
    expect(page.locator("#failure").get_by_role("link")).to_have_text(["Failed trials", "Edit and clone"])
    page.get_by_role("link", name="Failed trials").click()
    expect(page.locator("#trials tbody tr")).to_have_count(1)
    expect(page.locator("#trial-6")).to_contain_text("failed (diverged)")


def test_an_open_page_survives_a_restart_of_the_service(
    lenient_page: Page, port: int, running: Story, sqlite_database: Database, tmp_path: Path
) -> None:
    page = lenient_page
    aborted = []

    def abort(route: Route) -> None:
        aborted.append(route.request.url)
        route.abort()

    page.route(f"**/{PLOTLY_FILE}", abort, times=1)  # the service stopped while it was asked for
    with live.running(sqlite_database, port=port, data_dir=tmp_path):
        page.goto(f"/jobs/{running.job_id}")
        wait_until_live(page)
    expect(page.locator("#stream")).to_have_text("connection lost, trying again")
    running.run(5)
    with live.running(sqlite_database, port=port, data_dir=tmp_path):
        expect(page.locator("#trial-5")).to_contain_text("completed")
        wait_until_live(page)
        wait_for_drawn(page, "learning-curves", set(range(6)))
    assert len(aborted) == 1


def test_what_users_wrote_stays_text(page: Page, sqlite_database: Database) -> None:
    now = datetime.now(UTC)
    job_id = submit_digits(sqlite_database, now=now, name=NAME_WITH_SCRIPT, tags={NAME_WITH_SCRIPT: NAME_WITH_SCRIPT})
    page.goto("/")
    expect(page.get_by_role("link", name=NAME_WITH_SCRIPT)).to_be_visible()
    wait_until_live(page)
    page.goto(f"/jobs/{job_id}")
    expect(page.get_by_role("heading", level=1)).to_have_text(NAME_WITH_SCRIPT)
    assert page.title().startswith(f"queued: {NAME_WITH_SCRIPT}")
    wait_until_live(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img").count() == 0


def assert_nothing_is_wider(page: Page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    plots = page.locator(".plot .main-svg").all()
    assert all((plot.bounding_box() or {"width": 0})["width"] <= width for plot in plots)


def open_details(page: Page) -> None:
    page.locator("summary").first.click()
    page.locator("summary").last.click()


def test_no_page_scrolls_sideways_on_a_phone(page: Page, finished: Story) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/")
    assert_nothing_is_wider(page, 390)
    open_page(page, finished)
    open_details(page)
    assert_nothing_is_wider(page, 390)


def test_on_a_phone_the_figures_of_the_answer_come_before_the_words_on_them(page: Page, confirmed: Story) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, confirmed)
    figures, words = (page.locator(f"#answer {part}").bounding_box() for part in (".figures", ".detail"))
    assert figures is not None
    assert words is not None
    assert figures["y"] + figures["height"] <= words["y"]
    assert figures["y"] < 420, "a wall of prose or of buttons stands in front of them"
    expect(page.locator("#answer .speed").first).to_be_visible()


@pytest.mark.usefixtures("address")
def test_an_unknown_address_is_a_page_that_leads_back_and_does_not_scroll_sideways(
    lenient_page: Page,
) -> None:
    page = lenient_page
    page.set_viewport_size({"width": 390, "height": 900})
    for path in ("/" + "nope" * 100, "/jobs/job_" + "x" * 400):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 404
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("link", name="All jobs").click()
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()


def switch_to(page: Page, scheme: Literal["light", "dark"]) -> None:
    """Has the open page of a job follow another setting of the system: its background and its charts change."""
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("document.getElementById('best-so-far').layout.font.color")
    page.emulate_media(color_scheme=scheme)
    wait_for(page, "ink => document.getElementById('best-so-far').layout.font.color !== ink", ink)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_the_pages_are_marked_up_for_screen_readers_and_have_the_contrast_of_wcag_aa_in_light_and_dark(
    page: Page, finished: Story
) -> None:
    page.goto("/")
    assert_nothing_is_wider(page, 1280)
    expect(page.get_by_role("table", name="Jobs, newest first")).to_be_visible()
    assert page.evaluate(LOW_CONTRAST) == []
    page.emulate_media(color_scheme="dark")
    page.goto("/")
    assert page.evaluate(LOW_CONTRAST) == []
    open_page(page, finished)
    levels = page.evaluate("[...document.querySelectorAll('main :is(h1, h2, h3)')].map((h) => h.localName)")
    assert levels[0] == "h1"
    assert set(levels[1:]) == {"h2"}
    expect(page.get_by_role("img", name="Line chart: best validation_loss")).to_be_visible()
    expect(page.get_by_role("img", name="20 of 20 trials finished")).to_be_visible()
    assert page.locator("button:not([type]):not(dialog button)").count() == 0
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    open_details(page)
    assert_nothing_is_wider(page, 1280)
    # The charts follow the open page.
    assert page.evaluate(LOW_CONTRAST) == []
    switch_to(page, "light")
    assert page.evaluate(LOW_CONTRAST) == []
    switch_to(page, "dark")
    assert page.evaluate(LOW_CONTRAST) == []
