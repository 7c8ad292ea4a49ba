"""Text that is there to be seen."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from service.api.schemas.jobs import JobChange, JobCreate
from service.shown_text import is_unseen
from service.specification.external.messages import Suggest


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t",
        "\u200b",
        "\u200d\ufe0f",
        "\u00a0\u3000",
        "\u2028\u2029",
        "\u2800",
        "\u3164",
        "\U000e0100",
        "\x1b",
    ],
)
def test_what_shows_nothing_is_unseen(text: str) -> None:
    assert is_unseen(text)


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "\u200b.\u200b",
        "\U0001f469\u200d\U0001f52c",  # joined into one emoji
        "\u2764\ufe0f",
        "\U0001f3f3\ufe0f\u200d\U0001f308",
        "\u0915\u094d\u200d",  # Devanagari, with a joiner
        "\ue000",  # of private use
        "\U000e0fff",  # none yet
    ],
)
def test_what_shows_something_is_not(text: str) -> None:
    assert not is_unseen(text)


def test_names_tags_and_notes_are_taken_as_they_are_if_they_show_something() -> None:
    given = {
        "name": "\U0001f469\u200d\U0001f52c",
        "model": "a\u200bb",
        "tags": {"\u2764\ufe0f": "", "mood": "\u263a\ufe0f"},
        "notes": "",
    }
    body = JobCreate.model_validate({"workload": {"name": "digits-mlp"}, **given})
    assert {name: getattr(body, name) for name in given} == given


def test_models_metrics_and_clients_that_show_nothing_are_refused() -> None:
    workload = {"workload": {"name": "external"}}
    for given in ({"model": "\u200b"}, {"external": {"metrics": {"\u2060": "minimize"}}}, {"notes": " \n"}):
        with pytest.raises(ValidationError, match="must have a character that can be seen"):
            JobCreate.model_validate({**workload, **given})
    with pytest.raises(ValidationError, match="must have a character that can be seen"):
        Suggest.model_validate({"client": "\u200b"})
    assert Suggest.model_validate({"client": ""}).client == ""


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (JobCreate, "name", "a\nb"),
        (JobCreate, "model", "a\u2028b"),
        (JobCreate, "tags", {"a\nb": ""}),
        (JobChange, "name", "a\x85b"),
        (JobChange, "tags", {"a": "b\tc"}),
    ],
)
def test_the_schema_says_what_has_to_be_one_line(kind: type[JobCreate | JobChange], field: str, value: object) -> None:
    workload = {"workload": {"name": "digits-mlp"}} if kind is JobCreate else {}
    with pytest.raises(ValidationError, match="must be one line"):
        kind.model_validate({**workload, field: value})
    assert "one line" in kind.model_json_schema()["properties"][field]["description"]
