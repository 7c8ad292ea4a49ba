"""The name and the tags of a job, changed on its page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from service.store.repositories import JobRepository
from service.store.session import Database
from tests.service.dashboard.conftest import open_page
from tests.support.service.stories.jobs import Story

RIGHT_TO_LEFT = "تجربة"
LEFT_OF_TEXT = """(element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return range.getBoundingClientRect().left;
}"""


def _stored(database: Database, story: Story) -> tuple[str, dict[str, str]]:
    with database.reading() as session:
        job = JobRepository(session).get(story.job_id)
        return job.name, dict(job.tags)


@pytest.mark.usefixtures("address")
def test_name_and_tags_are_changed_in_a_dialog_that_keeps_what_is_refused(
    lenient_page: Page, finished: Story, sqlite_database: Database
) -> None:
    page = lenient_page
    open_page(page, finished)
    opener = page.get_by_role("button", name="Edit name and tags")
    opener.click()
    dialog = page.get_by_role("dialog", name="Name and tags of this job")
    name, tags, keep = (
        dialog.get_by_role("textbox", name="Name"),
        dialog.get_by_role("textbox", name="Tags"),
        dialog.get_by_role("button", name="Keep changes"),
    )
    expect(name).to_have_value("digits, first look")
    expect(tags).to_have_value("team=vision")

    for text, told in (("=vision", "has no name before the ="), ("x" * 65, "tags")):
        tags.fill(text)
        keep.click()
        expect(dialog.get_by_role("alert")).to_contain_text(told)
        expect(tags).to_have_value(text)
    assert _stored(sqlite_database, finished) == ("digits, first look", {"team": "vision"})

    name.fill(RIGHT_TO_LEFT)
    tags.fill("team=vision\nbaseline run\n")
    keep.click()
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()
    expect(page.get_by_role("heading", level=1)).to_have_text(RIGHT_TO_LEFT)
    expect(page).to_have_title(f"succeeded: {RIGHT_TO_LEFT} · shampoo-tuner")
    expect(page.locator("#facts .tag")).to_have_text(["team: vision", "baseline run"])
    assert _stored(sqlite_database, finished) == (RIGHT_TO_LEFT, {"team": "vision", "baseline run": ""})

    # A name from right to left begins where the lines below it do.
    assert page.locator("h1").evaluate(LEFT_OF_TEXT) - page.locator("#facts").evaluate(LEFT_OF_TEXT) < 4

    # What was left as it was is not sent: somebody else may have changed it.
    opener.click()
    page.request.patch(f"/v1/jobs/{finished.job_id}", data={"tags": {"team": "speech"}})
    name.fill("the second look")
    keep.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("the second look")
    assert _stored(sqlite_database, finished) == ("the second look", {"team": "speech"})
