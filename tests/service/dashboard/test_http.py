"""What the dashboard's addresses answer, without a browser's eyes."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from functools import partial

import httpx
import pytest

from service.controls import change_job
from service.dashboard.assets import PLOTLY_PATH
from service.store.session import Database
from tests.service.dashboard.stories import Story
from tests.service.scenarios import add_worker, claim, submit
from tests.waiting import PATIENCE_SECONDS

get = partial(httpx.get, trust_env=False, timeout=PATIENCE_SECONDS)
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def story(sqlite_database: Database) -> Story:
    return Story(sqlite_database, now=NOW)


def test_an_unknown_job_is_an_html_page_with_404(address: str) -> None:
    response = get(f"{address}/jobs/job_%3Cb%3E")
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")
    assert "There is no job <code>job_&lt;b&gt;</code>" in response.text


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
        assert "Waiting:" not in get(address + path).text


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
    objective = {"metric": "validation_loss", "also": ["validation_accuracy", "train_loss"]}
    story = Story(sqlite_database, now=datetime.now(UTC), objective=objective)
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
    assert "'speed' is no further objective" in refused.json()["detail"]


@pytest.mark.parametrize(
    "path", ["/v1/jobs/job_none/plots/best-so-far", "/v1/jobs/{job}/plots/pie", "/v1/jobs/{job}/plots/trade-off"]
)
def test_an_unknown_plot_is_a_problem_with_404(address: str, story: Story, path: str) -> None:
    response = get(address + path.format(job=story.job_id))
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


def test_an_unknown_state_in_the_filter_is_refused(address: str) -> None:
    assert get(f"{address}/", params={"state": "asleep"}).status_code == 422


def test_plotly_is_compressed_and_cached_for_good(address: str) -> None:
    response = get(f"{address}{PLOTLY_PATH}/plotly.min.js")
    assert response.headers["content-encoding"] == "gzip"
    assert "immutable" in response.headers["cache-control"]
    assert int(response.num_bytes_downloaded) < 2_000_000 < len(response.content)


def test_own_files_are_revalidated(address: str) -> None:
    first = get(f"{address}/static/dashboard.css")
    assert first.headers["cache-control"] == "no-cache"
    again = get(f"{address}/static/dashboard.css", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


def test_the_dashboard_loads_no_heavy_library() -> None:
    heavy = ["torch", "ray", "optuna", "numpy", "plotly", "sklearn"]
    code = (
        f"import sys, service.dashboard.pages as p; p.static_mounts(); print([n for n in {heavy} if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
