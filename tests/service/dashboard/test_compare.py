"""Several jobs side by side: what differs, what compares, and for whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from service.access.caller import Scope
from service.dashboard.compare.chart import DrawnJob, best_so_far_of
from service.dashboard.compare.differences import ComparedConfig, Row, config_rows, rows_of
from service.dashboard.rendering import breakable
from service.domain import Direction, JobState, Phase, TrialState
from service.store.repositories import TrialColumnsRepository, TrialSpending
from service.store.session import Database
from tests.service.dashboard.conftest import num_traces, wait_for, wait_for_scripts, wait_for_traces, wait_until_live
from tests.support.service.callers import asking, give_token
from tests.support.service.live import finished_job
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.scenarios import begin_trial, claimed_job, submit
from tests.support.service.stories.jobs import Story, confirmed_story
from tests.support.waiting import PATIENCE_SECONDS

get = partial(httpx.get, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
OVER_DEVICE_SECONDS = """() => {
  const title = document.getElementById("best-so-far").layout?.xaxis.title.text;
  return title !== undefined && title.startsWith("device-seconds");
}"""
START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def test_settings_are_told_by_their_paths_and_differ_where_one_does() -> None:
    first = {"training": {"num_steps": 40, "clip": None}, "tags": [], "baselines": [{"search_space": "adamw", "n": 1}]}
    second = {
        "training": {"num_steps": 41, "clip": None},
        "tags": ["a", "é"],
        "baselines": [{"search_space": "adamw", "m": 2}],
    }
    assert rows_of([first, second]) == [
        Row("training.num_steps", ["40", "41"], differs=True),
        Row("training.clip", ["not set", "not set"], differs=False),
        Row("tags", ["none", '["a", "é"]'], differs=True),
        Row("baselines.adamw.search_space", ["adamw", "adamw"], differs=False),
        Row("baselines.adamw.n", ["1", "–"], differs=True),
        Row("baselines.adamw.m", ["–", "2"], differs=True),
    ]
    assert rows_of([{"objectives": [{"metric": "loss"}]}, {"objectives": []}]) == [
        Row("objectives", ['["loss"]', "none"], differs=True)
    ]
    unnamed = [{"a": [{"x": 1}, {"x": True}]}]
    assert [(row.name, row.values) for row in rows_of(unnamed)] == [("a.1.x", ["1"]), ("a.2.x", ["true"])]
    assert [row.values for row in rows_of([{"lr": 0.1}, {"lr": 1e-1}, {"lr": 0.10000000000000002}])] == [
        ["0.1", "0.1", "0.10000000000000002"]
    ]
    assert rows_of([]) == []


def test_what_a_search_did_not_vary_has_its_value_and_is_marked_in_the_best_configs() -> None:
    defaults = {"preconditioner": "shampoo", "grafting": None}
    left = ComparedConfig({"optimizer": "shampoo", "lr": 0.1}, ["weight_decay_type"], defaults)
    fixes = ComparedConfig({"optimizer": "shampoo", "lr": 0.2, "preconditioner": "kl"}, ["preconditioner"], defaults)
    searches = ComparedConfig(
        {"optimizer": "shampoo", "lr": 0.2, "preconditioner": "kl", "grafting": "adam"}, [], defaults
    )
    other = ComparedConfig({"optimizer": "adamw", "lr": 0.2})
    assert config_rows([left, fixes, searches, other])[2:] == [
        Row(
            "preconditioner", ["shampoo", "kl", "kl", "–"], differs=True, notes=["fixed, the default", "fixed", "", ""]
        ),
        Row(
            "grafting",
            ["not set", "not set", "adam", "–"],
            differs=True,
            notes=["fixed, the default", "fixed, the default", "", ""],
        ),
    ]
    alike = config_rows([left, ComparedConfig({"lr": 0.1, "preconditioner": "shampoo"}, ["preconditioner"], defaults)])
    assert [row.differs for row in alike if row.name == "preconditioner"] == [False]


def test_a_job_without_a_config_makes_no_difference_of_what_the_others_have_alike() -> None:
    one, other, none = (
        ComparedConfig({"lr": 0.1, "beta": 0.9}),
        ComparedConfig({"lr": 0.2, "beta": 0.9}),
        ComparedConfig({}),
    )
    assert [(row.values, row.differs) for row in config_rows([one, none, other])] == [
        (["0.1", "–", "0.2"], True),
        (["0.9", "–", "0.9"], False),
    ]
    assert [row.differs for row in config_rows([one, none])] == [True, True]


def _ended(
    phase: Phase, value: float | None, seconds: float, *, state: TrialState = TrialState.COMPLETED
) -> TrialSpending:
    return TrialSpending(phase, state, value, spent_seconds=10.0, finished_at=START + timedelta(seconds=seconds))


def test_each_side_is_drawn_where_it_became_better_over_what_it_has_spent() -> None:
    trials = [
        _ended(Phase.SEARCH, 0.5, 5),
        _ended(Phase.BASELINE, 0.4, 7),
        _ended(Phase.SEARCH, 0.1, 8, state=TrialState.PRUNED),
        _ended(Phase.SEARCH, 0.6, 9),
        _ended(Phase.SEARCH, 0.3, 11),
        _ended(Phase.SEARCH, None, 20, state=TrialState.FAILED),
    ]
    job = DrawnJob("A", START, num_ranks=2, optimizer="Shampoo", trials=trials)
    empty = DrawnJob("B", None, num_ranks=1, optimizer="<b>%{x}", trials=[])
    for axis, x in (
        ("trials", [[1, 4, 5], [1]]),
        ("seconds", [[5, 11, 20], [7]]),
        ("device-seconds", [[20, 80, 100], [20]]),
    ):
        figure = best_so_far_of([job, empty], metric="loss", direction=Direction.MINIMIZE, axis=axis)  # type: ignore[arg-type]
        assert [trace["x"] for trace in figure["data"]] == x
        assert [trace["y"] for trace in figure["data"]] == [[0.5, 0.3, 0.3], [0.4]]
    assert [trace["name"] for trace in figure["data"]] == ["A: Shampoo", "A, baseline"]
    only = DrawnJob("B", START, 1, "<b>%{x}", trials)
    names = [
        one["name"] for one in best_so_far_of([only], metric="m", direction=Direction.MAXIMIZE, axis="trials")["data"]
    ]
    assert names == ["B: &lt;b&gt;&#37;{x}", "B, baseline"]


def test_trials_that_have_ended_are_read_in_that_order(database: Database) -> None:
    lease = claimed_job(database)
    begin_trial(database, lease, 0)
    done = finished_job(database)
    with database.reading() as session:
        ended = TrialColumnsRepository(session).ended(done)
        assert TrialColumnsRepository(session).ended(lease.job_id) == []
    assert [trial.value for trial in ended] == [0.5, 0.4, 0.2, 0.3]
    assert [trial.phase for trial in ended][1] is Phase.BASELINE


def test_long_values_and_many_settings_are_cut_short(address: str, sqlite_database: Database) -> None:
    ids = []
    for last in (0, 1):
        numbers, names = [*range(70_000), last], {f"name{place}": last for place in range(10_000)}
        options = {"numbers": [*numbers[:-1], f"<{last}>"], "names": names}
        workload = {"name": "external", "options": options}
        ids.append(submit(sqlite_database, workload=workload, external={"metrics": {"validation_loss": "minimize"}}))
    for address_of_all in ("", "&rows=all"):
        page = get(f"{address}/compare?jobs={','.join(ids)}{address_of_all}").text
        assert len(page) < 125_000
        assert "69999, &#34;&lt;0&gt;&#34;]" in page, "where long values begin to differ"
        assert "69999, &#34;&lt;1&gt;&#34;]" in page
        assert "workload.options.names.name0" in page.replace("<wbr>", "")
        assert "10,001 of " in page
        assert re.search(r"[\d,]+ more settings", page)
        assert all(f'href="/v1/jobs/{job_id}"' in page for job_id in ids)


def test_an_empty_store_and_one_job_alone_are_pages_and_an_unknown_one_is_not_there(
    address: str, sqlite_database: Database
) -> None:
    page = get(f"{address}/compare")
    assert (page.status_code, "There are no jobs yet." in page.text) == (200, True)
    job = finished_job(sqlite_database)
    assert f'href="/compare?jobs={job}"' in get(f"{address}/compare").text
    alone = get(f"{address}/compare?jobs={job},,{job}").text
    assert "There are no other jobs." in alone
    assert 'id="best-so-far"' not in alone
    for path in (
        f"/compare?jobs={job},job_%3Cb%3E",
        "/compare?jobs=job_%3Cb%3E",
        "/compare/best-so-far?jobs=job_%3Cb%3E",
    ):
        answer = get(address + path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "There is no job <code>job_&lt;b&gt;</code>" in answer.text
    assert get(f"{address}/compare/best-so-far").status_code == 422
    assert get(f"{address}/compare/best-so-far?jobs={job}&x=miles").status_code == 422


def test_jobs_with_other_objectives_share_tables_and_no_chart(address: str, sqlite_database: Database) -> None:
    loss = finished_job(sqlite_database)
    accuracy = finished_job(sqlite_database, objectives=[{"metric": "validation_accuracy"}])
    page = get(f"{address}/compare?jobs={loss}&jobs={accuracy}").text
    assert "A minimizes validation_loss and B maximizes validation_accuracy." in page
    assert "plotly" not in page
    assert 'id="best-so-far"' not in page
    assert "[&#34;validation_accuracy&#34;]" in page
    refused = get(f"{address}/compare/best-so-far?jobs={loss},{accuracy}")
    assert (refused.status_code, "different objectives" in refused.text) == (422, True)


@pytest.mark.slow
def test_what_stands_in_the_way_of_a_fair_comparison_is_said(address: str, sqlite_database: Database) -> None:
    now = datetime.now(UTC) - timedelta(hours=3)
    confirmed = confirmed_story(sqlite_database, now=now).job_id
    one_seed = finished_job(sqlite_database, workload={"name": "digits-convnet"})
    waiting = submit(sqlite_database)
    page = get(f"{address}/compare?jobs={confirmed},{one_seed},{waiting}").text
    assert "They train different workloads: A and C: digits-mlp; B: digits-convnet." in page
    assert "Their trials differ in length: A: up to 200 steps; B and C: up to 40 steps." in page
    assert "The best of B is what a search found with one seed, the luckiest of its trials; that of A is a mean" in page
    assert "C has not ended yet." in page
    assert "None has a completed trial yet." in get(f"{address}/compare?jobs={waiting}").text


def test_more_than_six_are_not_compared_at_once(address: str, sqlite_database: Database) -> None:
    jobs = [submit(sqlite_database) for _ in range(8)]
    page = get(f"{address}/compare?jobs={','.join(jobs)}").text
    assert "2 more were asked for: at most 6 are shown." in page
    assert "No more than 6 are compared at once" in page
    assert get(f"{address}/compare/best-so-far?jobs={','.join(jobs)}").status_code == 422


def test_jobs_of_another_project_are_neither_compared_nor_offered(sqlite_database: Database) -> None:
    token = give_token(sqlite_database, "ours", Scope.READ, project="ours")
    give_token(sqlite_database, "theirs", Scope.READ, project="theirs")
    own, foreign = (finished_job(sqlite_database, project=project) for project in ("ours", "theirs"))
    with asking(sqlite_database) as asked, asked.client(token) as http:
        assert foreign not in http.get("/compare").text
        assert http.get(f"/compare?jobs={own}").status_code == 200
        for path in ("/compare?jobs=", "/compare/best-so-far?jobs="):
            for ids in (foreign, f"{own},{foreign}"):
                refused = http.get(path + ids)
                assert refused.status_code == 404
                assert refused.text == http.get(path + ids.replace(foreign, "job_nobody")).text.replace(
                    "job_nobody", foreign
                )


@dataclass(frozen=True, slots=True)
class _Jobs:
    first: Story
    second: Story


@pytest.fixture
def two(sqlite_database: Database) -> _Jobs:
    """A job that has ended, and one with another budget and longer trials that runs."""
    first = Story(sqlite_database, now=datetime.now(UTC) - timedelta(hours=2), name="the first <b>one</b>")
    for number in range(20):
        first.run(number, {13: 0.0812}.get(number))
    assert first.finish() is JobState.SUCCEEDED
    second = Story(
        sqlite_database, now=datetime.now(UTC) - timedelta(minutes=2), name="the second", budget={"num_trials": 24}
    )
    for number in range(5):
        second.run(number)
    return _Jobs(first, second)


def _row(table: Locator, name: str) -> Locator:
    """The row of a table with this head."""
    return table.locator("tr").filter(has=table.page.get_by_role("rowheader", name=name, exact=True))


@contextmanager
def late_answer(page: Page, address: str) -> Iterator[None]:
    """Answers requests of the page for an address only at the end of the block, which ends when it has them."""
    held: list[Route] = []
    page.route(address, lambda route: held.append(route))
    yield
    for route in held:
        with page.expect_response(route.request.url) as answered:
            route.continue_()
        answered.value.finished()
    page.unroute(address)


def test_a_person_picks_jobs_compares_them_and_watches_one_go_on(page: Page, two: _Jobs) -> None:
    page.goto("/compare")
    page.get_by_role("searchbox", name="Text in name or notes").fill("FIRST")
    page.keyboard.press("Enter")
    expect(page.locator(".offered li")).to_have_count(1)
    page.get_by_role("link", name="Add the first <b>one</b>").click()
    page.get_by_role("link", name="Add the second").click()
    expect(page.locator(".chosen li")).to_have_count(2)
    expect(page.locator("#best-so-far.js-plotly-plot .plot-container")).to_be_attached()
    assert num_traces(page, "best-so-far") == 4
    page.get_by_text("As a table").click()
    drawn = page.get_by_role("region", name="Best so far, as a table").get_by_role("row")
    expect(drawn.first).to_have_text("Drawn asended trials of each sidevalidation_loss")
    expect(drawn.filter(has_text="B, baseline").first).to_be_visible()
    wait_until_live(page)

    table = page.get_by_role("region", name="What they found").last
    expect(_row(table, "Trials")).to_contain_text("20 of 20")
    expect(_row(table, "Verdict")).to_contain_text("so far")
    expect(_row(table, "Standing")).to_contain_text("config provisional")
    asked = page.get_by_role("region", name="What was asked of them").last
    expect(asked.get_by_role("rowheader")).to_have_text(["budget.num_trials"])
    page.get_by_role("link", name="show all").last.click()
    wait_for_scripts(page, _row(asked, "workload.name"))
    expect(_row(asked, "workload.name")).to_contain_text("digits-mlp")
    expect(asked.locator("tr.differs")).to_have_count(1)
    configs = page.get_by_role("region", name="Best configs").last
    expect(_row(configs, "schedule.decay")).to_be_visible()

    with late_answer(page, "**/compare/best-so-far?x=seconds*"):
        page.get_by_role("button", name="time", exact=True).click()
        page.get_by_role("button", name="device time").click()
        wait_for(page, OVER_DEVICE_SECONDS)
    assert page.evaluate(OVER_DEVICE_SECONDS)
    page.reload()
    wait_for(page, OVER_DEVICE_SECONDS)
    expect(page.get_by_role("button", name="device time")).to_have_attribute("aria-pressed", "true")
    wait_until_live(page)
    two.second.run(5, final=0.01)
    expect(_row(table, "Best")).to_contain_text("0.01000")
    wait_for(page, "() => Math.min(...document.getElementById('best-so-far').data[2].y) < 0.02")
    two.second.finish()
    expect(page.locator("#compared")).to_have_attribute("data-over", "true")
    expect(page.locator("#stream")).to_be_hidden()

    page.get_by_role("link", name="Without B, the second").click()
    expect(page.locator(".chosen li")).to_have_count(1)
    page.go_back()
    for width in (390, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        page.reload()
        wait_for_traces(page, "best-so-far", 4)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert_accessible(page)


def test_a_jobs_page_leads_to_its_comparison(page: Page, confirmed: Story) -> None:
    page.goto(f"/jobs/{confirmed.job_id}")
    page.get_by_role("link", name="Compare").click()
    expect(page.locator(".chosen li")).to_have_count(1)
    expect(page).to_have_url(re.compile(rf"/compare\?jobs={confirmed.job_id}$"))


def test_jobs_without_a_completed_trial_say_whether_one_may_come(page: Page, sqlite_database: Database) -> None:
    over, running = (Story(sqlite_database, now=datetime.now(UTC), name=name) for name in ("over", "running"))
    over.finish()
    page.goto(f"/compare?jobs={over.job_id},{running.job_id}")
    told = "getComputedStyle(document.getElementById('best-so-far'), '::after').content"
    wait_for(page, f"() => {told} === '\"No data yet\"'")
    expect(_row(page.get_by_role("region", name="What they found").last, "To take away")).to_contain_text("none yet")
    configs = page.locator("section", has=page.get_by_role("heading", name="Best configs"))
    expect(configs).to_contain_text("None has a completed trial yet.")
    expect(configs).not_to_contain_text("differ")
    wait_until_live(page)
    running.finish()
    expect(configs).to_contain_text("None has a completed trial.")
    wait_for(page, f"() => {told} === '\"No trial completed\"'")


def test_the_name_of_a_setting_breaks_behind_dots_and_underscores_alone() -> None:
    assert breakable("schedule.warmup_fraction") == "schedule.<wbr>warmup_<wbr>fraction"
    assert breakable("<b>") == "&lt;b&gt;"
