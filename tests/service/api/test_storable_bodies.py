"""Bodies with text that a database cannot keep: each is refused before anything looks for it there."""

from __future__ import annotations

import httpx
import pytest

from service.access.caller import Scope
from service.api import request_body
from service.store.session import Database
from tests.support.service.callers import asking, give_token

BODIES = {
    "/v1/webhooks": ({"url": "https://example.org", "job_id": "a\0"}, "job_id"),
    "/v1/jobs:pause": ({"job_ids": ["a\0"]}, "job_ids[0]"),
    "/v1/recommendations": ({"fingerprint": {"parameters": []}, "workload": "a\0"}, "workload"),
    "/v1/admin/tokens": ({"name": "a\0", "scopes": ["read"]}, "name"),
    "/v1/admin/projects": ({"name": "a\0"}, "name"),
}


@pytest.mark.parametrize("path", BODIES)
def test_text_that_no_database_keeps_is_refused_by_its_field(database: Database, path: str) -> None:
    body, field = BODIES[path]
    token = give_token(database, "ada", Scope.SUBMIT, Scope.ADMIN)
    with asking(database) as asked, asked.client(token) as http:
        answer: httpx.Response = http.post(path, json=body)
        assert answer.status_code == 422, answer.text
        assert field in [error["field"] for error in answer.json()["errors"]]


def test_paths_are_made_of_objects_and_arrays_alone_where_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    def noted(path: str, part: str | int) -> str:
        made.append(join_field(path, part))
        return made[-1]

    join_field = request_body.join_field
    monkeypatch.setattr(request_body, "join_field", noted)
    request_body.check_storable({"a": {f"field{index}": "text" for index in range(1000)}, "b": [[0.5] * 1000]})
    assert made == ["a", "b", "b[0]"]
