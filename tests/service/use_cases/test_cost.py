"""The cost of jobs: told before, while they run and after, and limited by the budget."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from service.errors import BudgetSpent, InvalidInput
from service.settings import Settings
from service.specification.estimate_lines import estimate_lines
from service.specification.price import Price, price_of
from service.specification.resources import Resources
from service.store.migrate import downgrade, migrate
from service.store.repositories import JobRepository
from service.store.session import Database
from service.use_cases.budgets import allowed_device_hours
from service.use_cases.run import finish_job
from service.use_cases.steer import change_budget, resume_job
from tests.support.service.live import running
from tests.support.service.scenarios import NOW, add_worker, claim, run_trial
from tests.support.waiting import PATIENCE_SECONDS

PRICES = {"cpu": 3600.0, "gpu": 4.0, "h100": 8.0}
JOB: dict[str, Any] = {
    "workload": {"name": "digits-mlp"},
    "budget": {"num_trials": 4, "cost": 10.0},
    "baseline": {"budget_share": 0.25},
    "training": {"num_steps": 40, "evaluate_every": 10},
    "resources": {"workers_per_trial": 2},
}


@pytest.mark.parametrize(
    ("resources", "price"),
    [
        ({}, 3600.0),
        ({"gpus_per_worker": 1}, 4.0),
        ({"gpus_per_worker": 0.25}, 1.0),
        ({"gpus_per_worker": 1, "custom_resources": {"rack": 1, "h100": 1}}, 8.0),
        ({"custom_resources": {"rack": 1}}, 3600.0),
    ],
)
def test_a_price_is_of_the_kind_of_node(resources: dict[str, Any], price: float) -> None:
    asked = Resources.model_validate(resources)
    assert price_of(asked, PRICES, currency="USD") == Price(price, "USD")
    assert price_of(asked, {"tpu": 1.0}, currency="USD") is None


def test_prices_reach_other_processes_as_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Settings(device_hour_prices=PRICES, currency="USD").to_environment()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (Settings().device_hour_prices, Settings().currency) == (PRICES, "USD")
    with pytest.raises(ValueError, match="must be above 0"):
        Settings(device_hour_prices={"cpu": 0.0})


def test_a_job_tells_its_cost_ends_for_it_and_goes_on_with_more(database: Database) -> None:
    with (
        running(database, device_hour_prices=PRICES, currency="USD") as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        made = http.post("/v1/jobs", json=JOB).json()
        assert (made["progress"]["cost"], made["currency"]) == (0.0, "USD")
        lease = claim(database, add_worker(database))
        assert lease is not None
        run_trial(database, lease, 0, 0.5)
        read = http.get(f"/v1/jobs/{made['id']}").json()
        # 0.4 s of two ranks, each at 1 USD a second.
        assert read["progress"]["cost"] == pytest.approx(0.8)
        page = http.get(f"/jobs/{made['id']}").text
        assert "0.80 of 10.00 USD" in page
        assert "Cost in USD" in page
    with database.writing() as session:
        job = JobRepository(session).get(lease.job_id)
        assert allowed_device_hours(job.specification.budget, job.price) == 10 / 3600
        change_budget(session, lease.job_id, {"cost": 0.5}, now=NOW)
    with database.writing() as session:
        session.merge(JobRepository(session).get(lease.job_id)).requested = None
        finish_job(session, lease, failure=None, now=NOW + timedelta(seconds=1))
    with database.writing() as session, pytest.raises(BudgetSpent, match=r"raise budget.cost first: 0.8 of 0.5"):
        resume_job(session, lease.job_id, now=NOW)
    with database.writing() as session:
        change_budget(session, lease.job_id, {"cost": 2.0}, now=NOW)
        resume_job(session, lease.job_id, now=NOW)


def test_a_limit_without_a_price_is_refused_and_a_dry_run_tells_the_most(sqlite_database: Database) -> None:
    dry = {"dry_run": "true"}
    with (
        running(sqlite_database) as url,
        httpx.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE_SECONDS) as http,
    ):
        refused = http.post("/v1/jobs", json=JOB)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "budget.cost"
        free = http.post("/v1/jobs", json={**JOB, "budget": {"num_trials": 4}}).json()
        assert (free["progress"]["cost"], free["currency"]) == (None, None)
        assert http.post("/v1/jobs", params=dry, json=JOB).status_code == 422
    with sqlite_database.writing() as session, pytest.raises(InvalidInput, match=r"budget\.cost"):
        change_budget(session, free["id"], {"cost": 1.0}, now=NOW)


def test_estimate_lines_name_the_cost(sqlite_database: Database) -> None:
    from service.specification.planning import plan_job
    from service.use_cases.estimating.estimates import estimate_job
    from tests.support.service.scenarios import specification

    wanted = specification(budget={"num_trials": 4, "cost": 10.0})
    with sqlite_database.reading() as session:
        estimate = estimate_job(session, plan_job(wanted), project="default", price=Price(4.0, "USD"))
    assert (estimate.max_device_hours, estimate.max_cost, estimate.currency) == (2.5, 10.0, "USD")
    assert any("2.5 device-hours; 10.00 USD" in line for line in estimate_lines(estimate))


def test_a_downgrade_forgets_costs_that_earlier_code_does_not_know(database: Database) -> None:
    with running(database, device_hour_prices=PRICES) as url:
        made = httpx.post(f"{url}/v1/jobs", json=JOB, trust_env=False, verify=False, timeout=PATIENCE_SECONDS).json()
    downgrade(database, "0017")
    migrate(database)
    with database.reading() as session:
        job = JobRepository(session).get(made["id"])
        assert (job.price, job.specification.budget.cost) == (None, None)
