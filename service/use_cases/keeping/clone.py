"""The submission of a job as a document, and that document with changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel, JsonValue

from service.specification.job import JobSpecification
from service.store.models import Job
from service.use_cases.earlier_winners import without_known_configs


def submission_of(job: Job) -> dict[str, Any]:
    """The JSON that would submit a job like this one.

    Winners of earlier jobs appear in it as they were found then. Configs of models like its own are to be looked up
    anew, and the times of its steps measured anew: the new job may be of another model. Trials that users proposed are
    not part of it, nor are notes, which are about this job.
    """
    specification = without_known_configs(job.specification)
    budget = specification.budget.model_copy(update={"extra_search_trials": 0})
    baselines = [baseline.model_copy(update={"extra_trials": 0}) for baseline in specification.baselines]
    asked = specification.model_copy(update={"budget": budget, "baselines": baselines, "step_times": []})
    named = {"name": job.name, "model": job.model, "tags": job.tags, "priority": job.priority}
    return {**asked.model_dump(mode="json"), **named}


def merged(
    document: Mapping[str, Any], patch: Mapping[str, Any], kind: type[BaseModel] | None = JobSpecification
) -> dict[str, Any]:
    """A document with a merge patch (RFC 7396) applied: objects are merged, everything else is replaced.

    A null removes a member, as in the RFC, so it takes its default; but if null is a meaningful value, as in
    `confirmation`, it stays.

    Args:
        kind: the model that the document is read by; None: it is free.
    """
    result = dict(document)
    for name, value in patch.items():
        annotation = None if kind is None or name not in kind.model_fields else kind.model_fields[name].annotation
        if value is None:
            if NoneType in _alternatives(annotation):
                result[name] = None
            else:
                result.pop(name, None)
        elif isinstance(value, Mapping):
            earlier: JsonValue = result.get(name)
            inner = next((one for one in _alternatives(annotation) if issubclass(one, BaseModel)), None)
            result[name] = merged(earlier if isinstance(earlier, Mapping) else {}, value, inner)
        else:
            result[name] = value
    return result


def _alternatives(annotation: Any) -> Iterator[type]:
    """The classes in an annotation: itself, or the members of a union."""
    if isinstance(annotation, type):
        yield annotation
        return
    for argument in get_args(annotation):
        if isinstance(argument, type):
            yield argument
