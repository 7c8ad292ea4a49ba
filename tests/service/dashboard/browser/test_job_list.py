"""The list of jobs in a real browser: many jobs at once, and rows that stay where they are."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from service.domain import JobState
from service.store.repositories import JobRepository
from service.store.session import Database
from tests.service.dashboard.conftest import open_page, wait_until_live
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.scenarios import submit
from tests.support.service.stories.jobs import Story, submit_digits


def _state(database: Database, job_id: str) -> JobState:
    with database.reading() as session:
        return JobRepository(session).get(job_id).state


def test_chosen_jobs_are_paused_brought_back_and_cancelled_after_a_question(
    page: Page, finished: Story, sqlite_database: Database
) -> None:
    now = datetime.now(UTC)
    ids = [submit_digits(sqlite_database, now=now, name=f"<b>queued {number}") for number in range(2)]
    page.goto("/")
    wait_until_live(page)
    chosen = page.get_by_role("region", name="Chosen jobs")
    expect(chosen).to_be_hidden()
    page.get_by_label("Choose all jobs of this page").check()
    expect(chosen).to_contain_text("3 jobs chosen")
    expect(chosen.get_by_role("link", name="Compare")).to_have_attribute(
        "href", f"/compare?jobs={ids[1]},{ids[0]},{finished.job_id}"
    )
    chosen.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog", name="Pause these 3 jobs?")
    expect(dialog.get_by_role("listitem")).to_have_text(["<b>queued 1", "<b>queued 0", "digits, first look"])
    page.keyboard.press("Escape")
    assert _state(sqlite_database, ids[0]) is JobState.QUEUED
    chosen.get_by_role("button", name="Pause").click()
    dialog.get_by_role("button", name="Pause").click()
    done = page.locator("#done")
    expect(done).to_contain_text("Paused: 2 jobs; refused: 1.")
    expect(done.get_by_role("listitem")).to_contain_text("digits, first look: job")
    expect(page.locator(f"#{ids[0]}")).to_contain_text("paused")
    expect(chosen).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 300})
    page.evaluate("scrollTo(0, 0)")
    expect(done).to_be_in_viewport(ratio=1)  # however long the list is
    page.set_viewport_size({"width": 1280, "height": 900})
    done.get_by_role("button", name="Undo").click()
    expect(done).to_contain_text("Resumed: 2 jobs.")
    expect(page.locator(f"#{ids[0]}")).to_contain_text("queued")
    expect(done.get_by_role("button", name="Undo")).to_be_visible()

    page.get_by_label("Choose <b>queued 0").check()
    chosen.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog", name="Resume this job?").get_by_role("button", name="Resume").click()
    expect(done).to_contain_text("Resumed: 1 job.")
    expect(done.get_by_role("button", name="Undo")).to_be_hidden()  # it was in the queue already

    page.get_by_label("Choose digits, first look").check()
    chosen.get_by_role("button", name="Archive").click()
    page.get_by_role("dialog", name="Archive this job?").get_by_role("button", name="Archive").click()
    expect(done).to_contain_text("Archived: 1 job.")
    expect(page.locator(f"#{finished.job_id}")).to_have_count(0)
    done.get_by_role("button", name="Undo").click()
    expect(page.locator(f"#{finished.job_id}")).to_be_visible()

    page.get_by_label("Choose <b>queued 1").check()
    chosen.get_by_role("button", name="Cancel jobs").click()
    page.get_by_role("dialog", name="Cancel this job?").get_by_role("button", name="Cancel jobs").click()
    expect(page.locator(f"#{ids[1]}")).to_contain_text("cancelled")
    expect(done.get_by_role("button", name="Undo")).to_be_hidden()
    done.get_by_role("button", name="Close").click()
    expect(done).to_be_hidden()


def test_jobs_that_come_move_no_row_until_they_are_asked_for(page: Page, sqlite_database: Database) -> None:
    now = datetime.now(UTC)
    story = Story(sqlite_database, now=now, name="read just now")
    for number in range(25):
        submit_digits(sqlite_database, now=now, name=f"waits {number}")
    page.goto("/?state=queued")
    wait_until_live(page)
    names = page.locator("table.jobs .name")
    expect(names).to_have_count(25)
    before = names.all_text_contents()
    page.locator('[name="chosen"]').nth(3).check()
    submit_digits(sqlite_database, now=now, name="has come")
    show = page.get_by_role("button", name="1 more job: show")
    expect(show).to_be_visible()
    assert names.all_text_contents() == before
    expect(page.locator('[name="chosen"]').nth(3)).to_be_checked()
    show.click()
    expect(names.first).to_have_text("has come")
    expect(show).to_be_hidden()
    expect(names).to_have_count(25)
    expect(page.locator('[name="chosen"]').nth(4)).to_be_checked()  # the same job, one row further down
    page.goto("/?state=running")
    story.run(0)
    expect(page.locator(f"#{story.job_id}")).to_contain_text("1/20")


@pytest.mark.usefixtures("address", "finished", "running")
def test_list_and_form_are_for_everybody_at_all_widths(lenient_page: Page) -> None:
    page = lenient_page
    for path in ("/", "/jobs/new"):
        page.goto(path)
        if path == "/":
            page.get_by_label("Choose all jobs of this page").check()
        else:
            page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
            for button in page.get_by_role("button", name="Add a").all():
                button.click()
            for part in page.locator("[data-part] > select").all():
                part.select_option("{}")
            expect(page.locator("#faults")).to_contain_text("is required")
        for width in (390, 1280, 2560):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert_accessible(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_mark_of_each_state_and_the_edge_of_a_field_stand_out_from_their_ground(
    page: Page, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto("/")
    ratios = page.evaluate(
        """(names) => {
             const luminance = (property) => {
               const colour = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
               const [r, g, b] = [1, 3, 5]
                 .map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
                 .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
               return 0.2126 * r + 0.7152 * g + 0.0722 * b;
             };
             return names.flatMap((name) => ["--surface", "--ground"].map((ground) => {
               const [dark, light] = [luminance(`--${name}`), luminance(ground)].sort((a, b) => a - b);
               return (light + 0.05) / (dark + 0.05);
             }));
           }""",
        ["completed", "pruned", "failed", "cancelled", "running", "queued", "field"],
    )
    assert len(ratios) == 14
    assert min(ratios) >= 3.0  # WCAG 2.2, 1.4.11


@pytest.mark.usefixtures("finished")
def test_values_say_in_two_lines_what_they_are_and_answers_stand_below_each_other(
    page: Page, sqlite_database: Database
) -> None:
    submit(sqlite_database, baselines=[])
    submit_digits(sqlite_database, now=datetime.now(UTC), name="w" * 200)  # takes all room that it is given
    page.goto("/")
    for basis in page.locator('[data-label="Best"] .sub').all():
        assert basis.evaluate("(words) => words.clientHeight <= 40"), "a third line makes each row higher"
    starts = page.evaluate(
        """() => [...document.querySelectorAll(".told > span")].map((part) => {
             const words = document.createRange();
             words.selectNodeContents(part);
             return words.getBoundingClientRect().x;
           })"""
    )
    assert len(starts) > 2
    assert len(set(starts)) == 1


def test_all_of_a_job_is_in_sight_at_every_width(page: Page, confirmed: Story, sqlite_database: Database) -> None:
    Story(sqlite_database, now=datetime.now(UTC) - timedelta(days=12)).finish()
    Story(sqlite_database, now=datetime.now(UTC), budget={"num_trials": 10_000}).crowd(range(10_000))
    page.goto("/")
    expect(page.locator(f"#{confirmed.job_id}")).to_contain_text("±")
    region = page.get_by_role("region", name="Jobs", exact=True)
    for width in (390, 641, 700, 900, 1199, 1200, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert region.evaluate("(region) => region.scrollWidth <= region.clientWidth"), width
        expect(page.get_by_label("Choose all jobs of this page")).to_be_visible()


@pytest.mark.usefixtures("address")
def test_what_many_jobs_or_their_trials_are_refused_is_told_in_the_same_words(
    lenient_page: Page, finished: Story, sqlite_database: Database
) -> None:
    page = lenient_page
    newer = submit_digits(sqlite_database, now=datetime.now(UTC), name="newer")
    done = page.locator("#done")

    def ask(verb: str) -> None:
        page.get_by_label("Choose all jobs of this page").check()
        page.get_by_role("region", name="Chosen jobs").get_by_role("button", name=verb).click()
        page.get_by_role("dialog", name=f"{verb} these 2 jobs?").get_by_role("button", name=verb).click()

    page.goto("/")
    page.route("**/v1/jobs:pause", lambda route: route.fulfill(status=503, body="<h1>no JSON</h1>"))
    ask("Pause")
    why = "the service answered 503"
    expect(done.get_by_role("listitem")).to_have_text([f"newer: {why}", f"digits, first look: {why}"])
    page.route(f"**/v1/jobs/{finished.job_id}/archive", lambda route: route.abort())
    ask("Archive")
    expect(done).to_contain_text("Archived: 1 job; refused: 1.")
    why = "The service does not answer: what was asked for may have been done, or not."
    expect(done.get_by_role("listitem")).to_have_text([f"digits, first look: {why}"])
    expect(page.locator(f"#{newer}")).to_have_count(0)

    open_page(page, finished)
    page.route("**/trials?**", lambda route: route.fulfill(status=503, body="<h1>no JSON</h1>"))
    page.get_by_role("button", name="Step").click()
    expect(page.locator("#trials-problem")).to_have_text("The trials could not be read: the service answered 503")


@pytest.mark.usefixtures("finished")
def test_a_tag_without_a_name_is_refused_in_the_form(page: Page) -> None:
    page.goto("/?state=succeeded")
    tag = page.get_by_label("Tag", exact=True)
    tag.fill("=vision")
    page.get_by_role("button", name="Find").click()
    assert tag.evaluate("(tag) => tag.validity.patternMismatch")
    expect(page).to_have_url(re.compile(r"/\?state=succeeded$"))


@pytest.mark.usefixtures("finished")
def test_the_form_finds_jobs_by_one_of_its_fields_alone(page: Page, sqlite_database: Database) -> None:
    submit_digits(sqlite_database, now=datetime.now(UTC), name="of a model", model="my-mlp")
    names = page.locator("table.jobs .name")
    for field, asked, found in (
        ("Text in name or notes", "FIRST look", "digits, first look"),
        ("Model", "my-mlp", "of a model"),
        ("Tag", "team=vision", "digits, first look"),
    ):
        page.goto("/")
        page.get_by_label(field, exact=True).fill(asked)
        page.keyboard.press("Enter")
        expect(names).to_have_text([found])
        expect(page.get_by_label(field, exact=True)).to_have_value(asked)
