"""Values that are none of those there are: one list of all of them, and the one that was probably meant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, TypeAdapter, ValidationError

from service.api.problems.invalid_requests import errors_of_fields


def _looks_like_choices(_value: str) -> str:
    raise ValueError("must be 'sum' or 'mean'")


def _message(kind: Any, value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, kind]).validate_python({"sampler": value})
    found = [{**one, "loc": ("body", "sampler")} for one in caught.value.errors()]
    (error,) = errors_of_fields(found, {"sampler": value}, None)
    return error.message


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Literal["tpe", "gp", "cmaes"], "tpa", "must be 'tpe', 'gp' or 'cmaes': did you mean 'tpe'?"),
        (Literal["tpe"], 7, "must be 'tpe', got 7"),
        (Literal["tpe", "gp"] | Literal["random"], 7, "must be 'tpe', 'gp' or 'random', got 7"),
        (Literal["tpe", "gp"] | Literal["random", None], 7, "must be 'tpe', 'gp', 'random' or None, got 7"),
    ],
)
def test_choices_are_told_in_one_list(kind: Any, value: object, message: str) -> None:
    assert _message(kind, value) == message


def test_a_message_that_looks_like_choices_is_left_as_it_is() -> None:
    kind = Literal["tpe", "gp"] | Annotated[str, AfterValidator(_looks_like_choices)]
    assert _message(kind, "x") == "must be 'tpe' or 'gp', or must be 'sum' or 'mean', got 'x'"
