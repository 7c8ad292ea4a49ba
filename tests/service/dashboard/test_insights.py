"""The section on what mattered: its words as plain values, and a reader who chooses what to look at."""

from __future__ import annotations

import dataclasses
import random
import re

import pytest
from playwright.sync_api import Page, expect

from service.dashboard.job.insights import insights_section
from service.domain import FailureReason, Phase, TrialState
from service.evidence.insights import JobInsights
from service.scheduler.insights.keeper import InsightsKeeper
from service.specification.phases import spaces_of
from service.specification.planning import plan_job
from service.store.models import JobInsightsRow
from service.store.repositories import JobRepository, ModelShapeRepository
from service.store.session import Database
from service.use_cases.leases import Lease
from tests.service.dashboard.conftest import wait_for
from tests.service.evidence.test_insights import INSIGHTS, SEARCH
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.scenarios import NOW, claimed_job, store_trials
from trainers.identity.values import ModelShape, ParameterShape

FINGERPRINT = "a" * 32
PERCEPTRON = ModelShape(tuple(ParameterShape("linear", shape, 1) for shape in ((10, 256), (256, 64), (256, 256))))
HERE: dict[str, object] = {"device": "cpu", "device_name": None, "world_size": 2, "versions": {}}
TITLES = {"search": "Shampoo", "adamw": "AdamW"}


def row(insights: JobInsights) -> JobInsightsRow:
    return JobInsightsRow(job_id="job", content=insights.to_json(), computed_at=NOW)


def test_the_section_tells_each_side_and_the_strongest_parameter_first() -> None:
    few = dataclasses.replace(
        SEARCH, side="adamw", num_completed=3, num_pruned=0, num_diverged=0, parameters=[], maps=[], prices=[]
    )
    section = insights_section(row(dataclasses.replace(INSIGHTS, sides=[SEARCH, few])), TITLES, num_ended=34)
    search, baseline = section.panels
    assert section.why_empty == ""
    assert section.computed_at == NOW.isoformat()
    assert section.shown == "search"
    assert (search.title, [bar.label for bar in search.bars]) == ("Shampoo", ["lr", "grafting"])
    assert [bar.label for bar in search.mattered] == ["lr"]
    assert search.bars[0].percent == pytest.approx(80)
    assert "partly" not in search.early_late
    assert "well" in search.early_late
    assert search.cheaper_than.startswith("Settings that need less time or memory than trial 17's")
    assert [(price.parameter, price.move) for price in search.prices] == [
        ("precondition_frequency", "10 → 50"),
        ("state_dtype", "float32 → bfloat16"),
    ]
    assert search.prices[1].objective == "cannot be told: too few trials"
    assert (section.metric, baseline.prices, baseline.cheaper_than) == ("validation_loss", [], "")
    assert baseline.too_few.startswith("Only 3 trials can be compared")


@pytest.mark.parametrize(
    ("stored", "words"),
    [(None, "Only 3 trials can"), (row(dataclasses.replace(INSIGHTS, sides=[])), "No trial can be compared")],
)
def test_a_job_without_enough_trials_says_so_in_a_sentence(stored: JobInsightsRow | None, words: str) -> None:
    section = insights_section(stored, TITLES, num_ended=3)
    assert section.panels == []
    assert section.why_empty.startswith(words)


def fill(database: Database, lease: Lease, count: int) -> None:
    """Ended trials of both sides, whose loss has its best at a learning rate; too high ones diverge."""
    rng = random.Random(1)
    with database.writing() as session:
        specification = JobRepository(session).get(lease.job_id).specification
        ModelShapeRepository(session).put(FINGERPRINT, PERCEPTRON)
    spaces, plan, trials = spaces_of(specification), plan_job(specification), list[dict[str, object]]()
    for number in range(count):
        side = "adamw" if number % 4 == 3 else "search"
        values = spaces[side].sample(rng)
        at = next(one for one in spaces[side].active(values) if one.name == "lr").to_unit(values["lr"])  # type: ignore[arg-type]
        value = 0.1 + (at - 0.5) ** 2 + rng.gauss(0, 0.005)
        trial: dict[str, object] = {
            "phase": Phase.SEARCH if side == "search" else Phase.BASELINE,
            "parameters": values,
            "value": value,
        }
        if at > 0.85:
            trial |= {"state": TrialState.FAILED, "reason": FailureReason.DIVERGED, "value": None}
        elif value > 0.2:
            trial |= {"state": TrialState.PRUNED, "step": 10}
        if side == "search":
            seconds = 0.4 + 0.4 / values["precondition_frequency"] + rng.gauss(0, 0.01)  # type: ignore[operator]
            trial |= {"fingerprint": FINGERPRINT, "environment": HERE, "seconds": seconds}
        trials.append({**trial, "config": plan.trial_config(side, values).to_json()})
    store_trials(database, lease.job_id, trials)


@pytest.mark.processes
def test_a_reader_sees_what_mattered_looks_closer_and_finds_it_again_by_its_address(
    page: Page, sqlite_database: Database
) -> None:
    lease = claimed_job(sqlite_database, budget={"num_trials": 80})
    page.goto(f"/jobs/{lease.job_id}")
    section = page.locator("#insights")
    expect(section).to_contain_text("No trial can be compared: from 12 on")
    expect(page.locator("#insight-charts")).to_be_hidden()

    fill(sqlite_database, lease, 80)
    InsightsKeeper(sqlite_database, lease).look()
    page.reload()
    expect(section.locator("tbody tr").first).to_contain_text("lr")
    expect(section.locator("tbody tr").first).to_contain_text("higher is better up to about")
    expect(section.locator("tbody tr").first).to_contain_text("diverged")
    prices = section.get_by_role("region", name="Cheaper settings").get_by_role("row")
    expect(prices.nth(0)).to_have_text(re.compile("Setting.*validation_loss.*Step.*State memory.*How known", re.DOTALL))
    expect(prices.nth(1).get_by_role("rowheader")).to_contain_text("precondition_frequency")
    expect(prices.nth(1)).to_contain_text("step measured in")
    traces = "id => document.getElementById(id).data?.map((trace) => trace.name ?? trace.type) ?? []"
    wait_for(page, f"() => ({traces})('insight-slice').includes('diverged')")
    wait_for(page, f"() => ({traces})('insight-map').includes('heatmap')")

    # Another parameter by the button of its line, its trials as a table, and another map.
    section.get_by_text("others, not told from chance").first.click()
    section.get_by_role("button", name="weight_decay", exact=True).first.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Trials over", exact=True)).to_have_value("weight_decay")
    wait_for(page, "() => document.getElementById('insight-slice').layout.xaxis.title.text === 'weight_decay'")
    section.get_by_text("As a table").first.click()
    expect(section.locator("#slice-table thead")).to_contain_text("weight_decay")
    counts = section.locator("#slice-table tbody td:nth-child(2)").all_inner_texts()
    assert sum(int(count) for count in counts) == 60
    before = page.locator("#map-x").input_value()
    page.locator("#map-x").select_option(page.locator("#map-y").input_value())
    expect(page.locator("#map-y")).to_have_value(before)
    page.locator("#map-x").select_option("betas[0]")
    wait_for(page, "() => document.getElementById('insight-map').layout.xaxis.title.text === 'betas[0]'")

    page.reload()
    expect(page.locator("#slice-parameter")).to_have_value("weight_decay")
    expect(page.locator("#map-x")).to_have_value("betas[0]")
    wait_for(page, "() => document.getElementById('insight-slice').layout?.xaxis.title.text === 'weight_decay'")

    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert_accessible(page, within="#insights")

    # The baseline's own; its address leads there, too.
    section.get_by_role("button", name="AdamW").click()
    expect(section.locator(".insight-panel:visible")).to_contain_text("AdamW: 20 trials")
    page.reload()
    expect(section.locator(".insight-panel:visible")).to_contain_text("AdamW: 20 trials")
    expect(section.get_by_role("button", name="AdamW")).to_have_attribute("aria-pressed", "true")
