"""The form of a new job, of trials that could not start or would fail."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from service.store.session import Database
from tests.support.service.live import running


def _misfits(page: Page) -> Locator:
    return page.locator("#misfits")


@pytest.mark.usefixtures("address", "warm_process")
def test_a_job_that_the_machine_cannot_hold_is_told(lenient_page: Page) -> None:
    lenient_page.goto("/jobs/new")
    lenient_page.locator("summary", has_text="Options of digits-mlp").click()
    lenient_page.get_by_label("Hidden sizes").fill("[1000000, 1000000]")
    expect(_misfits(lenient_page)).to_contain_text("Nothing fits: the search would train nothing.")
    lenient_page.locator("summary", has_text="Resources").click()
    lenient_page.get_by_label("Launch what the machine is too small for").check()
    expect(_misfits(lenient_page)).to_contain_text("Too large: a rank of the search needs more than the ")


@pytest.mark.usefixtures("warm_process")
def test_trials_that_could_not_start_or_would_fail_are_told(
    lenient_page: Page, port: int, sqlite_database: Database
) -> None:
    page = lenient_page
    with running(sqlite_database, port=port, data_are_here=True, allow_code=True):
        page.goto("/jobs/new?workload=tests.support.trainers.picky_model:FindsNoData")
        expect(_misfits(page)).to_contain_text("The workload cannot be built: its code raised FileNotFoundError")
        page.goto("/jobs/new?workload=tests.support.trainers.broken_workloads:Raises")
        expect(_misfits(page)).to_contain_text("A step fails: the workload's code raised KeyError")
        page.locator("summary", has_text="Resources").click()
        page.get_by_label("CPUs of a rank").fill("10000")
        expect(_misfits(page)).to_contain_text("No trial can start: it takes 10000 CPUs (1 rank of 10000)")
        expect(page.locator("#verdict")).to_have_text("Valid, but trials would not all come to their end:")
