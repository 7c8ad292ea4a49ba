"""A trial's page in a real browser: the best one, one that diverged, one that ends while it is watched."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from service.domain import CancelCause, JobState, OutputStream, TrialState
from service.store.repositories import JobRepository, TrialRepository
from service.store.session import Database
from service.use_cases.keeping.marks import change_trial
from service.use_cases.transitions import cancel_unfinished_trials, move_job
from tests.service.dashboard.conftest import wait_for, wait_for_scripts, wait_until_live
from tests.support.service.stories.jobs import Story
from tests.support.service.stories.trials import diverge_in, measure_all, print_lines


@pytest.fixture
def story(sqlite_database: Database) -> Story:
    """A job with trials of each kind: 4 is the search's best, 5 diverged, 6 trains."""
    story = Story(sqlite_database, now=datetime.now(UTC) - timedelta(seconds=90))
    for number in range(4):
        story.run(number)
    story.begin(4)
    measure_all(story, 4, until=200, final=0.0651)
    story.end(4, TrialState.COMPLETED)
    story.begin(5)
    diverge_in(story, 5, "blocks.0.weight")
    story.begin(6)
    measure_all(story, 6, until=60)
    return story


def open_trial(page: Page, story: Story, number: int, query: str = "") -> None:
    """Opens a trial's page and waits for its chart."""
    page.goto(f"/jobs/{story.job_id}/trials/{number}{query}")
    page.locator("#curve.js-plotly-plot .plot-container").wait_for(state="attached")


def traces(page: Page) -> dict[str, int]:
    """The number of points of each named line of the chart."""
    found = page.evaluate("() => document.getElementById('curve').data.map(one => [one.name, one.x.length])")
    return {str(name): int(length) for name, length in found}


def test_the_best_trial_is_looked_at_from_all_sides(page: Page, story: Story) -> None:
    story.confirm(7, 4, 1001, 0.0688)
    open_trial(page, story, 4)
    expect(page).to_have_title("Trial 4 of digits, first look · shampoo-tuner")
    expect(page.locator("h1")).to_contain_text("★")
    expect(page.locator("#account")).to_contain_text("Completed all 200 steps")
    expect(page.locator("#account")).to_contain_text("none of the 3 other trials of its side that completed is better")
    assert traces(page)["trial 4"] == 20
    page.set_viewport_size({"width": 768, "height": 900})
    assert page.locator("#config .scroll").evaluate("table => table.scrollWidth - table.clientWidth") == 0
    page.set_viewport_size({"width": 1280, "height": 900})
    assert traces(page)["AdamW, median of 1"] == 20
    expect(page.locator("#lineage")).to_contain_text("trial 7")

    # Every metric is a small chart that opens large; the choice stands in the address.
    tile = page.get_by_role("link", name="condition max")
    tile.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#curve-title")).to_have_text("optimizer_condition_max")
    expect(tile).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="seconds", exact=True).click()
    page.get_by_role("link", name="linear").click()
    wait_for(page, "() => document.getElementById('curve').layout.xaxis.title.text === 'seconds of training'")
    expect(page).to_have_url(re.compile("metric=optimizer_condition_max"))
    page.reload()
    page.locator("#curve.js-plotly-plot .plot-container").wait_for(state="attached")
    expect(page.locator("#curve-title")).to_have_text("optimizer_condition_max")
    assert page.evaluate("() => document.getElementById('curve').layout.yaxis.type") == "linear"
    page.get_by_text("Values as a table").click()
    expect(page.locator("#values-table tbody tr")).to_have_count(20)

    # Its config is copied, and its neighbours are one key away.
    expect(page.locator("table.parameters")).to_contain_text("lr")
    page.get_by_text("Python to paste").click()
    expect(page.locator("#config-python")).to_contain_text("optimizer = Shampoo(")
    page.get_by_role("link", name="trial 7").click()
    expect(page.locator("#facts")).to_contain_text("repeats trial 4")
    page.locator("#curve.js-plotly-plot .plot-container").wait_for(state="attached")
    page.locator("body").press("ArrowLeft")
    expect(page.locator("h1")).to_have_text("Trial 6")


def test_a_page_is_read_again_where_something_has_happened_and_not_before(page: Page, story: Story) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_trial(page, story, 5)
    wait_until_live(page)
    page.wait_for_timeout(1000)  # twice what a page waits from one look to the next
    assert [url for url in asked if "parts=true" in url] == []
    assert len([url for url in asked if "/plots/curve" in url]) == 1
    with page.expect_response("**/trials/5?parts=true"):
        story.end(6, TrialState.COMPLETED)


def test_what_was_predicted_stands_beside_what_was_measured(page: Page, sqlite_database: Database) -> None:
    earlier, later = (
        Story(sqlite_database, now=datetime.now(UTC) - timedelta(hours=hours), name=f"{hours} h ago")
        for hours in (2, 1)
    )
    for story in (earlier, later):
        story.begin(0)
        measure_all(story, 0, until=200)
        story.end(0, TrialState.COMPLETED)
    open_trial(page, later, 0)
    page.wait_for_load_state()
    page.get_by_text("As predicted from the model").click()
    rows = page.locator("#predicted tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_have_text(re.compile(r"Memory of a rank, at least\s*[\d.]+ MiB\s*431 MiB"))
    expect(rows.nth(1)).to_have_text(re.compile(r"A step\s*12\.\d ms\s*12\.\d ms"))
    expect(page.locator("#predicted")).to_contain_text("weights, gradients and optimizer")
    expect(page.locator("#predicted")).to_contain_text("activations of a step")
    expect(page.locator("#predicted a")).to_have_attribute("href", f"/jobs/{earlier.job_id}")
    page.goto(f"/jobs/{earlier.job_id}/trials/0")
    page.wait_for_load_state()
    page.get_by_text("As predicted from the model").click()
    expect(rows.nth(1)).to_contain_text("–")
    expect(page.locator("#predicted")).to_contain_text("no earlier job with such steps")


def test_a_diverged_trial_says_where_it_began_and_is_tried_again(
    page: Page, story: Story, sqlite_database: Database
) -> None:
    open_trial(page, story, 5)
    expect(page.locator("#account")).to_contain_text("Diverged after its measurement at step 30")
    expect(page.locator("#account").get_by_role("link", name="Edit and clone the job")).to_have_attribute(
        "href", f"/jobs/new?clone={story.job_id}"
    )
    expect(page.locator("#account")).to_contain_text("diverged at step 34")
    expect(page.locator("#account")).to_contain_text("blocks.0.weight holds values that are not finite")
    expect(page.get_by_role("list", name="What to do")).to_contain_text("gradient_clip_norm")
    assert "diverged" in traces(page)
    for width in (390, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        wait_for(page, "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.get_by_role("button", name="Retry").click()
    dialog = page.get_by_role("dialog", name="Try trial 5 again?")
    dialog.get_by_role("button", name="Leave it").click()
    expect(page.locator("#facts")).to_contain_text("failed")
    page.get_by_role("button", name="Retry").click()
    dialog.get_by_role("button", name="Try again").click()
    expect(page.locator("#account")).to_contain_text("Waits for its turn")
    page.get_by_role("button", name="Stop").click()  # what was asked is taken back
    page.get_by_role("button", name="Stop trial").click()
    expect(page.locator("#facts")).to_contain_text("stopping")
    with sqlite_database.reading() as session:
        assert TrialRepository(session).get(story.job_id, 5).requested == "stop"


def _write_checkpoint(story: Story, number: int, tmp_path: Path) -> None:
    checkpoint = tmp_path / "data" / "checkpoints" / story.job_id / str(number) / "step-00000060"
    checkpoint.mkdir(parents=True)
    (checkpoint / "rank-00000.safetensors").write_bytes(b"weights")


def test_a_trial_that_the_budget_cut_off_lists_what_it_goes_on_from(
    page: Page, story: Story, sqlite_database: Database, tmp_path: Path
) -> None:
    _write_checkpoint(story, 6, tmp_path)
    with sqlite_database.writing() as session:
        job = JobRepository(session).get(story.job_id)
        cancel_unfinished_trials(session, job, CancelCause.BUDGET, now=story.later(1), detail="the budget was spent")
        move_job(session, job, JobState.SUCCEEDED, now=story.now)
    open_trial(page, story, 6)
    expect(page.locator("#checkpoints-note")).to_contain_text("Cut off by its job's budget")
    expect(page.locator("#checkpoint-list")).to_contain_text("step 60")


def test_a_trial_ends_while_it_is_watched_and_its_lines_are_searched(page: Page, story: Story, tmp_path: Path) -> None:
    print_lines(story, 6, ["loading data", "epoch 1: loss 1.9"])
    _write_checkpoint(story, 6, tmp_path)
    open_trial(page, story, 6)
    wait_until_live(page)
    expect(page.locator("#account")).to_contain_text("Training: step 60 of 200")
    expect(page.locator("#checkpoint-list")).to_contain_text("step 60")
    assert (
        page.request.get(
            str(page.get_by_role("link", name="rank-00000.safetensors").evaluate("link => link.href"))
        ).body()
        == b"weights"
    )

    page.get_by_text("Values as a table").click()
    measure_all(story, 6, after=60, until=90)
    expect(page.locator("#account")).to_contain_text("step 90 of 200")
    wait_for(page, "() => document.getElementById('curve').data.some(o => o.name === 'trial 6' && o.x.length === 9)")
    expect(page.locator("#values-table tbody tr")).to_have_count(9)  # and it is still open

    print_lines(story, 6, ["Warning: <b>lr</b> is large"], rank=1, stream=OutputStream.STDERR)
    expect(page.locator("#output")).to_contain_text("Warning: <b>lr</b> is large")
    page.get_by_label("Find").fill("LR")
    expect(page.locator(".printed:visible")).to_have_count(1)
    expect(page.locator(".printed mark")).to_have_text("lr")
    expect(page.locator("#found")).to_have_text("1 line with it among those here.")
    expect(page).to_have_url(re.compile("find=LR"))
    page.get_by_label("Find").fill("loss")
    page.get_by_role("button", name="Look through all of it").click()
    expect(page.locator("#found")).to_have_text("1 line with it in all that is kept.")
    expect(page.locator("#output-found")).to_contain_text("epoch 1: loss 1.9")
    page.get_by_label("Find").fill("LR")

    story.end(6, TrialState.PRUNED)
    expect(page.locator("#account")).to_contain_text("Pruned at step 90 of 200")
    expect(page.locator("#checkpoint-list li")).to_have_count(0)
    expect(page.get_by_role("button", name="Retry")).to_be_visible()
    page.reload()
    expect(page.locator(".printed:visible")).to_have_count(1)  # what is sought stands in the address
    page.get_by_role("link", name="rank 1").click()
    expect(page.locator(".printed")).to_have_count(1)


@pytest.mark.parametrize("page_of", ["", "/logs"])
def test_a_trial_that_ends_without_a_line_says_that_it_printed_nothing(page: Page, story: Story, page_of: str) -> None:
    page.goto(f"/jobs/{story.job_id}/trials/6{page_of}")
    wait_until_live(page)
    expect(page.locator("#output-none")).to_have_text("Nothing so far.")
    story.end(6, TrialState.PRUNED)
    expect(page.locator("#output-none")).to_have_text("It printed nothing.")


def test_a_note_is_written_shown_as_text_and_comes_to_other_pages(
    page: Page, story: Story, sqlite_database: Database
) -> None:
    page.goto(f"/jobs/{story.job_id}/trials/5")
    page.locator("#turn").get_by_role("link", name="trial 6").click()
    wait_for_scripts(page, page.get_by_role("heading", level=1, name="Trial 6"))
    wait_until_live(page)
    expect(page.locator("#note")).to_have_text("None yet.")
    button = page.get_by_role("button", name="Edit note")
    button.click()
    dialog = page.get_by_role("dialog", name="Note on trial 6")
    dialog.get_by_role("textbox", name="Note").fill("# why\n<b>so</b>")
    dialog.get_by_role("button", name="Keep note").click()
    expect(page.locator("#note")).to_have_text("# why\n<b>so</b>")
    expect(page.locator("#note b")).to_have_count(0)
    expect(button).to_be_focused()

    # What another user writes shows here, and is what is edited then.
    with sqlite_database.writing() as session:
        change_trial(session, story.job_id, 6, note="another", now=datetime.now(UTC))
    expect(page.locator("#note")).to_have_text("another")
    button.click()
    expect(dialog.get_by_role("textbox")).to_have_value("another")
    dialog.get_by_role("textbox").fill("lost")
    dialog.get_by_role("button", name="Leave it").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#note")).to_have_text("another")

    # An ended trial has one, too.
    page.goto(f"/jobs/{story.job_id}/trials/5")
    button.click()
    page.get_by_role("textbox", name="Note").fill("too long a step")
    page.get_by_role("button", name="Keep note").click()
    expect(page.locator("#note")).to_have_text("too long a step")


def test_a_variation_is_a_new_trial(page: Page, story: Story) -> None:
    open_trial(page, story, 4)
    page.get_by_role("button", name="Try a variation").click()
    dialog = page.get_by_role("dialog", name="Try a variation of trial 4")
    dialog.get_by_label("lr", exact=True).fill("0.00321")
    dialog.get_by_role("button", name="Try it").click()
    expect(page.locator("h1")).to_have_text("Trial 7")
    expect(page.locator("#facts")).to_contain_text("proposed by a user")
    expect(page.locator("table.parameters")).to_contain_text("0.00321")


@pytest.mark.usefixtures("address")
def test_a_refused_variation_and_search_say_why(lenient_page: Page, story: Story) -> None:
    page = lenient_page
    open_trial(page, story, 4)
    page.route("**/logs?**", lambda route: route.fulfill(status=503, json={"detail": "others wait already"}))
    page.get_by_label("Find").fill("loss")
    page.get_by_role("button", name="Look through all of it").click()
    told = "Not all of it was looked through: others wait already. Ask again in a few seconds."
    expect(page.locator("#found")).to_have_text(told)
    page.get_by_role("button", name="Try a variation").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("lr", exact=True).fill("77")
    dialog.get_by_role("button", name="Try it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("lr: must be in [0.0001, 0.1], got 77")
    expect(dialog.get_by_label("lr", exact=True)).to_have_value("77")
    dialog.get_by_label("values may lie beyond their ranges").check()
    dialog.get_by_role("button", name="Try it").click()
    expect(page.locator("h1")).to_have_text("Trial 7")
    expect(page.locator("table.parameters")).to_contain_text("beyond its upper end")


@pytest.mark.slow
def test_what_is_no_trial_is_a_page_with_404(address: str, story: Story) -> None:
    for number in ("99", "nope", "-1", "9" * 30):
        for page in ("", "/logs"):
            response = httpx.get(f"{address}/jobs/{story.job_id}/trials/{number}{page}", trust_env=False, verify=False)
            assert response.status_code == 404
            assert "<h1>No such trial</h1>" in response.text
            assert f'href="/jobs/{story.job_id}"' in response.text
