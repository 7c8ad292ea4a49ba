"""The page that asks for configs of a model that was never tuned, and that of a job which begins with such configs."""

from __future__ import annotations

import json
from collections.abc import Sequence

import httpx
import pytest
from playwright.sync_api import Page, expect

from service.api import examples
from service.evidence.formats.written import Format
from service.store.session import Database
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.scenarios import submit
from tests.support.service.tuned import ask_ahead

FORM = {
    "fingerprint": json.dumps(examples.UNTUNED_QUESTION["fingerprint"]),
    "batch_size": "64",
    "num_steps": "500",
    "num_trials": "2",
}
ADDRESS = "/recommendations/untuned"
PATIENCE_SECONDS = 60.0
"""For an answer that takes a process, which the first of these tests waits longest for."""

pytestmark = pytest.mark.processes(minutes=1)


def test_the_form_is_answered_below_itself(address: str) -> None:
    assert f'href="{ADDRESS}"' in httpx.get(address + "/recommendations", trust_env=False, verify=False).text
    form = httpx.get(address + ADDRESS, trust_env=False, verify=False).text
    assert 'name="fingerprint"' in form
    assert "run <code>shampoo-tuner fingerprint my_model:Net</code> where its code is" in form
    answer = httpx.post(address + ADDRESS, trust_env=False, data=FORM, verify=False, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200
    assert "No tuned model with a known shape is stored here" in answer.text
    assert answer.text.count("<details") == 2 * (1 + len(Format))
    assert all(answer.text.count(f"<summary>{form.words}") == 2 for form in Format)
    assert "no workload builds this model" in answer.text


def test_the_page_tells_what_the_models_of_the_table_say_together_and_why_each_value_is_what_it_is(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"fingerprint": examples.UNTUNED_QUESTION["fingerprint"], "batch_size": 64, "num_steps": 500}
    ask_ahead(monkeypatch, asked)
    answer = httpx.post(address + ADDRESS, trust_env=False, data=FORM, verify=False, timeout=PATIENCE_SECONDS)
    text = answer.text
    assert "<p>From 14 tuned models together, the nearest digits-" in text
    reason = "best of one model of the 336 trials of 14 tuned models, moved here and weighed by distance"
    assert "<li>lr: " in text
    assert text.count(reason) > 1
    assert "<li>What the models' trials weigh here: " in text
    assert text.count("<p>From 14 tuned models together") == 1


def test_a_config_with_another_learning_rate_is_told_by_the_one_it_varies(address: str) -> None:
    shapes = [
        ("linear", [512, 64]),
        ("linear", [256, 512]),
        ("linear", [10, 256]),
        ("vector", [512]),
        ("vector", [256]),
    ]
    parameters = [{"kind": kind, "shape": shape, "count": 1} for kind, shape in shapes]
    fingerprint = json.dumps({**examples.UNTUNED_QUESTION["fingerprint"], "parameters": parameters})
    form = {**FORM, "fingerprint": fingerprint, "num_trials": "5"}
    answer = httpx.post(address + ADDRESS, trust_env=False, data=form, verify=False, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200
    assert answer.text.count("The first one with half its learning rate, as the best may be lower.") == 1
    assert answer.text.count("The first one with twice its learning rate, as the best may be higher.") == 1
    assert answer.text.count("<p>From ") == 3


def test_configs_of_one_member_of_the_family_can_be_asked_for(address: str) -> None:
    form = {**FORM, "num_trials": "3", "preconditioner": "kl"}
    answer = httpx.post(address + ADDRESS, trust_env=False, data=form, verify=False, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200
    assert answer.text.count("Shampoo (kl), lr ") == 3
    assert '<option value="kl" selected>kl</option>' in answer.text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"fingerprint": "{"}, "fingerprint: is no JSON"),
        ({"fingerprint": '{"parameters": [{"kind": "linear", "shape": [0]}]}'}, "fingerprint.parameters[0].shape[0]"),
        ({"batch_size": "many"}, "batch_size: must be an integer"),
        ({"num_trials": "21"}, "budget.num_trials"),
        ({"preconditioner": "muon"}, "preconditioner: Input should be &#39;shampoo&#39;, "),
        ({"proxy_job": "job_none"}, "proxy_job: no job &#39;job_none&#39; has a recommendation"),
    ],
)
def test_what_is_wrong_is_said_beside_the_form(address: str, changed: dict[str, str], said: str) -> None:
    answer = httpx.post(
        address + ADDRESS, trust_env=False, data={**FORM, **changed}, verify=False, timeout=PATIENCE_SECONDS
    )
    assert answer.status_code == 422
    assert said in answer.text
    assert "<details" not in answer.text


def test_the_page_is_for_everyone(page: Page) -> None:
    page.goto(ADDRESS + "?proxy_job=job_1")
    expect(page.get_by_label("From job")).to_have_value("job_1")
    page.get_by_label("From job").fill("")
    page.get_by_label("Fingerprint").fill(FORM["fingerprint"])
    page.get_by_label("Member").select_option("shampoo")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("status")).to_contain_text("No value is promised")
    page.get_by_text("In other formats").first.click()
    page.get_by_text("Python with pytorch_optimizer").first.click()
    expect(page.get_by_role("button", name="Copy Python with pytorch_optimizer of config 1")).to_be_visible()
    assert_accessible(page)
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_jobs_page_names_the_models_whose_configs_it_begins_with(address: str, sqlite_database: Database) -> None:
    sources = [{"source": f"digits-mlp width={width}", "distance": 1.0} for width in (32, 64)]
    known = [{**source, "parameters": {"lr": lr}} for source, lr in zip(sources, (0.01, 0.02), strict=True)]
    own = {"lr": 0.03}
    job_id, without = (
        submit(sqlite_database, pinned=pinned, known_configs="found", budget={"num_trials": 8})
        for pinned in ([own, *known], [own])
    )
    page, other = (
        httpx.get(f"{address}/jobs/{one}", trust_env=False, verify=False, timeout=PATIENCE_SECONDS).text
        for one in (job_id, without)
    )
    told = "Tuned for digits-mlp width=32; digits-mlp width=64, and moved to this model."
    assert f'<span title="{told}">begins with 2 known configs</span>' in page
    assert "known config" not in other.split("<h2")[0]


def test_a_jobs_page_says_how_many_known_configs_its_budget_suffices_for(
    address: str, sqlite_database: Database
) -> None:
    lrs = (0.01, 0.02, 0.03)
    known = [{"source": f"digits-mlp of {lr}", "distance": 1.0, "parameters": {"lr": lr}} for lr in lrs]

    def page(space: str, num_trials: int, *, first: Sequence[dict[str, float]] = ()) -> str:
        job_id = submit(
            sqlite_database,
            search_space=space,
            pinned=[*first, *known],
            budget={"num_trials": num_trials},
            baselines=[],
            known_configs="found",
        )
        found = httpx.get(f"{address}/jobs/{job_id}", trust_env=False, verify=False, timeout=PATIENCE_SECONDS)
        return found.text

    few = page("shampoo", 3)  # the first one is of the defaults
    assert ">begins with 2 of 3 known configs<" in few
    assert "The budget of the search is too small for all of them." in few
    assert ">begins with none of 3 known configs<" in page("shampoo", 1)
    assert ">begins with 1 of 3 known configs<" in page("shampoo", 3, first=[{"lr": 0.04}])
    assert ">begins with 1 of 3 known configs<" in page("family", 6)  # after the defaults of each member
    enough = page("shampoo", 4)
    assert ">begins with 3 known configs<" in enough
    assert "too small" not in enough
