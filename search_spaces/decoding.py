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

_EXAMPLE = '{"type": "float", "name": "lr", "low": 1e-4, "high": 0.1, "scale": "log"}'
"""A parameter, for people."""
_MEANT: Mapping[object, str] = {
    "log": ': did you mean "scale": "log"?',
    "min": ": did you mean 'low'?",
    "max": ": did you mean 'high'?",
    "values": ": did you mean 'choices'?",
    "options": ": did you mean 'choices'?",
}
"""The ends of messages about names that other libraries have for fields of a parameter."""
_KINDS: dict[str, type[Float | Integer | Categorical]] = {kind.kind: kind for kind in (Float, Integer, Categorical)}


def fields_of_space(data: object, breaches: Breaches) -> dict[str, Any]:
    """Constructor arguments of a space, its parameters built but not yet validated.

    Args:
        breaches: of the parameters' shapes; a parameter that has any is None.

    Raises:
        SpaceError: the space itself is not of the expected shape.
    """
    fields = _object(data, "", required=("optimizer",), optional=("parameters", "fixed"))
    parameters = _list(fields.get("parameters", []), "parameters", MAX_PARAMETERS, element=_EXAMPLE)
    fixed = fields.get("fixed", {})
    require(isinstance(fixed, Mapping), "fixed", 'must be an object, such as {"weight_decay": 0.01}', fixed)
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
    require(isinstance(data, Mapping), path, f"must be an object, such as {_EXAMPLE}", data)
    assert isinstance(data, Mapping)
    kind = data.get("type")
    known = ", ".join(_KINDS)
    if "type" not in data:
        raise SpaceError(f"{path}.type", f"is required: one of {known}")
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
        hint = (_MEANT.get(name) if path else None) or did_you_mean(name, names)
        known = f"(known: {', '.join(names)}){hint}"
        if isinstance(name, str) and name.isidentifier():
            breaches.note(SpaceError(f"{prefix}{name}", f"there is no such field {known}"))
        else:  # a path of it would not say where it ends
            breaches.note(SpaceError(path or "space", f"unknown field {show(name)} {known}"))
    for name in required:
        if name not in data:
            breaches.note(SpaceError(f"{prefix}{name}", "is required"))
    breaches.tell()
    return dict(data)


def _list(data: object, path: str, limit: int, *, element: str | None = None) -> list[Any]:
    rule = "must be a list" if element is None else f"must be a list, such as [{element}]"
    require(isinstance(data, list | tuple), path, rule, data)
    assert isinstance(data, list | tuple)
    require(len(data) <= limit, path, f"must have at most {limit} elements", len(data))
    return list(data)
