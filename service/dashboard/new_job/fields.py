"""Fields of a form, made of a JSON schema: what each takes, its default, its bounds and its prose. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue

Schema: TypeAlias = Mapping[str, Any]
Kind: TypeAlias = Literal[
    "integer", "number", "text", "long_text", "flag", "choice", "several", "pairs", "value", "json", "space"
]
"""The kind of value that a field takes: the name by which `static/new_job/kinds.js` reads and writes it."""

_EMPTY = {"null:": "empty:", "Null:": "Empty:"}
_NULL = re.compile(r"(?<=[;.]\s)[nN]ull:")
ROW = "#"
"""The index, in a pointer, of a row that is not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A value of the document that a form makes."""

    pointer: str
    """Its place in the document (RFC 6901)."""
    label: str
    help: str
    """Help for people; `code` stands between backticks."""
    kind: Kind
    default: JsonValue = None
    """The value that a document without the field stands for."""
    required: bool = False
    choices: tuple[str, ...] = ()
    takes_more: bool = False
    """True if another text than one of the choices is possible."""
    minimum: float | None = None
    maximum: float | None = None
    when_empty: str = ""
    """The meaning of an empty field, where empty is not a value itself."""

    @property
    def told(self) -> str:
        """`help` in the form's words: what stays empty there is null in the document, where that is the default."""
        return _NULL.sub(lambda found: _EMPTY[found[0]], self.help) if self.default is None else self.help

    @property
    def id(self) -> str:
        """The id of its element in the page."""
        return "field" + self.pointer.replace("/", "-").replace(" ", "-")


class FormSchema:
    """A JSON schema with its definitions, and the fields that its properties make."""

    def __init__(self, schema: Schema) -> None:
        self._root = schema

    def pointers(self) -> list[str]:
        """The pointers of all values, as deep as there are properties; those of rows have `ROW` as index."""
        return list(self._below("", self._root))

    def field(self, pointer: str, *, label: str | None = None, when_empty: str = "") -> FormField:
        """The field of a value.

        Args:
            label: None: its name in words.
        """
        name, node = pointer.rpartition("/")[2], self._at(pointer)
        kind, found = self._kind(node)
        return FormField(
            pointer=pointer,
            label=label or in_words(name),
            help=node.get("description", ""),
            kind=kind,
            default=node.get("default", {"array": [], "object": {}}.get(node.get("type", ""))),
            required=self._is_required(pointer),
            choices=found.choices,
            takes_more=found.takes_more,
            minimum=found.minimum,
            maximum=found.maximum,
            when_empty=when_empty,
        )

    def help(self, pointer: str) -> str:
        """The prose of a value."""
        text: str = self._at(pointer).get("description", "")
        return text

    def max_items(self, pointer: str) -> int:
        """The most rows that a list may have."""
        most: int = self._at(pointer)["maxItems"]
        return most

    def _below(self, pointer: str, node: Schema) -> Sequence[str]:
        found: list[str] = []
        for name, inner in node["properties"].items():
            own = f"{pointer}/{name}"
            parts = [part for part in self._alternatives(inner) if "properties" in part]
            items = self._resolved(inner.get("items", {}))
            if parts:
                found += self._below(own, parts[0])
            elif "properties" in items:
                found += self._below(f"{own}/{ROW}", items)
            else:
                found.append(own)
        return found

    def _at(self, pointer: str) -> Schema:
        node: Schema = self._root
        for name in pointer.split("/")[1:]:
            if name == ROW:
                node = self._resolved(node["items"])
            else:
                whole = next(part for part in self._alternatives(node) if "properties" in part)
                node = whole["properties"][name]
        return node

    def _is_required(self, pointer: str) -> bool:
        parent, _, name = pointer.rpartition("/")
        node = self._at(parent) if parent else self._root
        whole = next(part for part in self._alternatives(node) if "properties" in part)
        return name in whole.get("required", ())

    def _resolved(self, node: Schema) -> Schema:
        reference: str | None = node.get("$ref")
        if reference is None:
            return node
        found: Schema = self._root["$defs"][reference.rpartition("/")[2]]
        return found

    def _alternatives(self, node: Schema) -> list[Schema]:
        """The kinds of value that a schema allows, each resolved, but for null."""
        whole = self._resolved(node)
        return [part for one in whole.get("anyOf", [whole]) if (part := self._resolved(one)).get("type") != "null"]

    def _kind(self, node: Schema) -> tuple[Kind, _Bounds]:
        alternatives = self._alternatives(node)
        named = [*(part["const"] for part in alternatives if "const" in part)]
        named += [choice for part in alternatives for choice in part.get("enum", ())]
        if named and all(part.get("type") == "string" for part in alternatives):
            is_open = any("const" not in part and "enum" not in part for part in alternatives)
            return "choice", _Bounds(choices=tuple(named), takes_more=is_open)
        if len(alternatives) > 1:
            return "json", _Bounds()
        (only,) = alternatives
        match only.get("type"):
            case "integer" | "number" as kind:
                low = only.get("minimum", only.get("exclusiveMinimum"))
                return kind, _Bounds(minimum=low, maximum=only.get("maximum", only.get("exclusiveMaximum")))
            case "boolean":
                return "flag", _Bounds()
            case "string":
                return "text", _Bounds()
            case "array" if choices := self._resolved(only["items"]).get("enum"):
                return "several", _Bounds(choices=tuple(choices))
            case "object" if self._holds_texts(only):
                return "pairs", _Bounds()
            case _:
                return "json", _Bounds()

    def _holds_texts(self, node: Schema) -> bool:
        values = node.get("additionalProperties") or {}
        return isinstance(values, Mapping) and values.get("type") == "string"


@dataclass(frozen=True, slots=True)
class _Bounds:
    choices: tuple[str, ...] = ()
    takes_more: bool = False
    minimum: float | None = None
    maximum: float | None = None


def in_words(name: str) -> str:
    """The name of a field as a label: `num_steps` gives `Number of steps`."""
    words = name.removeprefix("num_").replace("_", " ")
    return f"Number of {words}" if name.startswith("num_") else words[:1].upper() + words[1:]
