"""JSON for people to read and to copy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.access.caller import Scope
from service.dashboard.written_json import LONGEST, written
from service.store.session import Database
from tests.support.service.callers import asking, give_token
from tests.support.service.scenarios import submit


@pytest.mark.parametrize(
    "value",
    [{}, [], {"a": {"b": [{}, []]}}, [[1, 2], {"é": None}], {"x": 'a"b', "y": [0.1, True, None, "\n"]}, "text", 7],
)
def test_what_is_written_is_the_value(value: Any) -> None:
    assert json.loads(written(value)) == value


def test_plain_values_of_a_list_stand_on_one_line() -> None:
    value = {"sizes": [64, 32], "pinned": [{"lr": 0.1}, {"betas": [0.9, 0.99]}]}
    assert written(value).splitlines() == [
        "{",
        '  "sizes": [64, 32],',
        '  "pinned": [',
        "    {",
        '      "lr": 0.1',
        "    },",
        "    {",
        '      "betas": [0.9, 0.99]',
        "    }",
        "  ]",
        "}",
    ]


def test_a_job_of_very_many_numbers_has_a_page_that_can_be_read_and_a_whole_report(sqlite_database: Database) -> None:
    sizes = [1] * 400_000
    large = submit(sqlite_database, workload={"name": "digits-mlp", "options": {"hidden_sizes": sizes}})
    usual = submit(sqlite_database)
    with asking(sqlite_database) as asked, asked.client(give_token(sqlite_database, "ada", Scope.READ)) as http:
        page, report = http.get(f"/jobs/{large}").text, http.get(f"/jobs/{large}/report").text
        other = http.get(f"/jobs/{usual}").text
    assert len(page) < LONGEST + 100_000
    link = f'<a href="/v1/jobs/{large}">all of the job as JSON</a>'
    assert link in page
    assert ", ".join(map(str, sizes)) in report
    assert "all of the job as JSON" not in other
