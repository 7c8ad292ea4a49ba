"""The form of a field in which a value of another kind stands: `{"search_space": "adamw"}` for `"adamw"`."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from service.api.request_body import small
from service.errors import InvalidInput
from service.specification.code import CodeChoice
from service.specification.external.trials import ExternalTrials
from service.specification.imported import ImportedTrial
from service.specification.job import (
    Baseline,
    Budget,
    ConfirmationChoice,
    Constraint,
    ObjectiveChoice,
    PrunerChoice,
    SamplerChoice,
    Target,
    WorkloadChoice,
)
from service.specification.resources import Resources
from service.specification.training import Training
from trainers.config import AveragingConfig, CompressionConfig, ParallelismConfig

MAIN_FIELDS: Mapping[type, str] = {
    AveragingConfig: "method",
    Baseline: "search_space",
    Budget: "num_trials",
    CompressionConfig: "rank",
    ConfirmationChoice: "num_seeds",
    ObjectiveChoice: "metric",
    ParallelismConfig: "mode",
    PrunerChoice: "name",
    Resources: "workers_per_trial",
    SamplerChoice: "name",
    Training: "num_steps",
    WorkloadChoice: "name",
}
"""The field, for each kind of object, that people mean who write its value in the object's place."""
EXAMPLES: Mapping[type, JsonValue] = {
    AveragingConfig: {"method": "lawa"},
    Baseline: {"search_space": "adamw"},
    Budget: {"num_trials": 20},
    CompressionConfig: {"rank": 4},
    ConfirmationChoice: {"num_seeds": 7},
    Constraint: {"metric": "peak_memory_bytes", "max": 8e9},
    ExternalTrials: {"metrics": {"validation_loss": "minimize"}},
    ObjectiveChoice: {"metric": "validation_loss"},
    ParallelismConfig: {"mode": "fsdp2"},
    PrunerChoice: {"name": "asha"},
    Resources: {"workers_per_trial": 2},
    SamplerChoice: {"name": "tpe"},
    Target: {"metric": "validation_loss", "value": 0.1},
    Training: {"num_steps": 1000, "batch_size": 64},
    WorkloadChoice: {"name": "digits-mlp"},
}
"""An example of each kind of object."""
WAYS: Mapping[type, str] = {
    CodeChoice: "`shampoo-tuner submit --code DIR` sends a directory and names it",
    ImportedTrial: "`shampoo-tuner import` writes them",
}
"""The command that writes each kind of object that nobody writes by hand."""
_NUMBERS = (int, float)


def right_form(kind: Any, path: Sequence[str], value: object) -> str:
    """The end of a message about a value of a wrong kind: what to write instead, or an example; "": nothing is known.

    Args:
        kind: what the body was to be.
        path: the names and indices that lead to the value.
    """
    place = _place_at(kind, path)
    found = _meant(place.annotation, value)
    return f": write {found}" if found else _example(place)


def meant_form(kind: Any, path: Sequence[str], value: object) -> str:
    """The end of a message that names another field for a value: how it is written there; "": as it stands, or nothing
    is known."""
    annotation = _place_at(kind, path).annotation
    found = None if _fits(annotation, value) else _meant(annotation, value)
    return f" It holds {found}" if found else ""


def main_field(kind: Any, path: Sequence[str], value: object) -> str | None:
    """The main field of the object at a path, if it may have this value; None: it may not, or there is none."""
    for member in _members(_place_at(kind, path).annotation):
        if isinstance(member, type) and member in MAIN_FIELDS:
            return MAIN_FIELDS[member] if _fits(member, {MAIN_FIELDS[member]: value}) else None
    return None


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a body, and what it may hold."""

    annotation: Any
    """Its type; None: unknown."""
    example: JsonValue = None
    """The default of the field; None: it has none."""


def _place_at(kind: Any, path: Sequence[str]) -> _Place:
    """The place that a path leads to."""
    place = _Place(kind)
    for name in ["baselines", "0", *path[1:]] if path and path[0] == "baseline" else path:
        inner = (found for member in _members(place.annotation) if (found := _within(member, name)) is not None)
        place = next(inner, _Place(None))
    return place


def _within(member: Any, name: str) -> _Place | None:
    """The place of a name or an index within what may stand somewhere; None: there is none."""
    if get_origin(member) is list:
        return _Place(get_args(member)[0])
    if get_origin(member) is dict:
        return _Place(get_args(member)[1])
    if not isinstance(member, type):
        return None
    if issubclass(member, BaseModel) and name in member.model_fields:
        field = member.model_fields[name]
        return _Place(field.annotation, (field.examples or [None])[0])
    if dataclasses.is_dataclass(member):
        return _Place(get_type_hints(member).get(name))
    return None


def _members(annotation: Any) -> Iterator[Any]:
    """The types that an annotation has a choice of, but for None."""
    if annotation in (None, type(None)):
        return
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _meant(annotation: Any, value: object) -> str | None:
    """The JSON that was meant by a value which an annotation does not allow; None: unknown."""
    for candidate in _candidates(annotation, value):
        if small(candidate) is not None and _fits(annotation, candidate):
            return json.dumps(candidate)
    return None


def _candidates(annotation: Any, value: object) -> Iterator[object]:
    """Values that may have been meant by one, whether an annotation allows them or not."""
    if value is None:
        return
    if isinstance(value, list) and len(value) == 1:
        yield value[0]
        yield from _candidates(annotation, value[0])
        return
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        merged = {name: of_name for one in value for name, of_name in one.items()}
        if len(merged) == sum(map(len, value)):
            yield merged  # in YAML, each name had a dash before it
    for member in _members(annotation):
        if isinstance(member, type) and member in MAIN_FIELDS and not isinstance(value, dict | list):
            yield {MAIN_FIELDS[member]: value}
        elif get_origin(member) is list and not isinstance(value, list):
            (element,) = get_args(member)
            yield [value]
            yield from ([one] for one in _candidates(element, value))
        elif member is bool or (member in _NUMBERS and not isinstance(value, bool)):
            try:
                yield _adapter(member).validate_python(value)
            except ValidationError:
                continue


def _fits(annotation: Any, value: object) -> bool:
    try:
        _adapter(annotation).validate_json(json.dumps(value), strict=True)
    except (ValueError, RecursionError, InvalidInput):
        return False
    return True


@functools.cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    """The check whether a value fits an annotation. It takes milliseconds to make, and hundreds of faults may ask."""
    return TypeAdapter(annotation)


def _example(place: _Place) -> str:
    """The end of a message with an example of what may stand at a place, or with the command that writes it."""
    if place.example is not None:
        return f", such as {json.dumps(place.example)}"
    for member in _members(place.annotation):
        in_list = get_origin(member) is list
        for one in _members(get_args(member)[0]) if in_list else [member]:
            if one in WAYS:
                return f": {WAYS[one]}"
            if one in EXAMPLES:
                return f", such as {json.dumps([EXAMPLES[one]] if in_list else EXAMPLES[one])}"
    return ""
