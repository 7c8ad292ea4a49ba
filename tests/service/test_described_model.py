"""Models whose fields are described by the docstrings below them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import pytest
from pydantic import Field, ValidationError

from service.api.schemas.jobs import JobCreate
from service.described_model import DescribedModel, StrictModel
from service.faults import MAX_LOOKED_AT
from service.specification.job import JobSpecification


@dataclass(frozen=True)
class Inner:
    size: int
    """In bytes."""


class First(DescribedModel):
    limit: ClassVar[int] = 3
    """Of the class, which no schema has."""
    name: str
    """For people,
    and long."""
    kept: int = Field(1, description="Said with the field.")
    """Said below it."""
    undescribed: int = 0
    inner: Inner
    """A dataclass."""


class Second(First):
    name: str
    """Said anew."""
    number: int = Field(alias="no")
    """Of the list."""


class Strict(StrictModel):
    inner: Strict | None = None
    number: int = Field(0, alias="no")


def _places(error: ValidationError) -> list[tuple[int | str, ...]]:
    return [one["loc"] for one in error.errors()]


def _descriptions(kind: type[DescribedModel]) -> dict[str, Any]:
    return {name: each.get("description") for name, each in kind.model_json_schema()["properties"].items()}


def test_a_field_is_described_by_the_docstring_below_it() -> None:
    expected = {"name": "For people,\nand long.", "kept": "Said with the field.", "undescribed": None}
    assert _descriptions(First) == {**expected, "inner": "A dataclass."}
    assert First.model_json_schema()["$defs"]["Inner"]["properties"]["size"]["description"] == "In bytes."


def test_a_subclass_has_its_own_docstrings_and_those_that_it_inherits() -> None:
    found = _descriptions(Second)
    assert found == {**_descriptions(First), "name": "Said anew.", "no": "Of the list."}


MANY = {f"field{index}": 1 for index in range(60_000)}
IMPORTED = {"source": "study", "number": 1, "parameters": {}, "value": 0.1}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"training": {"compression": MANY}}, "training.compression.field0"),
        ({"training": {"averaging": MANY}}, "training.averaging.method"),
        ({"imported": [{**IMPORTED, **dict(islice(MANY.items(), 300))}] * 200}, "imported.0.field0"),
        ({"external": {"metrics": MANY}}, "external.metrics"),
        ({"code": {"sha256": "x", "environment": MANY}}, "code.environment"),
        ({"resources": {"custom_resources": MANY}}, "resources.custom_resources"),
        ({"tags": MANY}, "tags"),
    ],
)
def test_what_a_body_has_too_much_of_is_no_error_each(body: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        JobCreate.model_validate({"workload": {"name": "digits-mlp"}, **body})
    places = _places(refused.value)
    assert len(places) <= MAX_LOOKED_AT + 10
    assert told in [".".join(map(str, place)) for place in places]


def test_of_many_unknown_fields_only_as_many_are_made_errors_as_are_told() -> None:
    many = {f"field{index}": index for index in range(60_000)}
    with pytest.raises(ValidationError) as refused:
        Strict.model_validate({**many, "no": "x", "inner": {**many, "no": "x"}})
    places = _places(refused.value)
    unknown = [f"field{index}" for index in range(MAX_LOOKED_AT)]
    assert sorted(places) == sorted(
        [*((name,) for name in ("no", *unknown)), *(("inner", name) for name in ("no", *unknown))]
    )
    with pytest.raises(ValidationError) as refused:
        JobSpecification.model_validate({"workload": {"name": "digits-mlp"}, "training": {**many, "num_steps": "x"}})
    assert {("training", "num_steps"), *(("training", name) for name in unknown)} == set(_places(refused.value))
