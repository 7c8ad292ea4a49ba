"""Samplers of a user's own over HTTP: nobody's code is imported in the service, and what is wrong names the field."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.domain import Phase
from service.errors import InvalidInput
from service.scheduler.policy.planned_policy import make_policy
from service.scheduler.policy.protocol import Start
from service.specification.job import JobSpecification, SamplerReference
from service.specification.planning import plan_job
from service.store.session import Database
from tests.support.service.live import running
from tests.support.waiting import PATIENCE_SECONDS

OURS = """
from optuna.samplers import RandomSampler

class Ours(RandomSampler):
    def __init__(self, *, seed, spread=1.0):
        print("imported and made")
        super().__init__(seed)
        assert spread > 0

class Other: pass
"""


@pytest.fixture(autouse=True)
def _ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module `ours_of_test` in the current directory."""
    (tmp_path / "ours_of_test.py").write_text(OURS)
    (tmp_path / "broken_of_test.py").write_text("import no_such_library")
    monkeypatch.chdir(tmp_path)


def _job(name: str, options: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"workload": {"name": "digits-mlp"}, "sampler": {"name": name, "options": options or {}}}


@pytest.mark.processes
def test_a_class_is_tried_by_a_process_of_its_own(sqlite_database: Database) -> None:
    cases: list[tuple[str, dict[str, Any], str, str]] = [
        ("ours_of_test:Other", {}, "sampler.name", "ours_of_test:Other is no optuna.samplers.BaseSampler"),
        ("ours_of_test:Nowhere", {}, "sampler.name", "has no class 'Nowhere' (its classes: Other, Ours)"),
        ("broken_of_test:Ours", {}, "sampler.name", "no_such_library"),
        ("os.path:Ours", {}, "sampler.name", "is of Python's standard library"),
        ("ours_of_test:Ours", {"spread": -1.0}, "sampler.options", "Ours cannot be made: AssertionError"),
        ("ours_of_test:Ours", {"depth": 3}, "sampler.options", "unexpected keyword argument 'depth'"),
        ("tpe", {"depth": 3}, "sampler.options", "has no effect"),
    ]
    with (
        running(sqlite_database, allow_code=True) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        for name, options, field, message in cases:
            answer = http.post("/v1/jobs", json=_job(name, options))
            assert answer.status_code == 422
            (error,) = answer.json()["errors"]
            assert error["field"] == field
            assert message in error["message"]
        answer = http.post("/v1/jobs", json=_job("ours_of_test:Ours", {"spread": 2.0}))
        assert answer.status_code == 201, answer.text
        given = answer.json()["specification"]["sampler"]
        assert given == {"name": "ours_of_test:Ours", "options": {"spread": 2.0}, "seed": 0}
    assert "ours_of_test" not in sys.modules


def test_a_class_is_refused_where_workloads_of_that_form_are(sqlite_database: Database) -> None:
    with (
        running(sqlite_database, allow_code=False) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        answer = http.post("/v1/jobs", json=_job("ours_of_test:Ours"))
        assert answer.status_code == 422
        (error,) = answer.json()["errors"]
        assert error["field"] == "sampler.name"
        assert "SHAMPOO_TUNER_ALLOW_CODE" in error["message"]


def test_a_job_asks_the_class_on_each_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    plan = plan_job(JobSpecification.model_validate({**_job("ours_of_test:Ours"), "pruner": {"name": "none"}}))
    assert plan.sampler == SamplerReference("ours_of_test:Ours")
    assert plan.pruner == "none"

    def asked() -> list[Start]:
        policy, found = make_policy(plan), []
        for _ in range(8):
            start = policy.ask()
            assert isinstance(start, Start)
            found.append(start)
        return found

    first = asked()
    assert {start.side for start in first} == {Phase.SEARCH, "adamw"}
    assert first == asked()
    assert len({str(start.parameters) for start in first}) == len(first)


def test_a_job_whose_class_is_gone_says_so() -> None:
    plan = plan_job(JobSpecification.model_validate(_job("gone_of_test:Ours")))
    with pytest.raises(InvalidInput, match="there is no module 'gone_of_test'"):
        make_policy(plan)
