"""Answers of the dashboard's addresses, without a browser's eyes."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from rich.console import Console

from service.cli.terminal import jobs_table
from service.client import Client
from service.dashboard.assets import PLOTLY_FILE, PLOTLY_PATH, CachedFiles
from service.domain import FailureReason, JobState, Phase, TrialState
from service.store.repositories import TrialRepository
from service.store.session import Database
from service.use_cases.run import finish_job
from service.use_cases.steer import change_job
from service.use_cases.waiting import FIRST_MEASUREMENT
from tests.support.service.scenarios import (
    add_worker,
    begin_trial,
    claim,
    claimed_job,
    end_trial,
    measure,
    store_trials,
    submit,
)
from tests.support.service.stories.jobs import Story
from tests.support.waiting import PATIENCE_SECONDS

TITLE = re.compile("<title>(.*)</title>")
# Without TLS, whose certificates take longer to read than a page.
get = partial(httpx.get, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def _rows(page: str) -> set[int]:
    """The trials in a job page's table."""
    return {int(number) for number in re.findall(r'<tr id="trial-(\d+)"', page)}


def _best(page: str) -> list[int]:
    """The trials above the rows of a job page's table."""
    return [int(number) for number in re.findall(r'<tr data-number="(\d+)" class="best"', page)]


@pytest.fixture
def story(sqlite_database: Database) -> Story:
    return Story(sqlite_database, now=NOW)


def test_pages_that_need_scripts_say_so_to_browsers_without(address: str, story: Story) -> None:
    for path, number in ((f"/jobs/{story.job_id}", 1), ("/jobs/new", 1), ("/settings", 1), ("/login", 0), ("/x", 0)):
        text = get(address + path, headers={"Accept": "text/html"}, follow_redirects=False).text
        assert text.count("<noscript>") == number, path


def test_an_unknown_job_is_an_html_page_with_404(address: str) -> None:
    response = get(f"{address}/jobs/job_%3Cb%3E")
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")
    assert "There is no job <code>job_&lt;b&gt;</code>" in response.text


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def test_an_unknown_address_is_a_page_for_browsers_and_a_problem_for_programs(address: str) -> None:
    for path in ("/nope", "/nope/%3Cb%3E", "/job", "/static/nope.css", "/jobs/%00", "/v2", "/v1nope"):
        page = get(address + path, headers={"Accept": BROWSER})
        assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8"), path
        assert "script-src 'self';" in page.headers["content-security-policy"]
        assert 'class="brand"' in page.text
        assert "<h1>No such page</h1>" in page.text
        assert "<b>" not in page.text
        for accepted in (
            "*/*",
            "application/json",
            "application/json, text/html;q=0.9",
            "text/html;q=0",
            "text/*",
            ";q",
        ):
            problem = get(address + path, headers={"Accept": accepted})
            found = problem.status_code, problem.headers["content-type"]
            assert found == (404, "application/problem+json"), (path, accepted)


def test_a_page_that_is_asked_for_wrongly_is_one_for_browsers_and_a_problem_for_programs(address: str) -> None:
    asked = address + "/?before=<b>"
    page = get(asked, headers={"Accept": BROWSER})
    assert (page.status_code, page.headers["content-type"]) == (422, "text/html; charset=utf-8")
    assert "<code>before</code>" in page.text
    assert "<b>" not in page.text
    assert get(asked).json()["errors"][0]["field"] == "before"


def test_below_the_api_an_unknown_address_is_a_problem_for_everyone(address: str) -> None:
    for path in ("/v1", "/v1/", "/v1/nope", "/v1/jobs/job_none", "/v1/jobs/%00", "/v1/jobs/x/plots/%00"):
        answer = get(address + path, headers={"Accept": BROWSER})
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path


def test_an_empty_service_tells_how_to_submit(address: str) -> None:
    page = get(f"{address}/").text
    assert "No jobs yet" in page
    assert f"curl {address}/v1/jobs" in page
    assert "shampoo-tuner submit job.yaml" in page


def test_pages_allow_scripts_from_files_only(address: str, story: Story) -> None:
    for path in ("/", f"/jobs/{story.job_id}"):
        response = get(address + path)
        assert "script-src 'self';" in response.headers["content-security-policy"]
        assert "<script>" not in response.text


def test_pages_tell_what_a_job_waits_for(address: str, sqlite_database: Database) -> None:
    job_id = submit(sqlite_database, now=NOW)
    with sqlite_database.writing() as session:
        change_job(session, job_id, priority=5, now=NOW)
    for path in ("/", f"/jobs/{job_id}"):
        assert "Waiting: no worker has been started" in get(address + path).text
    assert "priority 5" in get(f"{address}/jobs/{job_id}").text
    lease = claim(sqlite_database, add_worker(sqlite_database), now=datetime.now(UTC))
    assert lease is not None
    for path in ("/", f"/jobs/{job_id}"):
        assert f"Waiting: {FIRST_MEASUREMENT}" in get(address + path).text
    begin_trial(sqlite_database, lease, 0)
    measure(sqlite_database, lease, 0, 10, 0.5, now=datetime.now(UTC))
    for path in ("/", f"/jobs/{job_id}"):
        assert "Waiting:" not in get(address + path).text


def test_a_job_page_says_which_of_the_budgets_trials_are_left_over(address: str, sqlite_database: Database) -> None:
    odd, even = (submit(sqlite_database, budget={"num_trials": num}, baseline={}) for num in (15, 16))
    told = "1 trial of the budget is left over, so that search and baselines get equally many."
    assert told in get(f"{address}/jobs/{odd}").text
    assert "left over" not in get(f"{address}/jobs/{even}").text


def test_a_job_page_says_what_its_newest_completed_trial_remarked_of_the_data(
    address: str, sqlite_database: Database
) -> None:
    lease = claimed_job(sqlite_database)
    remark = {"detail": "of /data are not read: test/"}
    failed = {"state": TrialState.FAILED, "reason": FailureReason.ERROR, "detail": "KeyError"}
    store_trials(sqlite_database, lease.job_id, [remark, remark, {}, failed])
    page = get(f"{address}/jobs/{lease.job_id}").text
    assert "Of the data, trial 1: of /data are not read: test/</p>" in page


def test_a_job_with_several_baselines_names_each_trials_own(address: str, sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database, baselines=[{}, {"search_space": "muon"}])
    for number, optimizer, loss in ((0, None, 0.3), (1, "adamw", 0.5), (2, "muon", 0.4)):
        phase = Phase.SEARCH if optimizer is None else Phase.BASELINE
        begin_trial(sqlite_database, lease, number, phase, optimizer=optimizer)
        measure(sqlite_database, lease, number, 40, loss)
        end_trial(sqlite_database, lease, number)
    page = get(f"{address}/jobs/{lease.job_id}").text
    assert "Shampoo leads the best of AdamW and Muon so far" in page
    assert "<dt>Muon best (baseline)</dt>" in page
    rows = re.findall(r'data-phase="baseline">(\w+) <span class="soft">baseline', page)
    assert rows == ["Muon", "Muon", "AdamW"]  # the best one, and then the newest first
    figure = get(f"{address}/v1/jobs/{lease.job_id}/plots/best-so-far").json()
    assert [trace["name"] for trace in figure["data"] if trace["mode"] == "lines"] == ["Shampoo", "AdamW", "Muon"]
    assert '<span class="sub">Muon</span>' in get(f"{address}/").text
    progress = get(f"{address}/v1/jobs/{lease.job_id}").json()["progress"]
    assert (progress["baseline_best"]["value"], progress["baseline_optimizer"]) == (0.4, "muon")
    console = Console(width=140)
    with Client(address) as client, console.capture() as listed:
        console.print(jobs_table([client.job(lease.job_id)], width=140))
    assert "0.4000 Muon" in listed.get()


def test_trials_with_other_batches_are_drawn_and_compared_by_examples(address: str, sqlite_database: Database) -> None:
    lr = {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "scale": "log"}
    fixed = {"optimizer": "adamw", "parameters": [lr], "fixed": {"training.batch_size": 64}}
    lease = claimed_job(
        sqlite_database,
        search_space={
            "optimizer": "shampoo",
            "parameters": [lr, {"type": "categorical", "name": "training.batch_size", "choices": [32, 128]}],
        },
        baselines=[{"search_space": fixed}],
        training={"num_examples": 1280},
    )
    for number, phase, steps in ((0, Phase.SEARCH, (20, 40)), (1, Phase.BASELINE, (10, 20))):
        begin_trial(sqlite_database, lease, number, phase)
        for step, loss in zip(steps, (0.5, 0.3 + number / 10), strict=True):
            measure(sqlite_database, lease, number, step, loss)
        end_trial(sqlite_database, lease, number)
    with sqlite_database.writing() as session:
        assert finish_job(session, lease, failure=None, now=NOW) is JobState.SUCCEEDED
    curves = get(f"{address}/v1/jobs/{lease.job_id}/plots/learning-curves").json()
    assert [trace["x"] for trace in curves["data"]] == [[640, 1280], [640, 1280]]
    assert curves["layout"]["xaxis"]["title"]["text"] == "examples"
    page = get(f"{address}/jobs/{lease.job_id}").text
    assert re.findall(r'>(\d+)<span class="soft">/(\d+)', page.split("<tbody>")[-1]) == [("20", "20"), ("40", "40")]
    assert "up to 40 steps a trial" in page
    told = "0.5000 against 0.4000 after 20 steps, where the training of Shampoo had not ended"
    assert f'<p class="sub">At equal steps: by the search, undecided, {told}.</p>' in page
    assert "as many examples" in page
    found = re.search(r'<dt>training.batch_size</dt><dd title="(\d+)">', page)
    assert found is not None, "the recommended batch size stands with the rest of the config"
    assert found[1] == "32"


@pytest.mark.slow
def test_the_best_trials_of_a_long_job_are_in_its_table_however_old_they_are(
    address: str, sqlite_database: Database
) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}]
    story = Story(
        sqlite_database,
        now=NOW,
        budget={"num_trials": 600},
        objectives=objectives,
        confirmation={"top_k": 2, "num_seeds": 3},
    )
    for number, final in enumerate([0.09, 0.05, 0.06, 0.08, 0.2, 0.3]):
        story.run(number, final)
    with sqlite_database.writing() as session:
        trial = TrialRepository(session).get(story.job_id, 5)
        trial.metrics = {**trial.metrics, "validation_accuracy": 0.999}
    story.crowd(range(6, 515))

    page = get(f"{address}/jobs/{story.job_id}").text
    assert _rows(page) == set(range(465, 515))
    assert _best(page) == [1, 3]
    assert "1–50 of 515 trials" in page
    for number, (source, seed) in enumerate([(2, 1), (1, 1), (3, 1), (2, 2), (3, 2), (2, 3), (3, 3)], start=515):
        story.confirm(number, source, seed, {1: 0.09, 2: 0.06, 3: 0.09}[source])
    assert story.finish() is JobState.SUCCEEDED
    page = get(f"{address}/jobs/{story.job_id}?page=11").text
    assert _rows(page) == set(range(22))
    assert _best(page) == [2, 3]
    for number in (2, 3):
        assert f'<tr id="trial-{number}" data-number="{number}" class="best">' in page


def test_plots_are_plotly_figures(address: str, story: Story) -> None:
    for number in range(4):
        story.run(number)
    best = get(f"{address}/v1/jobs/{story.job_id}/plots/best-so-far").json()
    assert {trace["meta"]["role"] for trace in best["data"]} == {"search", "baseline"}
    curves = get(f"{address}/v1/jobs/{story.job_id}/plots/learning-curves").json()
    assert [trace["meta"]["number"] for trace in curves["data"]] == [0, 1, 2, 3]
    assert curves["layout"]["yaxis"]["title"]["text"] == "validation_loss"


def test_best_so_far_is_drawn_over_time_on_demand(address: str, story: Story) -> None:
    story.run(0)
    figure = get(f"{address}/v1/jobs/{story.job_id}/plots/best-so-far", params={"x": "seconds"}).json()
    assert figure["layout"]["xaxis"]["title"]["text"] == "seconds since the job started"


def test_a_job_with_several_objectives_has_a_trade_off(address: str, sqlite_database: Database) -> None:
    objectives = [{"metric": "validation_loss"}, {"metric": "validation_accuracy"}, {"metric": "train_loss"}]
    story = Story(sqlite_database, now=datetime.now(UTC), objectives=objectives)
    for number in range(4):
        story.run(number)
    url = f"{address}/v1/jobs/{story.job_id}/plots/trade-off"
    for against in ("validation_accuracy", "train_loss"):
        figure = get(url, params={"against": against}).json()
        assert [trace["meta"]["role"] for trace in figure["data"]] == ["search", "baseline", "front"]
        assert figure["layout"]["xaxis"]["title"]["text"] == against
    assert get(url).json()["layout"]["xaxis"]["title"]["text"] == "validation_accuracy"
    refused = get(url, params={"against": "speed"})
    assert refused.status_code == 422
    assert "'speed' is no objective of the job beside the first" in refused.json()["detail"]


@pytest.mark.parametrize(
    "path", ["/v1/jobs/job_none/plots/best-so-far", "/v1/jobs/{job}/plots/pie", "/v1/jobs/{job}/plots/trade-off"]
)
def test_an_unknown_plot_is_a_problem_with_404(address: str, story: Story, path: str) -> None:
    response = get(address + path.format(job=story.job_id))
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("learning-curve", "did you mean 'learning-curves'?"), ("trade-off", "it takes a job with several objectives")],
)
def test_an_unknown_plot_is_told_with_those_there_are(address: str, story: Story, kind: str, hint: str) -> None:
    told = get(f"{address}/v1/jobs/{story.job_id}/plots/{kind}").json()["errors"][0]
    assert told["field"] == "kind"
    assert told["message"] == f"no kind is called {kind!r} (known: best-so-far, learning-curves): {hint}"


def test_an_unknown_state_in_the_filter_is_refused(address: str) -> None:
    assert get(f"{address}/", params={"state": "asleep"}).status_code == 422


@pytest.mark.slow
def test_plotly_is_compressed_and_cached_for_good(address: str) -> None:
    url = f"{address}{PLOTLY_PATH}/{PLOTLY_FILE}"
    packed = get(url)
    assert packed.headers["content-encoding"] == "gzip"
    assert "immutable" in packed.headers["cache-control"]
    assert packed.num_bytes_downloaded < 500_000 < 1_000_000 < len(packed.content) < 1_500_000
    plain = get(url, headers={"Accept-Encoding": "identity"})
    assert plain.content == packed.content
    assert get(f"{address}{PLOTLY_PATH}/widgetbundle.js").status_code == 404


@pytest.mark.slow
def test_pages_and_answers_are_compressed_for_who_takes_it(address: str, story: Story) -> None:
    for number in range(4):
        story.run(number)
    job = f"/v1/jobs/{story.job_id}"
    for path in (
        "/",
        f"/jobs/{story.job_id}",
        job,
        f"{job}/plots/learning-curves",
        "/static/shared/base.css",
        "/openapi.json",
    ):
        packed = get(address + path, headers={"Accept-Encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip", path
        assert packed.headers["vary"] == "Accept-Encoding"
        assert packed.num_bytes_downloaded < 0.7 * len(packed.content), path
        plain = get(address + path, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert len(plain.content) == plain.num_bytes_downloaded
    small = get(f"{address}/healthz", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in small.headers


def test_own_files_are_revalidated(address: str) -> None:
    first = get(f"{address}/static/shared/base.css")
    assert first.headers["cache-control"] == "no-cache"
    again = get(f"{address}/static/shared/base.css", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


def test_a_file_that_has_changed_is_compressed_anew(tmp_path: Path) -> None:
    file = tmp_path / "own.css"
    client = TestClient(CachedFiles(tmp_path, "no-cache"), headers={"Accept-Encoding": "gzip"})
    for number in range(2):
        file.write_text(f"p {{ margin: {number}px; }}")
        os.utime(file, ns=(number, number))
        answer = client.get("/own.css")
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.text == file.read_text()
    assert client.get("/own.css", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


def test_the_list_is_found_by_its_address(address: str, sqlite_database: Database) -> None:
    made = [submit(sqlite_database) for _ in range(2)]
    with sqlite_database.writing() as session:
        change_job(session, made[0], name="found <b>", tags={"team": "vision"}, now=NOW)
    asked = "state=queued&state=paused&text=FOUND&tag=team%3Dvision&archived=false"
    page = get(f"{address}/?{asked}").text
    assert re.findall(r'<tr id="(job_\w+)"', page) == [made[0]]
    assert 'value="FOUND"' in page
    assert 'name="state" value="paused"' in page
    assert "/?text=FOUND&amp;tag=team%3Dvision&amp;archived=false&amp;state=failed" in page
    assert "are found" in get(f"{address}/?text=%3Cscript%3E").text
    assert "<script>" not in get(f"{address}/?text=%3Cscript%3E&tag=%22x").text
    assert get(f"{address}/?text=&tag=&archived=false").text.count('<tr id="job_') == 2


def test_a_name_that_turns_the_direction_of_writing_turns_nothing_of_a_title(
    address: str, sqlite_database: Database
) -> None:
    job = submit(sqlite_database)
    with sqlite_database.writing() as session:
        change_job(session, job, name="\u2069abc\u202egnp \u05d0\u2066", now=NOW)
    titles = [TITLE.findall(get(f"{address}/jobs/{job}{page}").text) for page in ("", "/report")]
    assert titles == [["queued: abcgnp \u05d0 · shampoo-tuner"], ["abcgnp \u05d0: report · shampoo-tuner"]]
