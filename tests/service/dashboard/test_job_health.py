"""Findings about a job: the same on its page, over HTTP and in the terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

from service.cli.commands import app
from service.client import Client
from service.evidence.health.cards import HealthKind
from service.store.session import Database
from service.use_cases.run import finish_job
from tests.service.dashboard.conftest import open_page, wait_until_live
from tests.support.service.scenarios import NOW, claimed_job, run_trial
from tests.support.service.stories.jobs import Story
from tests.support.service.stories.trials import diverge_in
from tests.support.waiting import PATIENCE_SECONDS


def diverging(database: Database) -> Story:
    """A job whose search diverged in a third of its trials, and that still runs."""
    story = Story(database, now=datetime.now(UTC) - timedelta(seconds=60))
    for number in range(9):
        if number % 3 == 1:
            story.begin(number)
            diverge_in(story, number, "blocks.0.weight")
        else:
            story.run(number, 0.1 + number / 100)
    return story


def test_findings_are_the_same_on_the_page_over_http_and_in_the_terminal(
    page: Page, address: str, sqlite_database: Database
) -> None:
    story = diverging(sqlite_database)
    open_page(page, story)
    wait_until_live(page)
    found = page.get_by_role("region", name="What to know, and to do").get_by_role("listitem")
    expect(found).to_have_count(1)
    expect(found).to_contain_text("of the search's 7 trials diverged: their loss was not finite or above max_loss, ")
    expect(found).to_contain_text("One of them, trial 4, said: diverged at step 34: training loss nan,")
    expect(found).to_contain_text("lower the upper bound of the learning rate")
    story.finish()
    expect(page.locator("#facts")).to_contain_text("succeeded")
    expect(found.first).to_contain_text("Warning: The baseline is under-tuned: AdamW had 1 trial that did not fail")
    with Client(address) as client:
        cards = client.health(story.job_id)
    assert HealthKind.BASELINE_UNDERTUNED in [card.kind for card in cards]
    expect(found).to_have_count(len(cards))
    clone = found.first.get_by_role("link", name="Edit and clone")
    expect(clone).to_have_attribute("href", f"/jobs/new?clone={story.job_id}")
    found.filter(has_text="diverged").get_by_role("link", name="Failed trials").click()
    expect(page.get_by_role("checkbox", name="failed")).to_be_checked()
    expect(page.locator("#trials-section")).to_be_in_viewport()
    shown = CliRunner().invoke(app, ["show", story.job_id, "--url", address])
    assert shown.exit_code == 0, shown.output
    for card, item in zip(cards, found.all(), strict=True):
        expect(item).to_contain_text(card.sentence)
        expect(item).to_contain_text(card.advice)
        assert f"{card.severity.capitalize()}: {card.sentence}\n{card.advice}\n" in shown.output


def test_a_best_value_at_the_edge_of_its_range_is_told_once(address: str, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database, baseline=None, budget={"num_trials": 9})

    def places_told() -> tuple[int, int]:
        page = httpx.get(f"{address}/jobs/{lease.job_id}", trust_env=False, timeout=PATIENCE_SECONDS, verify=False)
        shown = CliRunner().invoke(app, ["show", lease.job_id, "--url", address])
        edge, (told, *_pasted) = "lr = 0.1 by the upper bound 0.1", page.text.split('<code id="snippet">')
        return told.count(edge), shown.output.count(edge)

    for number in range(9):
        run_trial(sqlite_database, lease, number, 0.1 + number / 100, values={"lr": 0.1})
    assert places_told() == (1, 1), "by a finding, while the job runs"
    with sqlite_database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    assert places_told() == (1, 1), "by a caveat of the recommendation, once there is one"


def test_a_job_with_nothing_wrong_has_no_findings(address: str, sqlite_database: Database) -> None:
    story = Story(sqlite_database, now=datetime.now(UTC))
    answer = httpx.get(
        f"{address}/v1/jobs/{story.job_id}/health", trust_env=False, timeout=PATIENCE_SECONDS, verify=False
    )
    assert (answer.status_code, answer.json()) == (200, {"items": []})
    page = httpx.get(f"{address}/jobs/{story.job_id}", trust_env=False, timeout=PATIENCE_SECONDS, verify=False)
    assert "What to know, and to do" not in page.text
    missing = httpx.get(f"{address}/v1/jobs/job_none/health", trust_env=False, timeout=PATIENCE_SECONDS, verify=False)
    assert missing.status_code == 404
