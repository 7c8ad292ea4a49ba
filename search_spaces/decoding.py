"""JSON of search spaces: shapes of objects and lists only; what the values mean is checked by `validation`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from search_spaces.errors import Breaches, SpaceError, require, show
from search_spaces.nearest import did_you_mean
from search_spaces.parameters import Categorical, Float, Integer, Parameter
from search_spaces.validation import MAX_CHOICES, MAX_PARAMETERS

MAX_UNKNOWN = 5
"""Fields that there are not, of those told of one object."""

_KINDS: dict[str, type[Float | Integer | Categorical]] = {kind.kind: kind for kind in (Float, Integer, Categorical)}


def fields_of_space(data: object, breaches: Breaches) -> dict[str, Any]:
    """Constructor arguments of a space, its parameters built but not yet validated.

    Args:
        breaches: of the parameters' shapes; a parameter that has any is None.

    Raises:
        SpaceError: the space itself is not of the expected shape.
    """
    fields = _object(data, "", required=("optimizer",), optional=("parameters", "fixed"))
    parameters = _list(fields.get("parameters", []), "parameters", MAX_PARAMETERS)
    fixed = fields.get("fixed", {})
    require(isinstance(fixed, Mapping), "fixed", "must be an object", fixed)
    built: list[Parameter | None] = []
    for index, item in enumerate(parameters):
        built.append(None)
        with breaches.noted():
            built[index] = _parameter(item, f"parameters[{index}]")
    return {"optimizer": fields["optimizer"], "parameters": tuple(built), "fixed": fixed}


def parameter_to_json(parameter: Parameter) -> dict[str, Any]:
    """One parameter as JSON-able values, with its type."""
    fields = {f.name: getattr(parameter, f.name) for f in dataclasses.fields(parameter)}
    fields["when"] = {name: list(allowed) for name, allowed in parameter.when.items()}
    if isinstance(parameter, Categorical):
        fields["choices"] = list(parameter.choices)
    return {"type": parameter.kind, **fields}


def _parameter(data: object, path: str) -> Parameter:
    require(isinstance(data, Mapping), path, "must be an object", data)
    assert isinstance(data, Mapping)
    kind = data.get("type")
    known = ", ".join(_KINDS)
    require(isinstance(kind, str) and kind in _KINDS, f"{path}.type", f"must be one of {known}", kind)
    cls = _KINDS[str(kind)]
    names = {
        f.name: f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING for f in _fields(cls)
    }
    required = ("type", *(name for name, needed in names.items() if needed))
    fields = _object(
        data, path, required=required, optional=tuple(name for name, needed in names.items() if not needed)
    )
    del fields["type"]
    if "when" in fields:
        when = fields["when"]
        require(isinstance(when, Mapping), f"{path}.when", "must be an object of lists", when)
        require(
            len(when) <= MAX_PARAMETERS, f"{path}.when", f"must have at most {MAX_PARAMETERS} conditions", len(when)
        )
        fields["when"] = {name: tuple(_list(allowed, f"{path}.when", MAX_CHOICES)) for name, allowed in when.items()}
    if "choices" in fields:
        fields["choices"] = tuple(_list(fields["choices"], f"{path}.choices", MAX_CHOICES))
    return cls(**fields)


def _fields(cls: type[Float | Integer | Categorical]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)


def _object(data: object, path: str, *, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise SpaceError(path or "space", f"must be an object, got {show(data)}")
    prefix = f"{path}." if path else ""
    breaches, names = Breaches(), required + optional
    for name in [name for name in data if name not in names][:MAX_UNKNOWN]:
        hint = did_you_mean(name, names)
        breaches.note(SpaceError(path or "space", f"unknown field {show(name)} (known: {', '.join(names)}){hint}"))
    for name in required:
        if name not in data:
            breaches.note(SpaceError(f"{prefix}{name}", "is required"))
    breaches.tell()
    return dict(data)


def _list(data: object, path: str, limit: int) -> list[Any]:
    require(isinstance(data, list | tuple), path, "must be a list", data)
    assert isinstance(data, list | tuple)
    require(len(data) <= limit, path, f"must have at most {limit} elements", len(data))
    return list(data)
