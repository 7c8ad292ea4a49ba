"""The bases of models whose fields are described by the docstrings below them; strict ones read a request's JSON."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticKnownError
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

from service.faults import MAX_LOOKED_AT


class DescribedModel(BaseModel):
    """A model whose JSON schema describes each field by the docstring below it.

    pydantic's `use_attribute_docstrings` does the same, but reads the source when a class is made, schema or not: for
    the hundred classes of the API, a tenth of its start.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        cls.model_config["use_attribute_docstrings"] = True  # of its dataclasses, which are looked at now
        try:
            return handler(source)
        finally:
            del cls.model_config["use_attribute_docstrings"]  # no subclass inherits it

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for kind in reversed(cls.__mro__):
            if issubclass(kind, DescribedModel):
                for name, text in _docstrings(kind.__module__).get(kind.__qualname__, {}).items():
                    field = cls.model_fields.get(name)  # None: of the class itself
                    if field is not None and field.description is None:
                        properties[field.alias or name]["description"] = text
        return schema


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings of fields, by class at the top of a module and by name; none without its source."""
    found: dict[str, dict[str, str]] = {}
    try:
        source = inspect.getsource(sys.modules[module])
    except OSError:
        return found
    for each in ast.parse(source).body:
        if isinstance(each, ast.ClassDef):
            found[each.name] = {
                field.target.id: inspect.cleandoc(text.value.value)
                for field, text in zip(each.body, each.body[1:], strict=False)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                if isinstance(text.value.value, str)
            }
    return found


def with_unknown_as_told(value: Any, known: Collection[str]) -> Any:
    """A value that may be an object, without the unknown fields beyond those that are told: pydantic makes an error of
    each, for seconds."""
    if not isinstance(value, dict) or len(value) <= len(known) + MAX_LOOKED_AT:
        return value
    told = set(islice((name for name in value if name not in known), MAX_LOOKED_AT))
    return {name: inner for name, inner in value.items() if name in known or name in told}


@dataclass(frozen=True, slots=True)
class MaxEntries:
    """An annotation of a `dict`: the most entries that it may have, said in its JSON schema, too. They are counted
    before any is looked at: pydantic looks at all of them, makes an error of each that is wrong, and counts then."""

    number: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        assert schema["type"] == "dict", schema["type"]
        limited = cast("CoreSchema", {**schema, "max_length": self.number})
        return no_info_before_validator_function(self._counted, limited)

    def _counted(self, value: Any) -> Any:
        if isinstance(value, dict) and len(value) > self.number:
            context = {"field_type": "Dictionary", "max_length": self.number, "actual_length": len(value)}
            raise PydanticKnownError("too_long", context)
        return value


class StrictModel(DescribedModel):
    """An immutable part of a specification; unknown fields and values of another type are errors."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,  # "8" is no number and true is no 1
        frozen=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_out_what_nobody_looks_at(cls, value: Any) -> Any:
        fields = cls.model_fields
        if not isinstance(value, dict) or len(value) <= len(fields):
            return value
        return with_unknown_as_told(value, {field.alias or name for name, field in fields.items()})
