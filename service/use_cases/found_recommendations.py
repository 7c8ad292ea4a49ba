"""The recommendations for a model, a workload or a fingerprint; if there are none, the names that have some."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from search_spaces.nearest import nearest_first
from service.errors import InvalidInput, UnknownName
from service.specification.workloads import known_workloads
from service.store.repositories import (
    JobRepository,
    KnownValues,
    RecommendationQuery,
    RecommendationRepository,
    StoredAnswer,
    VersionFilter,
)
from service.store.session import Session

NamedField: TypeAlias = Literal["model", "workload", "fingerprint"]

MAX_FINGERPRINTS = 5
"""The most fingerprints that are named if an unknown one is asked for."""
MAX_VALUES = 20
"""The most values of each filter that are named if another value is asked for."""
MAX_VERSIONS_ASKED = 10
"""The most packages whose versions one query may name, by judgement."""
_VERSION = re.compile(r"([^=\"\\\0]{1,100})=([^\0]{1,100})")


def find_answers(session: Session, query: RecommendationQuery, *, limit: int, offset: int = 0) -> list[StoredAnswer]:
    """The recommendations for a query, the best first; empty if there are none yet.

    Args:
        offset: this many of the best are left out.

    Raises:
        UnknownName: there is no such model, workload or fingerprint at all; names those there are.
    """
    found = RecommendationRepository(session).find(query, limit=limit, offset=offset)
    if not found:
        _check_names(session, query)
    return found


def values_elsewhere(session: Session, query: RecommendationQuery) -> list[KnownValues]:
    """Values for a query that found nothing: for each of its filters the values of the answers with the query's names;
    empty if there is no answer at all. If no answer has all of these names, each name comes with its values in the
    answers with the other names."""
    recommendations = RecommendationRepository(session)
    return [
        *recommendations.known_names(query, limit=MAX_VALUES),
        *recommendations.known_values(query, limit=MAX_VALUES),
    ]


def version_asked(given: str) -> VersionFilter:
    """The package and the version that `package=version` asks for.

    Raises:
        InvalidInput: it is not such a text.
    """
    found = _VERSION.fullmatch(given)
    if found is None:
        raise InvalidInput("version", f"{given[:80]!r} must be `package=version`, e.g. `torch=2.13`")
    return VersionFilter(*found.groups())


def field_named(session: Session, name: str, *, project: str | None) -> NamedField:
    """The field of a name by which answers can be asked for: a model before a workload before a fingerprint.

    Raises:
        UnknownName: none of them; names the models and workloads there are.
    """
    jobs = JobRepository(session)
    models, workloads = jobs.models(project=project), _workloads(jobs, project)
    if name in models:
        return "model"
    if name in workloads:
        return "workload"
    asked = RecommendationQuery(project=project, fingerprint=name, includes_superseded=True)
    if RecommendationRepository(session).find(asked, limit=1):
        return "fingerprint"
    raise UnknownName("model, workload or fingerprint", name, nearest_first(name, {*models, *workloads}))


def _check_names(session: Session, query: RecommendationQuery) -> None:
    jobs = JobRepository(session)
    if query.model is not None:
        models = jobs.models(project=query.project)
        if query.model not in models:
            hint = f"it is a workload: workload={query.model}" if query.model in _workloads(jobs, query.project) else ""
            raise UnknownName("model", query.model, nearest_first(query.model, models), hint=hint)
    if query.workload is not None:
        workloads = _workloads(jobs, query.project)
        if query.workload not in workloads:
            hint = (
                f"it is a model: model={query.workload}" if query.workload in jobs.models(project=query.project) else ""
            )
            raise UnknownName("workload", query.workload, nearest_first(query.workload, workloads), hint=hint)
    if query.fingerprint is not None:
        recommendations = RecommendationRepository(session)
        asked = RecommendationQuery(project=query.project, fingerprint=query.fingerprint, includes_superseded=True)
        if not recommendations.find(asked, limit=1):
            known = recommendations.fingerprints(project=query.project, limit=MAX_FINGERPRINTS)
            raise UnknownName("fingerprint", query.fingerprint, known)


def _workloads(jobs: JobRepository, project: str | None) -> list[str]:
    """The workloads that are registered, and those that jobs had, e.g. a user's own as `module:Class`."""
    return sorted({description.name for description in known_workloads()} | set(jobs.workloads(project=project)))
