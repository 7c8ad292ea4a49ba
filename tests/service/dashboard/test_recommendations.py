"""The pages of the recommendations: what is found, what is said where nothing is, and what is taken away."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx
import pytest
import yaml
from playwright.sync_api import Page, expect

from service.access.caller import Scope
from service.dashboard.recommendations import view
from service.dashboard.recommendations.asked import Address
from service.specification.identity import StoredIdentity
from service.store.repositories import KnownValues, RecommendationQuery, RecommendationRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from tests.service.dashboard.conftest import wait_for_scripts
from tests.support.service.callers import asking, give_token
from tests.support.service.confirmed import recommendation_of
from tests.support.service.live import finished_job
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.scenarios import NOW, claimed_job, run_trial, submit
from tests.support.service.stories.jobs import confirmed_story
from tests.support.waiting import PATIENCE_SECONDS

get = partial(httpx.get, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
ENVIRONMENT = {"device": "cpu", "device_name": None, "world_size": 2, "versions": {"torch": "2.13.0"}}
IDENTITY = StoredIdentity("f" * 32, "d" * 32, ENVIRONMENT)


def _id_of(database: Database, job_id: str) -> str:
    with database.reading() as session:
        found = RecommendationRepository(session).of_job(job_id)
        assert found is not None
        return found.id


def _worse_answer(database: Database) -> str:
    """The id of the recommendation of a job that found less than `finished_job` does."""
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5, identity=IDENTITY)
    with database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    return _id_of(database, lease.job_id)


def _listed(page: str) -> list[str]:
    return re.findall(r'<tr id="(rec_\w+)"', page)


def test_addresses_ask_for_something_else_beside_what_is_asked() -> None:
    address = Address([("model", "a b"), ("batch_size", "64"), ("device", ""), ("page", "3")])
    assert address.is_narrowed
    assert address.without("model") == "/recommendations?batch_size=64"
    assert address.instead("batch_size", 128) == "/recommendations?model=a+b&batch_size=128"
    assert address.named("workload", "é&") == "/recommendations?batch_size=64&workload=%C3%A9%26"
    assert address.page(2) == "/recommendations?model=a+b&batch_size=64&page=2"
    assert address.page(1) == "/recommendations?model=a+b&batch_size=64"
    assert not Address([("match", "nearest"), ("page", "2"), ("device", "")]).is_narrowed
    assert Address([("name", "x")]).page(1) == "/recommendations?name=x"


def test_filters_offer_the_values_there_are_and_the_one_that_is_asked_for() -> None:
    known = [KnownValues("batch_size", [64, 128]), KnownValues("device", ["cpu"]), KnownValues("precision", [])]
    found = view.choices(RecommendationQuery(project=None, batch_size=32), known)
    assert [(choice.name, choice.values, choice.chosen) for choice in found] == [
        ("batch_size", [32, 64, 128], 32),
        ("device", ["cpu"], None),
    ]


def test_every_format_holds_the_same_config() -> None:
    recommendation = recommendation_of({0: [0.31, 0.33], 2: [0.41, 0.42]})
    copies = {copy.id: copy.text or "" for copy in view.copies(recommendation)}
    compile(copies["copy-python"], "copied", "exec")
    config = json.loads(copies["copy-json"])
    assert config["config"] == recommendation.config
    assert yaml.safe_load(copies["copy-yaml"]) == config
    assert json.loads(copies["copy-evidence"])["evidence"]["status"] == "confirmed"


def test_an_empty_store_says_what_will_stand_here_and_a_name_that_is_not_known_which_are(
    address: str, sqlite_database: Database
) -> None:
    page = get(f"{address}/recommendations")
    assert (page.status_code, "No recommendations yet" in page.text) == (200, True)
    assert "There is no job so far." in page.text
    submit(sqlite_database, model="my-gpt")
    assert "The first one comes with the first job" in get(f"{address}/recommendations").text
    for asked in ("name=my-gtp", "model=my-gtp", "name=%3Cb%3E"):
        page = get(f"{address}/recommendations?{asked}")
        assert page.status_code == 404
        assert page.headers["content-type"].startswith("text/html")
        assert "These are known, the most like it first:" in page.text
        assert ">my-gpt</a>" in page.text
        assert "<b>" not in page.text.partition("<h2")[2]
    assert "it has no recommendation yet" in get(f"{address}/recommendations?fingerprint=x").text
    assert get(f"{address}/recommendations?batch_size=0").status_code == 422
    assert get(f"{address}/recommendations/rec_%3Cb%3E").status_code == 404
    assert "There is no recommendation <code>rec_&lt;b&gt;" in get(f"{address}/recommendations/rec_%3Cb%3E").text


def test_a_name_leads_to_what_it_names_and_empty_fields_ask_for_nothing(
    address: str, sqlite_database: Database
) -> None:
    own = _id_of(sqlite_database, finished_job(sqlite_database, identity=IDENTITY, model="my-gpt"))
    other = _id_of(sqlite_database, finished_job(sqlite_database))
    for name, field in (("my-gpt", "model"), ("digits-mlp", "workload"), ("f" * 32, "fingerprint")):
        answer = get(f"{address}/recommendations", params={"name": f" {name} ", "device": "", "batch_size": ""})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/recommendations?{field}={name}")
    page = get(f"{address}/recommendations?name=&batch_size=&device=&objective=").text
    assert set(_listed(page)) == {own, other}
    assert _listed(get(f"{address}/recommendations?model=my-gpt").text) == [own]
    nothing = get(f"{address}/recommendations?model=my-gpt&batch_size=7").text
    assert "No recommendation holds for all of that" in nothing
    assert 'href="/recommendations?model=my-gpt&amp;batch_size=128">128</a>' in nothing
    assert "There are no more" in get(f"{address}/recommendations?page=2").text
    assert _listed(get(f"{address}/recommendations?version=torch%3D2.13").text) == [own]
    assert set(_listed(get(f"{address}/recommendations?version=").text)) == {own, other}
    nothing = get(f"{address}/recommendations?version=torch%3D2.12").text
    assert "No recommendation holds for all of that" in nothing
    assert 'name="version" maxlength="201" size="14" value="torch=2.12"' in nothing
    assert 'href="/recommendations?version=torch%3D2.13.0">torch=2.13.0</a>' in nothing
    refused = get(f"{address}/recommendations?version=torch")
    assert (refused.status_code, "must be `package=version`" in html.unescape(refused.text)) == (422, True)


@pytest.mark.slow
def test_a_long_list_comes_in_pages_both_ways(
    address: str, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.dashboard.recommendations.page.PER_PAGE", 2)
    made = [_id_of(sqlite_database, finished_job(sqlite_database)) for _ in range(5)]
    pages = [get(f"{address}/recommendations?page={number}").text for number in (1, 2, 3)]
    assert [_listed(page) for page in pages] == [[made[4], made[3]], [made[2], made[1]], [made[0]]]
    assert ('rel="prev"' in pages[0], 'rel="next"' in pages[0]) == (False, True)
    assert 'href="/recommendations" rel="prev"' in pages[1]
    assert 'href="/recommendations?page=3" rel="next"' in pages[1]
    assert ('rel="prev"' in pages[2], 'rel="next"' in pages[2]) == (True, False)


@pytest.mark.slow
def test_the_page_of_a_worse_answer_leads_to_the_earlier_better_one(sqlite_database: Database) -> None:
    better = _id_of(sqlite_database, finished_job(sqlite_database, identity=IDENTITY))
    worse = _worse_answer(sqlite_database)
    token = give_token(sqlite_database, "ours", Scope.READ)
    with asking(sqlite_database) as asked, asked.client(token) as http:
        page = http.get(f"/recommendations/{worse}").text
        assert f'has a better value, and stands in its place: <a href="/recommendations/{better}">' in page
        assert _listed(page) == [better, worse]
        assert "stands in its place" not in http.get(f"/recommendations/{better}").text


@pytest.mark.slow
def test_recommendations_of_another_project_are_not_there(sqlite_database: Database) -> None:
    token = give_token(sqlite_database, "ours", Scope.READ, project="ours")
    give_token(sqlite_database, "theirs", Scope.READ, project="theirs")
    own, foreign = (
        _id_of(sqlite_database, finished_job(sqlite_database, project=project, model=f"model-of-{project}"))
        for project in ("ours", "theirs")
    )
    with asking(sqlite_database) as asked, asked.client(token) as http:
        assert _listed(http.get("/recommendations").text) == [own]
        assert http.get(f"/recommendations/{own}").status_code == 200
        refused = http.get(f"/recommendations/{foreign}")
        assert refused.status_code == 404
        assert refused.text == http.get("/recommendations/rec_of_nobody").text.replace("rec_of_nobody", foreign)
        for path in ("/recommendations", "/recommendations?name=model-of-theirs"):
            assert "model-of-theirs" not in http.get(path).text.replace('value="model-of-theirs"', "").replace(
                "Nothing is called “model-of-theirs”", ""
            )


def test_a_person_finds_a_recommendation_reads_its_evidence_and_takes_it_away(
    page: Page, sqlite_database: Database
) -> None:
    now = datetime.now(UTC)
    old, new = (
        confirmed_story(
            sqlite_database, now=now - timedelta(days=days), identity=IDENTITY, model="my-mlp", name=f"{days} days ago"
        )
        for days in (3, 1)
    )
    finished_job(sqlite_database, now=NOW)
    page.goto("/")
    page.get_by_role("link", name="Recommendations").click()
    rows = page.locator("table.recommendations tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("config confirmed against the baseline")
    expect(rows.nth(0)).to_contain_text("Shampoo beats AdamW by")
    expect(rows.nth(0)).to_contain_text("0.07680 ± 0.00030")
    expect(rows.nth(1)).to_contain_text("provisional")

    page.get_by_role("combobox", name="Name of a model").fill("my-mlp")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    page.get_by_label("what was superseded, too").check()
    page.get_by_role("button", name="Find").click()
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("superseded")
    expect(page.locator(".chip")).to_contain_text("model my-mlp")
    page.reload()
    expect(page.get_by_label("what was superseded, too")).to_be_checked()

    rows.nth(1).get_by_role("link", name="my-mlp").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Shampoo for my-mlp")
    expect(page.locator(".superseded")).to_contain_text("has taken its place")
    expect(page.locator(".lines")).to_contain_text("its search value 0.07330 was luck")
    expect(page.get_by_role("region", name="History").locator("tbody tr")).to_have_count(2)
    page.locator(".superseded a").click()
    wait_for_scripts(page, page.get_by_role("link", name="1 days ago").first)
    expect(page.get_by_role("link", name="1 days ago").first).to_have_attribute("href", f"/jobs/{new.job_id}")
    expect(page).to_have_url(re.compile(_id_of(sqlite_database, new.job_id) + "$"))
    expect(page.locator(".superseded")).to_have_count(0)
    expect(page.get_by_role("region", name="Confirmation", exact=True)).to_contain_text("#8 Shampoo")
    history = page.get_by_role("region", name="History").locator(".scroll")
    expect(history).to_contain_text("3 days ago")
    assert history.evaluate("(scrolled) => scrolled.scrollWidth <= scrolled.clientWidth")
    assert old.job_id != new.job_id

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as Python").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    compile(page.evaluate("navigator.clipboard.readText()"), "copied", "exec")
    page.get_by_text("YAML", exact=True).click()
    page.get_by_role("button", name="Copy YAML").click()
    expect(page.get_by_role("button", name="Copy YAML")).to_have_text("Copied")
    copied = yaml.safe_load(page.evaluate("navigator.clipboard.readText()"))
    assert (copied["workload"], copied["optimizer"]) == ("digits-mlp", "shampoo")

    address = page.url
    for shown in (address, "/recommendations?include=superseded"):
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(shown)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert_accessible(page)
