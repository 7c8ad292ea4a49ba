"""The description of the API as programs read it that generate clients from it: without changing what it allows."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

FORMATS = {"integer": "int64", "number": "double"}
"""Formats of the numbers: generators for Go and Java take numbers without one for those of 32 bits, in which bytes
and learning rates do not fit."""
JSON_VALUE = "JsonValue"
"""The schema of any JSON: where it is named, generators for Go write code that does not compile."""
_NO_SCHEMAS = ("const", "default", "enum", "example", "examples")


class Application(FastAPI):
    """FastAPI with a description for generators."""

    def openapi(self) -> dict[str, Any]:
        known = self.openapi_schema
        described = super().openapi()
        if described is not known:
            _adapt(described)
            described["components"]["schemas"].pop(JSON_VALUE, None)
        return described


def _alternatives(part: dict[str, Any]) -> list[Any]:
    """The alternatives of a schema but null: generators for Go write a default of several as a name of nothing."""
    return [one for one in part.get("anyOf", ()) if one.get("type") != "null"]


def _adapt(part: Any, *, is_named: bool = False) -> None:
    """Adapts all schemas in a part of the description.

    Args:
        is_named: the names in it are of fields, which may be called as words of a schema are.
    """
    if isinstance(part, list):
        for one in part:
            _adapt(one)
    elif isinstance(part, dict):
        if not is_named:
            if part.get("$ref") == f"#/components/schemas/{JSON_VALUE}":
                del part["$ref"]
            if "default" in part and len(_alternatives(part)) > 1:
                part["description"] = f"{part['description']} Default: `{part.pop('default')}`."
            if part.get("type") in FORMATS:
                part.setdefault("format", FORMATS[part["type"]])
        for name, one in part.items():
            if is_named or name not in _NO_SCHEMAS:
                _adapt(one, is_named=name == "properties" and not is_named)
        if not is_named and part.get("additionalProperties") == {}:
            part["additionalProperties"] = True
