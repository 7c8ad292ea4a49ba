"""Whatever JSON is posted: never a server error, and a refusal changes nothing."""

from __future__ import annotations

import copy
import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search_spaces import preset
from service.specification.job import Budget
from service.store.repositories import EventRepository, JobRepository
from service.store.session import Database
from tests.support.service.scenarios import submit

MOST_INTEGERS = st.one_of(st.integers(-5, 5), st.integers(), st.sampled_from([2**31, 2**63, 10**400]))
SCALARS = st.one_of(
    st.none(), st.booleans(), MOST_INTEGERS, st.floats(), st.text(), st.sampled_from(["\0", "\ud800", "nan", ""])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)

BUDGET_FIELDS = st.sampled_from([*Budget.model_fields, "trials"])

FULL: dict[str, Any] = {
    "workload": {"name": "digits-mlp", "options": {"hidden_sizes": [16]}},
    "search_space": preset("shampoo").to_json(),
    "objectives": [{"metric": "validation_loss"}],
    "budget": {"num_trials": 4, "wall_clock_seconds": 60, "device_hours": 0.5},
    "training": {"num_steps": 40, "evaluate_every": 10, "batch_size": 64, "seed": 0, "gradient_clip_norm": 1.0},
    "resources": {"workers_per_trial": 2, "cpus_per_worker": 1, "gpus_per_worker": 0, "parallel_trials": 1},
    "sampler": {"name": "tpe", "seed": 0},
    "pruner": {"name": "asha", "min_steps": 10, "reduction_factor": 3},
    "baselines": [{"search_space": preset("adamw").to_json(), "budget_share": 0.25}],
    "name": "a job",
    "tags": {"a": "b"},
}


def _paths(node: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(found for key, child in children for found in _paths(child, (*path, key)))]


@st.composite
def spoiled(draw: st.DrawFn) -> Any:
    """A full job with one value, anywhere, replaced or removed."""
    body = copy.deepcopy(FULL)
    *way, last = draw(st.sampled_from(_paths(body)[1:]))
    node: Any = body
    for step in way:
        node = node[step]
    if draw(st.booleans()):
        node[last] = draw(JSON)
    else:
        del node[last]
    return body


def _post(http: httpx.Client, database: Database, body: Any) -> None:
    def counts() -> tuple[int, int]:
        with database.reading() as session:
            return len(JobRepository(session).page(project=None, limit=1000)), EventRepository(session).last_id()

    before = counts()
    answer = http.post("/v1/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    if answer.status_code == 201:
        assert counts() == (before[0] + 1, before[1] + 1)
        # PostgreSQL keeps 1e17 as a whole number.
        made, found = (json.loads(of.text, parse_int=float) for of in (answer, http.get(answer.headers["Location"])))
        assert made.pop("warnings") == []  # what was found while it was checked is not kept with the job
        assert made == found
        return
    assert answer.status_code == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"]
    assert counts() == before


# The database is shared between examples on purpose: each compares it with what it was before.
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.slow
@shared
@given(body=JSON)
def test_any_json_is_refused_or_makes_a_job(http: httpx.Client, database: Database, body: Any) -> None:
    _post(http, database, body)


@pytest.mark.slow
@shared
@given(body=spoiled())
def test_a_job_with_one_wrong_value_is_refused_or_made(http: httpx.Client, database: Database, body: Any) -> None:
    _post(http, database, body)


@pytest.mark.slow
@shared
@given(body=st.one_of(JSON, st.fixed_dictionaries({"budget": st.dictionaries(BUDGET_FIELDS, SCALARS)})))
def test_any_json_is_refused_or_changes_a_jobs_budget(http: httpx.Client, database: Database, body: Any) -> None:
    path = f"/v1/jobs/{submit(database)}"
    before = http.get(path).json()
    answer = http.patch(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    if answer.status_code == 200:
        assert http.get(path).json() == answer.json()
        return
    assert answer.status_code == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"]
    assert http.get(path).json() == before
