"""The list of jobs: its pages in both directions, its addresses, and what a row says."""

from __future__ import annotations

import re
from datetime import timedelta

import httpx
import pytest

from service.dashboard.job_list.address import ListAddress
from service.dashboard.job_list.view import ORDERS
from service.domain import Phase
from service.store.repositories import JobListRepository, JobOrder, JobQuery, JobRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from service.use_cases.steer import cancel_job, change_job
from tests.service.dashboard.test_http import get
from tests.support.service.live import finished_job
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, measure, submit


@pytest.mark.parametrize("order", list(JobOrder))
def test_a_page_in_front_of_another_is_the_one_that_led_there(database: Database, order: JobOrder) -> None:
    for number in range(9):
        job_id = submit(database)
        with database.writing() as session:
            change_job(session, job_id, name=f"name {number % 3}", priority=number % 2, now=NOW)
            if number in (1, 2, 5, 6, 7):  # the others have no time at which they ended
                cancel_job(session, job_id, now=NOW + timedelta(hours=number // 3))
    with database.reading() as session:
        repository = JobListRepository(session)
        whole = [job.id for job in repository.page(JobQuery(sees=None), order=order, limit=20)]
        assert len(whole) == 9
        for begin in range(9):
            job = JobRepository(session).get(whole[begin])
            found = repository.page_before(JobQuery(sees=None), order=order, before=order.place_of(job), limit=4)
            assert [one.id for one in found] == whole[max(0, begin - 4) : begin]


def test_every_order_has_words() -> None:
    assert set(ORDERS) == set(JobOrder)


def test_addresses_keep_what_was_asked_and_begin_anew_where_that_changes() -> None:
    asked = [("state", "failed"), ("tag", "a=1"), ("tag", "b"), ("text", "x"), ("workload", "w"), ("after", "T")]
    address = ListAddress(asked)
    assert address.before("S") == "/?state=failed&tag=a%3D1&tag=b&text=x&workload=w&before=S"
    assert address.first() == "/?state=failed&tag=a%3D1&tag=b&text=x&workload=w"
    assert address.with_state(None) == "/?tag=a%3D1&tag=b&text=x&workload=w"
    assert address.others == [("state", "failed"), ("workload", "w"), ("tag", "b")]
    assert address.sent("tag") == "a=1"
    for narrows, pairs in (
        (True, [("owner", "me")]),
        (True, [("archived", "true")]),
        (False, [("archived", "false"), ("text", ""), ("order_by", "name"), ("before", "T")]),
    ):
        assert ListAddress(pairs).is_narrowed is narrows


def test_a_failed_job_says_why_in_the_list_and_draws_no_lines_of_no_trials(
    address: str, sqlite_database: Database
) -> None:
    lease = claimed_job(sqlite_database)
    assert 'id="parallel-section"' in get(f"{address}/jobs/{lease.job_id}").text
    with sqlite_database.writing() as session:
        finish_job(session, lease, failure="there is no module 'gone'", now=NOW + timedelta(seconds=9))
    assert "Failed: there is no module &#39;gone&#39;" in get(address + "/").text
    assert 'id="parallel-section"' not in get(f"{address}/jobs/{lease.job_id}").text


def test_pages_lead_forth_and_back(address: str, sqlite_database: Database) -> None:
    ids = [submit(sqlite_database) for _ in range(60)][::-1]

    def shown(page: str) -> list[str]:
        return [job_id for job_id in ids if f'<tr id="{job_id}"' in page]

    def follow(page: str, rel: str) -> str:
        (link,) = (part.split('"')[0] for part in page.split('href="') if f'rel="{rel}"' in part.split(">")[0])
        return get(address + link.replace("&amp;", "&")).text

    first = get(f"{address}/?state=queued").text
    second = follow(first, "next")
    third = follow(second, "next")
    assert [shown(page) for page in (first, second, third)] == [ids[:25], ids[25:50], ids[50:]]
    assert 'rel="next"' not in third
    back = follow(third, "prev")
    assert shown(back) == ids[25:50]
    assert shown(follow(back, "prev")) == ids[:25]
    assert 'rel="prev"' not in follow(back, "prev")
    for wrong in ("after=x", "before=x", "order_by=best"):
        refused = get(f"{address}/?{wrong}", headers={"Accept": "text/html"})
        assert refused.status_code == 422
        assert f"<code>{wrong.partition('=')[0]}</code>" in refused.text


def test_a_refused_address_has_the_form_with_what_was_not_refused(address: str) -> None:
    asked = {"order_by": "best", "state": "asleep", "text": "my gpt", "tag": "team=vision", "archived": "all"}
    refused = get(f"{address}/", params=asked, headers={"Accept": "text/html"})
    assert refused.status_code == 422
    for sent in ('name="text" maxlength="200" value="my gpt"', 'value="team=vision"', '<option value="all" selected>'):
        assert sent in refused.text
    assert 'value="asleep"' not in refused.text
    assert 'href="/?text=my+gpt&amp;tag=team%3Dvision&amp;archived=all"' in refused.text
    assert "<code>-created_at</code> newest first" in refused.text
    several = get(f"{address}/?state=queued&state=asleep&state=running", headers={"Accept": "text/html"})
    assert 'href="/?state=queued&amp;state=running"' in several.text
    elsewhere = get(f"{address}/recommendations?batch_size=0&precision=bf16", headers={"Accept": "text/html"})
    assert 'href="/recommendations?precision=bf16"' in elsewhere.text
    assert 'role="search"' not in elsewhere.text


def test_a_row_says_how_the_search_compares_as_the_jobs_page_does(address: str, sqlite_database: Database) -> None:
    finished = finished_job(sqlite_database)
    lease = claimed_job(sqlite_database)
    for number, (phase, loss) in enumerate(((Phase.SEARCH, 0.5), (Phase.BASELINE, 0.4))):
        begin_trial(sqlite_database, lease, number, phase)
        measure(sqlite_database, lease, number, 40, loss)
        end_trial(sqlite_database, lease, number)
    alone = claimed_job(sqlite_database, baselines=[])
    rows = dict(zip(("alone", "running", "finished"), get(f"{address}/").text.split("<tr id=")[1:], strict=True))
    assert 'data-kind="worse"' in rows["running"]
    assert "Shampoo trails AdamW so far" in rows["running"]
    assert "Undecided: too few trials to tell Shampoo from AdamW" in rows["finished"]
    assert "config provisional" in rows["finished"]
    assert "no baseline" in rows["alone"]
    assert alone.job_id in rows["alone"]
    page = get(f"{address}/jobs/{finished}").text
    assert "Undecided: too few trials to tell Shampoo from AdamW" in page


def test_an_empty_list_leads_to_the_form(address: str) -> None:
    page = httpx.get(f"{address}/", trust_env=False, verify=False).text
    assert page.count('href="/jobs/new"') == 2
    assert 'id="chosen"' in page


def test_thousands_of_trials_are_counted_with_separators(address: str, sqlite_database: Database) -> None:
    submit(sqlite_database, budget={"num_trials": 10_000}, confirmation=None)
    assert ">0/10,000</span>" in get(f"{address}/").text


def test_a_row_names_every_objective_with_its_direction(address: str, sqlite_database: Database) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}]
    submit(sqlite_database, objectives=objectives, baselines=[])
    page = get(f"{address}/").text
    assert re.search(r'validation_loss <span class="arrow" title="minimize">.*, validation_accuracy <span', page)
    assert page.count('title="maximize"') == 1


def test_the_address_of_a_job_without_the_job_leads_to_the_list(address: str, sqlite_database: Database) -> None:
    job = submit(sqlite_database)
    for query in ("", "?state=failed&text=%3Cb%3E"):
        answer = httpx.get(f"{address}/jobs{query}", trust_env=False, verify=False)
        assert (answer.status_code, answer.headers["location"]) == (307, f"/{query}")
        followed = httpx.get(f"{address}/jobs{query}", trust_env=False, follow_redirects=True, verify=False)
        assert followed.status_code == 200
        assert (job in followed.text) is (query == "")
