"""The form of a new job in a real browser: from the empty page to a stored job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from playwright.sync_api import Locator, Page, expect
from ulid import ULID

from search_spaces import presets
from service.access.projects import Quotas, change_project
from service.api import examples
from service.api.schemas.jobs import JobCreate
from service.cli.job_file import read_job_file
from service.domain import DEFAULT_PROJECT, JobState
from service.specification.planning import plan_job
from service.specification.workloads import known_workloads
from service.store.models import Job
from service.store.session import Database
from tests.support.service.commands import run
from tests.support.service.scenarios import NOW
from tests.support.service.stories.jobs import Story, submit_digits

_COLUMNS: dict[str, Any] = {"state": JobState.QUEUED, "num_trials": 1, "num_steps": 1}
"""The columns that a row must have, whatever the job says."""


@pytest.fixture
def asking(address: str, lenient_page: Page) -> Page:  # noqa: ARG001 # the service is to run
    """A page of the service: faults, answers 422, are part of these stories."""
    return lenient_page


def _typed(page: Page, tmp_path: Path) -> dict[str, object]:
    """The shown YAML, as the command line reads it."""
    file = tmp_path / "job.yaml"
    file.write_text(page.locator("#yaml").text_content() or "", encoding="utf-8")
    return read_job_file(file).content


def test_every_workload_and_every_space_is_valid_as_it_stands(asking: Page, tmp_path: Path) -> None:
    asking.route("**/v1/jobs?dry_run=true", lambda route: route.abort())  # `plan_job` says the same, in less time
    asking.goto("/jobs/new")
    expect(asking.locator("#yaml")).to_contain_text("digits-mlp")
    for workload in known_workloads():
        asking.get_by_label("Workload", exact=False).first.select_option(workload.name)
        for option in (name for name, own in workload.options.items() if own.required):
            asking.locator(f'[data-pointer="/workload/options/{option}"]').fill("/data")
        typed = _typed(asking, tmp_path)
        required = {name: "/data" for name, own in workload.options.items() if own.required}
        assert typed == {"workload": {"name": workload.name, **({"options": required} if required else {})}}
        plan_job(JobCreate.model_validate(typed).specification)
    asking.get_by_label("Workload", exact=False).first.select_option("digits-mlp")
    for name in presets():
        asking.get_by_label("Search space", exact=True).first.select_option(name)
        typed = _typed(asking, tmp_path)
        assert typed.get("search_space", "shampoo") == name
        if presets()[name].optimizer != "adamw":  # the baseline
            plan_job(JobCreate.model_validate(typed).specification)


@pytest.mark.usefixtures("warm_process")
def test_a_job_is_put_together_mended_and_submitted_once(asking: Page, address: str, tmp_path: Path) -> None:
    page = asking
    page.goto("/")
    page.get_by_role("link", name="New job").first.click()
    page.get_by_label("Name", exact=True).fill('手書き "quoted": it\'s <b>')
    page.get_by_label("Trials", exact=True).fill("many")
    expect(page.locator("#verdict")).to_have_text("Not valid yet: one thing is to mend.")
    expect(page.get_by_label("Trials", exact=True)).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Submit job").click()  # goes to the fault, and submits nothing
    expect(page.get_by_label("Trials", exact=True)).to_be_focused()

    page.reload()  # loses nothing, not even what is wrong
    expect(page.get_by_label("Trials", exact=True)).to_have_value("many")
    expect(page.get_by_label("Name", exact=True)).to_have_value('手書き "quoted": it\'s <b>')
    page.get_by_label("Trials", exact=True).fill("24")
    page.get_by_label("Tags", exact=True).fill("team=vision\nno: yes")
    page.locator("summary", has_text="Options of digits-mlp").click()
    page.get_by_label("Dropout").fill("0.25")
    page.get_by_label("Hidden sizes").fill("[96, 48]")

    expect(page.locator("[data-told]").first).to_contain_text("parameters of Shampoo")
    page.locator("summary", has_text="Its parameters").first.click()
    page.get_by_label("lr, highest").first.fill("1e-5")
    expect(page.locator("#faults")).to_contain_text("lr, ")  # the API says so
    page.get_by_label("lr, highest").first.fill("1e-2")
    page.locator("summary", has_text="Training").click()
    page.get_by_label("Number of steps", exact=True).fill("40")
    page.locator("summary", has_text="How it searches").click()
    page.get_by_label("Sampler", exact=True).select_option("tpe")
    page.get_by_label("Tried first").fill('["algoperf", {"lr": 0.002}]')
    page.locator("summary", has_text="Objectives").click()
    page.get_by_role("button", name="Add a constraint").click()
    constraint = page.get_by_role("group", name="Constraint", exact=True)
    constraint.get_by_label("Metric").fill("peak_memory_bytez")
    constraint.get_by_label("Max", exact=True).fill("8e9")
    page.locator("summary", has_text="Baselines").click()
    page.get_by_role("button", name="Add a baseline").click()
    expect(page.locator("#yaml")).to_contain_text("search_space: sgd")

    page.locator("details", has_text="Objectives").last.locator("summary").first.click()  # folded away again
    expect(page.locator("#faults")).to_contain_text("did you mean 'peak_memory_bytes'?")
    page.locator("#faults").get_by_role("button").click()
    expect(constraint.get_by_label("Metric")).to_be_focused()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("peak_memory_bytes")

    expect(page.locator("#verdict")).to_have_text("Valid.")
    expect(page.locator("#estimate .costs")).to_contain_text("search 8, baseline 16")
    expect(page.locator("#estimate .costs")).to_contain_text("Memory, search")
    expect(page.locator("#estimate .costs")).to_contain_text("Memory, baseline AdamW")
    page.locator("summary", has_text="Resources").click()
    page.get_by_label("Memory of a rank in bytes").fill("1000")
    expect(page.locator("#misfits")).to_contain_text("Nothing fits: the search would train nothing.")
    page.get_by_label("Memory of a rank in bytes").fill("")
    expect(page.locator("#misfits")).to_be_hidden()
    typed = _typed(page, tmp_path)
    page.get_by_role("button", name="curl").click()
    request = page.locator("#curl").text_content() or ""
    body = request[request.index("-d '") + 4 : request.rindex("'")].replace("'\\''", "'")
    assert json.loads(body) == typed

    page.get_by_role("button", name="Submit job").dblclick()
    page.wait_for_url("**/jobs/job_*")
    expect(page.get_by_role("heading", level=1)).to_have_text('手書き "quoted": it\'s <b>')
    jobs = httpx.get(f"{address}/v1/jobs?view=full", trust_env=False, verify=False).json()["items"]
    assert len(jobs) == 1
    file = tmp_path / "job.yaml"
    result = run("submit", str(file), "--url", address)
    assert result.exit_code == 0, result.output
    both = httpx.get(f"{address}/v1/jobs?view=full", trust_env=False, verify=False).json()["items"]
    assert len(both) == 2
    assert both[0]["specification"] == both[1]["specification"]
    assert [job["tags"] for job in both] == [{"team": "vision", "no: yes": ""}] * 2
    assert yaml.safe_load(file.read_text())["name"] == both[0]["name"] == both[1]["name"]
    page.goto("/jobs/new")  # nothing is left of it
    expect(page.get_by_label("Name", exact=True)).to_have_value("")


def test_a_fault_inside_a_field_of_json_says_where_in_it(asking: Page) -> None:
    asking.goto("/jobs/new")
    asking.locator("summary", has_text="How it searches").click()
    asking.get_by_label("Tried first").fill('["algoperf", {"rate": 0.002}]')
    told = "1: 'rate' = 0.002 is not a parameter of this space"
    expect(asking.locator("#faults")).to_contain_text(f"Tried first {told}")
    expect(asking.locator("#job-form .fault", has_text=told)).to_be_visible()


def test_a_number_that_would_become_another_one_is_refused(asking: Page) -> None:
    page = asking
    page.goto("/jobs/new")
    page.locator("summary", has_text="Options of digits-mlp").click()
    sizes, faults = page.get_by_label("Hidden sizes"), page.locator("#faults")
    sizes.fill("[64, 9007199254740993]")
    expect(faults).to_contain_text("integers must be at most 9007199254740991 here, got 9007199254740993")
    sizes.fill("[1e400]")
    expect(faults).to_contain_text("a number in it is too large")
    sizes.fill("[9007199254740992, 1e20]")
    expect(faults).not_to_contain_text("a number in it")
    sizes.fill("")
    page.locator("summary", has_text="Its parameters").first.click()
    highest = page.get_by_label("lr, highest").first
    for text in ("0x10", "1e-400"):
        highest.fill(text)
        expect(faults).to_contain_text(f"must be a number, got '{text}'")
    highest.fill("1e-2")
    expect(page.locator("#verdict")).to_contain_text("Valid")


@pytest.mark.parametrize("width", [1280, 390])
def test_what_is_pressed_below_a_field_with_the_focus_stays_under_the_pointer(asking: Page, width: int) -> None:
    page = asking
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/jobs/new")
    page.locator("summary", has_text="Baselines").click()
    baselines = page.locator('[data-rows="/baselines"]')
    share = baselines.locator('[data-pointer="/baselines/#/budget_share"]')
    explanation = baselines.locator('[id$="budget_share-help"]')
    folded = _height(explanation)
    share.focus()
    unfolded = _height(explanation)
    assert unfolded > 1.5 * folded

    button = baselines.get_by_role("button", name="Add a baseline")
    button.scroll_into_view_if_needed()
    place = button.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    page.mouse.down()
    expect(share).not_to_be_focused()
    assert button.bounding_box() == place
    page.mouse.up()
    expect(baselines.locator("[data-row]")).to_have_count(2)
    assert _height(explanation.first) == unfolded

    explanation.last.hover()  # moves nothing, either
    assert _height(explanation.last) == folded
    explanation.last.click()  # to read, and to type nothing
    assert _height(explanation.last) == unfolded


def _height(element: Locator) -> float:
    box = element.bounding_box()
    assert box is not None
    return box["height"]


def test_a_job_that_is_refused_for_no_fault_of_its_own_is_not_called_invalid(
    asking: Page, sqlite_database: Database
) -> None:
    page = asking
    with sqlite_database.writing() as session:
        change_project(session, DEFAULT_PROJECT, Quotas(max_queued_jobs=0), fields=("max_queued_jobs",))
    page.goto("/jobs/new")
    page.get_by_role("button", name="Submit job").click()
    expect(page.locator("#verdict")).to_have_text("Not submitted.")
    expect(page.locator("#problem")).to_contain_text("max_queued_jobs")


def test_a_page_that_the_browser_shows_again_has_what_was_typed_until_it_is_submitted(asking: Page) -> None:
    page = asking
    # A browser under test keeps no page that it has left: it is told what one would be told that did.
    again = "dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))"
    page.goto("/jobs/new")
    name, trials = page.get_by_label("Name", exact=True), page.get_by_label("Trials", exact=True)
    name.fill("mine")
    trials.fill("many")
    page.locator("summary", has_text="Options of digits-mlp").click()
    page.get_by_label("Dropout").fill("0.25")
    page.evaluate(again)
    expect(name).to_have_value("mine")
    expect(trials).to_have_value("many")
    expect(page.get_by_label("Dropout")).to_have_value("0.25")
    expect(page.locator("#yaml")).to_contain_text("dropout: 0.25")

    workload = page.get_by_label("Workload", exact=False).first
    workload.select_option("stdlib-gpt")
    expect(page.locator("summary", has_text="Options of stdlib-gpt")).to_be_visible()  # they come, and are kept
    page.evaluate("sessionStorage.clear()")  # as when the job is submitted
    page.evaluate(again)
    expect(name).to_have_value("")
    expect(trials).to_have_value("20")
    expect(workload).to_have_value("digits-mlp")
    page.locator("summary", has_text="Options of digits-mlp").click()
    expect(page.get_by_label("Dropout")).to_have_value("0")


def test_a_job_is_cloned_by_the_form_with_some_of_it_changed(
    asking: Page, address: str, sqlite_database: Database
) -> None:
    page = asking
    lr = {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "scale": "log", "default": 1e-3}
    story = Story(
        sqlite_database,
        now=NOW,
        search_space={"optimizer": "shampoo", "parameters": [lr], "fixed": {"grafting": "adam"}},
        baseline={"budget_share": 0.25, "search_space": "muon"},
        workload={"name": "digits-mlp", "options": {"dropout": 0.1}},
        confirmation=None,
        target={"metric": "validation_loss", "value": 0.2},
    )
    page.goto(f"/jobs/{story.job_id}")
    page.get_by_role("link", name="Edit and clone").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("digits, first look")
    told = page.get_by_text("Like digits, first look; change what is to differ. It begins with no trials.")
    expect(told).not_to_have_css("display", "flex")  # that would lay out a sentence in pieces
    before = httpx.get(f"{address}/v1/jobs/{story.job_id}", trust_env=False, verify=False).json()["specification"]
    page.locator("summary", has_text="Options of digits-mlp").click()
    page.get_by_label("Dropout").fill("")
    page.get_by_label("Trials", exact=True).fill("30")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(lambda url: url.rpartition("/")[2] not in (story.job_id, "") and "new" not in url)
    clone = httpx.get(f"{address}/v1/jobs/{page.url.rpartition('/')[2]}", trust_env=False, verify=False).json()
    assert clone["cloned_from"] == story.job_id
    after = clone["specification"]
    assert (after["budget"]["num_trials"], after["workload"]["options"]) == (30, {})
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"budget", "workload"}
    page.goto("/jobs/new?clone=job_unknown")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such job")


def test_what_is_to_be_pasted_is_shown_in_the_order_that_it_has(
    page: Page, sqlite_database: Database, tmp_path: Path
) -> None:
    turned = "abc\u202egnp.exe\u2066"
    page.goto(f"/jobs/new?clone={submit_digits(sqlite_database, now=NOW, name=turned)}")
    expect(page.locator("#yaml")).to_contain_text("gnp.exe")
    assert _typed(page, tmp_path)["name"] == turned
    for shown in ("#yaml", "#curl"):
        assert r'"abc\u202egnp.exe\u2066"' in (page.locator(shown).text_content() or "")


def test_the_form_says_of_any_job_what_the_job_says(asking: Page, sqlite_database: Database, tmp_path: Path) -> None:
    own = {"type": "categorical", "name": "grafting", "choices": ["adam", "sgd"], "default": "sgd"}
    soap = presets()["soap"].to_json()
    narrowed = [{**parameter, "low": parameter["default"]} for parameter in soap["parameters"]]
    given: list[dict[str, Any]] = [
        examples.JOB_CREATE,
        examples.JOB_CREATE_OWN_SPACE,
        examples.JOB_CREATE_SEARCHED_BATCH,
        examples.JOB_CREATE_TOKENS,
        examples.JOB_CREATE_EXTERNAL,
        {
            "workload": {"name": "stdlib-gpt", "options": {"size": "small"}},
            "search_space": {**soap, "parameters": narrowed},
            "objectives": [{"metric": "validation_loss"}, {"metric": "step_seconds"}],
            "target": {"metric": "validation_loss", "value": 1.5},
            "constraints": [{"metric": "peak_memory_bytes", "max": 8e9}, {"metric": "validation_loss", "min": 0}],
            "budget": {"num_trials": 30, "device_hours": 1.5, "patience": 7},
            "training": {
                "num_steps": 50,
                "evaluate_every_epochs": 0.5,
                "precision": "bfloat16",
                "compile": True,
                "report_timeout_seconds": None,
                "compression": {"rank": 2},
                "averaging": {"method": "ema", "arguments": {"decay": 0.99}},
            },
            "resources": {"workers_per_trial": 2, "custom_resources": {"fast": 1}, "parallel_trials": 3},
            "sampler": {"name": "nsga2", "seed": 7},
            "pruner": {"name": "none"},
            "pinned": ["winners", {"lr": 0.002}],
            "baselines": [
                {"search_space": "muon", "budget_share": 0.2},
                {"search_space": "sgd", "pinned": [{"lr": 0.1}]},
            ],
            "trackers": ["tensorboard"],
            "confirmation": {"num_seeds": 4},
            "currency": "seconds",
        },
        {
            "workload": {"name": "my_model:Mine", "options": {"depth": 3, "name": "null", "none": None}},
            "search_space": {"optimizer": "shampoo", "parameters": [own]},
            "code": {"sha256": "a" * 64, "environment": {"A": "b=c"}},
            "baselines": [],
            "confirmation": None,
            "sampler": {"name": "samplers:Mine", "options": {"a": [1]}},
        },
    ]
    asking.route("**/v1/jobs?dry_run=true", lambda route: route.abort())
    for content in given:
        body = JobCreate.model_validate(content)
        named = {"name": body.name, "model": body.model, "tags": body.tags}
        with sqlite_database.writing() as session:
            job = Job(id=f"job_{ULID()}", created_at=NOW, **{**_COLUMNS, **named, "name": body.name or "any"})
            job.specification = body.specification
            job.workload = body.workload.name
            session.add(job)
            session.flush()
            job_id = job.id
        asking.goto(f"/jobs/new?clone={job_id}")
        expect(asking.locator("#yaml")).to_contain_text("workload:")
        expect(asking.locator("#faults")).to_be_hidden()
        typed = JobCreate.model_validate(_typed(asking, tmp_path))
        found, wanted = (one.specification.model_dump(mode="json") for one in (typed, body))
        assert {name: found[name] for name in found if found[name] != wanted[name]} == {}, content
        assert (typed.model, typed.tags) == (body.model, body.tags)


def test_the_form_says_which_preset_was_best_on_models_like_this_one_and_takes_it(asking: Page, tmp_path: Path) -> None:
    asking.goto("/jobs/new?workload=digits-convnet")
    compared = asking.locator("#compared")
    expect(compared).to_be_visible()
    rows = dict(line.split("\n") for line in compared.locator("dl > div").all_inner_texts())
    assert rows.keys() == {"shampoo", "soap", "kl", "spectral", "adamw"}
    first, *others = rows
    assert rows[first] == "best"
    assert all(rows[name].endswith("× the loss") for name in others)
    compared.get_by_role("button", name=f"Search {first}").click()
    expect(asking.get_by_label("Search space", exact=True).first).to_have_value(first)
    assert _typed(asking, tmp_path)["search_space"] == first
    expect(asking.locator("#estimate")).to_have_attribute("data-state", "known")
    expect(compared.get_by_role("button")).to_be_hidden()
    asking.get_by_label("Search space", exact=True).first.select_option("muon")
    expect(compared).to_be_hidden()


def test_nothing_moves_on_the_form_while_it_is_made_ready(asking: Page) -> None:
    asking.route("**/v1/jobs?dry_run=true", lambda route: route.abort())
    asking.set_viewport_size({"width": 1440, "height": 900})  # what a space searches is told in one line
    asking.goto("/jobs/new")
    expect(asking.locator("#fields")).to_be_enabled()
    moved = asking.evaluate(
        """() => new Promise((resolve) => new PerformanceObserver((list) => resolve(list.getEntries())).observe(
             {type: 'layout-shift', buffered: true}) ?? setTimeout(() => resolve([]), 1000)).then((shifts) =>
             shifts.flatMap((shift) => shift.sources).filter(({node}) => node?.parentElement?.closest('#job-form')).map(
               ({node, previousRect, currentRect}) => [node.nodeName, node.id, currentRect.y - previousRect.y]))"""
    )
    assert moved == []
