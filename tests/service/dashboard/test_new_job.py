"""The form of a new job, made of schemas: what it asks for, and how."""

from __future__ import annotations

from typing import Any, get_args

import httpx
import pytest

from service.access.caller import Scope
from service.api.schemas.jobs import JobCreate
from service.dashboard.assets import STATIC
from service.dashboard.new_job.fields import FormField, FormSchema, Kind, in_words
from service.dashboard.new_job.form import NOT_ASKED, FormPart, FormRows, job_defaults, job_form
from service.dashboard.new_job.options import workload_form
from service.dashboard.rendering import prose
from service.specification.workloads import known_workloads
from service.store.session import Database
from tests.support.service.callers import Asked, asking, give_token
from tests.support.service.scenarios import submit
from trainers.workload.description import WorkloadDescription, WorkloadOption

ELSEWHERE = ("/workload", "/search_space")
"""Fields that the page itself has a place for."""


def _field(pointer: str) -> FormField:
    return FormSchema(JobCreate.model_json_schema()).field(pointer)


def _pointers_in_form() -> list[str]:
    """The pointers of all fields, parts and lists, but for that of code."""
    items = [item for section in job_form() for item in section.items]
    inner = [field for item in items if not isinstance(item, FormField) for field in item.fields]
    return [item.pointer for item in (*items, *inner) if item.pointer != "/code"]


def test_all_that_a_job_can_say_has_one_place_in_the_form() -> None:
    found = _pointers_in_form()
    assert len(found) == len(set(found))
    for pointer in FormSchema(JobCreate.model_json_schema()).pointers():
        parents = {pointer[:end] for end, letter in enumerate(pointer) if letter == "/"} | {pointer}
        assert parents & {*found, *ELSEWHERE, *NOT_ASKED}, pointer


def test_a_field_takes_what_its_schema_says() -> None:
    trials = _field("/budget/num_trials")
    assert (trials.kind, trials.default, trials.minimum, trials.maximum) == ("integer", 20, 1, 10_000)
    assert trials.help.startswith("Trials of search and baselines together")
    assert (trials.label, trials.required) == ("Number of trials", False)
    precision = _field("/training/precision")
    assert (precision.kind, precision.choices) == ("choice", ("float32", "bfloat16", "float16"))
    sampler = _field("/sampler/name")
    assert (sampler.kind, sampler.choices[:2], sampler.takes_more) == ("choice", ("auto", "tpe"), True)
    assert _field("/baselines/#/search_space").default == "adamw"
    assert _field("/target/metric").required
    assert "; empty: that of the model" in _field("/name").told
    assert _field("/budget/wall_clock_seconds").told.endswith(" Empty: no limit.")
    kinds = {name: _field(name).kind for name in ("/tags", "/trackers", "/pinned", "/training/compile", "/name")}
    assert kinds == {
        "/tags": "pairs",
        "/trackers": "several",
        "/pinned": "json",
        "/training/compile": "flag",
        "/name": "text",
    }


def test_every_default_of_a_field_is_that_of_a_job() -> None:
    defaults: Any = job_defaults()
    for section in job_form():
        for item in section.items:
            own = defaults
            for name in item.pointer.split("/")[1:]:
                own = own[name]
            match item:
                case FormField():
                    assert own == item.default, item.pointer
                case FormPart():
                    assert own == item.states[0].value, item.pointer
                case FormRows():
                    # Rows of a baseline say their space alone.
                    assert [{"search_space": row["search_space"]} for row in own] == list(item.default), item.pointer


def test_the_page_reads_every_kind_of_field() -> None:
    script = (STATIC / "new_job" / "kinds.js").read_text()
    for kind in get_args(Kind):
        assert f"  {kind}: {{" in script or f"KINDS.{kind} = " in script, kind


@pytest.mark.parametrize("description", known_workloads(), ids=lambda description: str(description.name))
def test_every_option_of_a_workload_has_a_field(description: WorkloadDescription) -> None:
    form = workload_form(description)
    fields = [*form.required, *form.others]
    assert {field.pointer for field in fields} == {f"/workload/options/{name}" for name in description.options}
    assert all(field.default == description.options[field.pointer.rpartition("/")[2]].default for field in fields)
    assert form.metrics[0] == description.default_objective
    assert "step_seconds" in form.metrics


def test_an_option_takes_what_its_default_is() -> None:
    given: dict[str, tuple[WorkloadOption, str]] = {
        "flag": (WorkloadOption(default=False, description="a"), "flag"),
        "whole": (WorkloadOption(3, "a"), "integer"),
        "part": (WorkloadOption(0.5, "a"), "number"),
        "word": (WorkloadOption("tiny", "a"), "text"),
        "list": (WorkloadOption([1], "a"), "value"),
        "path": (WorkloadOption(None, "a", required=True, role="path"), "text"),
        "open": (WorkloadOption(None, "a"), "value"),
    }
    description = WorkloadDescription(
        name="own",
        title="",
        implementation="a:B",
        metrics={"loss": "minimize"},
        default_objective="loss",
        default_num_steps=1,
        default_evaluate_every=1,
        default_batch_size=1,
        options={name: option for name, (option, _) in given.items()},
    )
    form = workload_form(description)
    found = {field.pointer.rpartition("/")[2]: field.kind for field in (*form.required, *form.others)}
    assert found == {name: kind for name, (_, kind) in given.items()}
    assert [field.pointer for field in form.required] == ["/workload/options/path"]


def test_the_page_has_the_options_of_one_workload_and_each_other_comes_when_asked_for(
    sqlite_database: Database,
) -> None:
    names = [description.name for description in known_workloads()]
    token = give_token(sqlite_database, "submits", Scope.SUBMIT)
    with asking(sqlite_database) as service, service.client(token) as client:
        page = client.get("/jobs/new", params={"workload": "text-lm"})
        options = {name: client.get("/jobs/new/options", params={"workload": name}) for name in names}
        unknown = client.get("/jobs/new/options", params={"workload": "no-such"})
    assert page.text.count("data-options-of=") == 1
    assert 'data-options-of="text-lm"' in page.text
    assert len(page.content) < 115_000
    for description in known_workloads():
        for option in description.options:
            assert f'data-pointer="/workload/options/{option}"' in options[description.name].text
    assert unknown.status_code == 422


def test_names_are_told_in_words() -> None:
    assert in_words("num_steps") == "Number of steps"
    assert in_words("report_timeout_seconds") == "Report timeout seconds"


def test_prose_has_code_between_backticks_and_nothing_else_of_html() -> None:
    assert prose("a `b<i>` & c") == "a <code>b&lt;i&gt;</code> &amp; c"
    assert prose("one ` alone <b>") == "one ` alone &lt;b&gt;"


@pytest.mark.slow
def test_who_may_not_submit_or_name_code_is_told_why(sqlite_database: Database) -> None:
    reads = give_token(sqlite_database, "reads", Scope.READ)
    submits = give_token(sqlite_database, "submits", Scope.SUBMIT)
    codes = give_token(sqlite_database, "codes", Scope.SUBMIT, Scope.CODE)
    others = give_token(sqlite_database, "others", Scope.SUBMIT, project="others")
    job_id = submit(sqlite_database)

    def page(service: Asked, token: str, *, clone: bool = True) -> httpx.Response:
        with service.client(token) as client:
            return client.get("/jobs/new", params={"clone": job_id} if clone else None)

    with asking(sqlite_database, allow_code=True) as service:
        read, submitted, coded, other = (page(service, token) for token in (reads, submits, codes, others))
    assert "Your token may not submit jobs" in read.text
    assert "job-form" not in read.text
    assert "needs a token with the scope code" in submitted.text
    assert coded.text.count("module:Class, your own") == submitted.text.count("module:Class, your own") + 1
    assert f'"id": "{job_id}"' in coded.text
    assert other.status_code == 404
    with asking(sqlite_database) as service:
        without = page(service, codes, clone=False).text
    assert "is switched off on this service" in without
    assert "module:Class, your own" not in without
    assert 'data-part="/code"' not in without
