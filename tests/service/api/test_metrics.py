"""Metrics for Prometheus tell what rows and requests are, and name nothing that a user wrote."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from service.monitoring.metrics import KEPT_SECONDS, PREFIX
from service.store.session import Database
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import NOW, Clock, begin_trial, claimed_job, submit
from tests.support.waiting import PATIENCE_SECONDS

DASHBOARD = Path(__file__).parents[3] / "docker/grafana/shampoo-tuner.json"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def _samples(url: str) -> Samples:
    answer = httpx.get(f"{url}/metrics", trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name.removeprefix(f"{PREFIX}_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def _value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_rows_are_counted_by_state(database: Database) -> None:
    clock = Clock()
    finished_job(database)
    lease = claimed_job(database, resources={"workers_per_trial": 2})
    begin_trial(database, lease, 0)
    submit(database, now=NOW - timedelta(seconds=30))
    with running(database, clock=clock) as url:
        found = _samples(url)
    assert [_value(found, "jobs", state=state) for state in ("queued", "running", "succeeded", "failed")] == [
        1,
        1,
        1,
        0,
    ]
    assert _value(found, "trials", phase="search", state="completed") == 3
    assert _value(found, "trials", phase="search", state="running") == 1
    assert _value(found, "workers_alive") == 2
    assert _value(found, "database_up") == 1
    assert _value(found, "oldest_queued_job_seconds") == 30
    assert _value(found, "job_queue_seconds", quantile="0.5") == 0
    assert _value(found, "trial_start_seconds", quantile="1") == 0
    assert _value(found, "training_rank_seconds_total") == 4 * 0.4
    assert _value(found, "ranks_in_trials") == 2


def test_answers_are_timed_by_template_and_a_clients_inventions_are_no_labels(sqlite_database: Database) -> None:
    submit(sqlite_database)
    with running(sqlite_database) as url, httpx.Client(base_url=url, trust_env=False, verify=False) as http:
        http.get("/v1/jobs/job_invented")
        http.get("/invented-page")
        http.request("INVENTED", "/v1/jobs")
        http.get("/healthz", headers={"Host": "invented.example"})
        found = _samples(url)
    count = "http_answer_seconds_count"
    assert _value(found, count, method="GET", route="/v1/jobs/{job_id}", status="404") == 1
    assert _value(found, count, method="GET", route="other", status="404") == 1
    assert _value(found, count, method="GET", route="other", status="421") == 1
    assert _value(found, count, method="other", route="/v1/jobs", status="405") == 1
    assert "invented" not in str(found).lower()
    assert "digits" not in str(found)


def test_figures_of_rows_are_kept_for_some_seconds(sqlite_database: Database) -> None:
    with running(sqlite_database) as url:
        assert _value(_samples(url), "jobs", state="queued") == 0
        submit(sqlite_database)
        assert KEPT_SECONDS > 1
        assert _value(_samples(url), "jobs", state="queued") == 0


def test_a_database_that_is_gone_leaves_the_metrics_of_the_process() -> None:
    database = Database("postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=2")
    with running(database, access="open") as url:
        found = _samples(url)
    assert _value(found, "database_up") == 0
    assert not [name for name, _ in found if name == "jobs"]
    database.close()


def test_lag_is_counted_of_events_that_a_stream_waited_for(sqlite_database: Database) -> None:
    clock = Clock()
    with running(sqlite_database, clock=clock) as url:
        with httpx.stream("GET", f"{url}/v1/events", trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as stream:
            lines = stream.iter_lines()
            next(lines)
            assert _value(_samples(url), "event_streams") == 1
            submit(sqlite_database, now=NOW - timedelta(seconds=0.3))
            assert any(line.startswith("id:") for line in lines)
        found = _samples(url)
    assert _value(found, "event_lag_seconds_count") in (0, 1)  # 0: it was there before the stream first looked
    assert _value(found, "event_lag_seconds_sum") in (0, 0.3)


def test_every_metric_of_the_dashboard_exists(sqlite_database: Database) -> None:
    finished_job(sqlite_database)
    with running(sqlite_database) as url:
        _samples(url)
        known = {name for name, _ in _samples(url)}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    named = {name for expression in expressions for name in re.findall(rf"{PREFIX}_(\w+)", expression)}
    assert named
    assert named <= known
    built_in = {name.removesuffix("_bucket").removesuffix("_total") for name in named}
    assert {"jobs", "trials", "training_rank_seconds", "http_answer_seconds", "event_lag_seconds"} <= built_in
