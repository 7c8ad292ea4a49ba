"""Recommendations: one for each job, found by what they hold for; and the shapes of the models that have any."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, case, delete, exists, false, func, literal, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, aliased

from service.errors import NotFound
from service.evidence.types import EvidenceStatus
from service.store.models import ModelShapeRow, RecommendationRow
from trainers.identity.values import ModelShape

KEY = ("fingerprint", "data_digest", "batch_size", "num_steps", "precision", "objective")
"""The columns that say what a recommendation holds for. Of those with the same and as good a status, one stands."""
_PLACE = ("project", "workload", *KEY)
"""The columns in which those agree of which one stands."""
WISHES = ("data_digest", "batch_size", "num_steps", "precision")
"""The columns of the key that may differ where the nearest is asked for: never the model, or what counted as good."""


@dataclass(frozen=True, slots=True)
class VersionFilter:
    """A package that was in use, by its name in the environment, and its version or the first parts of that."""

    package: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationQuery:
    """A question about recommendations; a field that is None leaves them all."""

    project: str | None
    workload: str | None = None
    model: str | None = None
    """The user's own name."""
    fingerprint: str | None = None
    data_digest: str | None = None
    batch_size: int | None = None
    num_steps: int | None = None
    precision: str | None = None
    objective: str | None = None
    device: str | None = None
    world_size: int | None = None
    versions: Sequence[VersionFilter] = ()
    wants_nearest: bool = False
    """True: `WISHES` only order what is found."""
    includes_superseded: bool = False


BESIDE_KEY = ("model", "device", "world_size")
"""The columns that are no part of the key: what others have takes no place where one of these is asked for."""
NAMES = ("model", "workload", "fingerprint")
"""The columns that say whose a recommendation is."""
FILTERS = (*KEY[1:], "device", "world_size")
"""The columns whose values are asked for beside a name."""


@dataclass(frozen=True, slots=True)
class KnownValues:
    """The values of a field that recommendations have."""

    field: str
    values: list[str | int]


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A recommendation that was found."""

    row: RecommendationRow
    is_superseded: bool
    """True if another one of the same key stands in its place."""


class RecommendationRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def replace(self, recommendation: RecommendationRow) -> None:
        """Stores the recommendation of a job in place of an earlier one."""
        self._session.execute(delete(RecommendationRow).where(RecommendationRow.job_id == recommendation.job_id))
        self._session.add(recommendation)
        self._session.flush()

    def of_job(self, job_id: str) -> RecommendationRow | None:
        return self._session.scalars(select(RecommendationRow).where(RecommendationRow.job_id == job_id)).one_or_none()

    def of_jobs(self, job_ids: Sequence[str]) -> list[RecommendationRow]:
        """The recommendations of these jobs."""
        return list(self._session.scalars(select(RecommendationRow).where(RecommendationRow.job_id.in_(job_ids))))

    def of_fingerprint(self, fingerprint: str, *, project: str, limit: int) -> list[RecommendationRow]:
        """The recommendations of a project for a model, the newest job's first."""
        statement = select(RecommendationRow).where(
            RecommendationRow.fingerprint == fingerprint, RecommendationRow.project == project
        )
        return list(self._session.scalars(statement.order_by(RecommendationRow.job_id.desc()).limit(limit)))

    def is_superseded(self, recommendation: RecommendationRow) -> bool:
        """True if another one of the same key stands in its place."""
        statement = select(_is_superseded()).where(RecommendationRow.id == recommendation.id)
        return bool(self._session.scalar(statement))

    def get(self, recommendation_id: str, *, project: str | None) -> StoredAnswer:
        """A recommendation of a project; `project` None: of any.

        Raises:
            NotFound: there is none.
        """
        statement = select(RecommendationRow, _is_superseded()).where(RecommendationRow.id == recommendation_id)
        if project is not None:
            statement = statement.where(RecommendationRow.project == project)
        found = self._session.execute(statement).one_or_none()
        if found is None:
            raise NotFound("recommendation", recommendation_id)
        return StoredAnswer(found[0], bool(found[1]))

    def of_key_of(self, recommendation: RecommendationRow, *, limit: int) -> list[StoredAnswer]:
        """The recommendations with the key of this one, itself among them: those that stand first, the best confirmed
        one at the front, then the newest first; it alone, where its key is not known in full."""
        if any(getattr(recommendation, name) is None for name in KEY):
            return [StoredAnswer(recommendation, is_superseded=False)]
        same = [getattr(RecommendationRow, name) == getattr(recommendation, name) for name in _PLACE]
        superseded = _is_superseded()
        place = case((superseded, len(EvidenceStatus)), else_=_rank(RecommendationRow))
        statement = select(RecommendationRow, superseded).where(*same).order_by(place, RecommendationRow.id.desc())
        return [StoredAnswer(row, bool(is_old)) for row, is_old in self._session.execute(statement.limit(limit))]

    def find(self, query: RecommendationQuery, *, limit: int, offset: int = 0) -> list[StoredAnswer]:
        """Recommendations that hold for what is asked: confirmed ones first, refuted ones last; among equals those that
        agree with more of the key that is asked for, and then the newest. Only what holds for all that is asked stands
        in another one's place: an answer of another name, device, number of ranks or version hides none.

        Args:
            offset: so many of the first ones are left out.
        """
        superseded = _is_superseded(query)
        statement = select(RecommendationRow, superseded.label("superseded"))
        equal: ColumnElement[int] = literal(0)
        for name in ("project", *NAMES, *FILTERS):
            column, wanted = getattr(RecommendationRow, name), getattr(query, name)
            if wanted is None:
                continue
            if query.wants_nearest and name in WISHES:
                equal += case((column == wanted, 1), else_=0)
            else:
                statement = statement.where(column == wanted)
        statement = statement.where(*(_has_version(RecommendationRow, wanted) for wanted in query.versions))
        if not query.includes_superseded:
            statement = statement.where(~superseded)
        statement = statement.order_by(_rank(RecommendationRow), equal.desc(), RecommendationRow.id.desc())
        return [
            StoredAnswer(row, bool(is_old))
            for row, is_old in self._session.execute(statement.limit(limit).offset(offset))
        ]

    def known_values(
        self, query: RecommendationQuery, *, limit: int, of_all_filters: bool = False
    ) -> list[KnownValues]:
        """Up to `limit` values of the recommendations with the query's names, for each filter that it sets, or for all
        filters."""
        names = _with_names(query)
        fields = [field for field in FILTERS if of_all_filters or getattr(query, field) is not None]
        columns = [getattr(RecommendationRow, field) for field in fields]
        rows = list(self._session.execute(select(*columns).where(*names).distinct())) if fields else []
        known = [
            KnownValues(field, sorted({row[place] for row in rows if row[place] is not None})[:limit])
            for place, field in enumerate(fields)
        ]
        if query.versions:
            found: set[str | int] = set()
            for package in dict.fromkeys(wanted.package for wanted in query.versions):
                version = _version_of(RecommendationRow, package)
                versions = self._session.scalars(select(version).where(*names).distinct())
                found |= {f"{package}={version}" for version in versions if version is not None}
            known.append(KnownValues("version", sorted(found, key=str)[:limit]))
        return known

    def known_names(self, query: RecommendationQuery, *, limit: int) -> list[KnownValues]:
        """Up to `limit` values of the recommendations with the query's other names, for each of its several names;
        empty where a recommendation has them all."""
        asked = [name for name in NAMES if getattr(query, name) is not None]
        joint = select(RecommendationRow.id).where(*_with_names(query)).limit(1)
        if len(asked) < 2 or self._session.scalar(joint) is not None:
            return []
        found = []
        for name in asked:
            column, others = getattr(RecommendationRow, name), _with_names(query, but=name)
            values = self._session.scalars(select(column).where(column.is_not(None), *others).distinct())
            found.append(KnownValues(name, sorted(values)[:limit]))
        return found

    def fingerprints(self, *, project: str | None, limit: int) -> list[str]:
        """The fingerprints of the newest recommendations; `project` None: of any."""
        statement = select(RecommendationRow.fingerprint).where(RecommendationRow.fingerprint.is_not(None))
        if project is not None:
            statement = statement.where(RecommendationRow.project == project)
        found = self._session.scalars(statement.order_by(RecommendationRow.id.desc()).limit(10 * limit))
        return [name for name in dict.fromkeys(found) if name is not None][:limit]


def _with_names(query: RecommendationQuery, *, but: str | None = None) -> list[ColumnElement[bool]]:
    """The conditions that rows have a query's names, but for one."""
    return [
        getattr(RecommendationRow, name) == wanted
        for name in ("project", *NAMES)
        if name != but and (wanted := getattr(query, name)) is not None
    ]


def _version_of(row: type[RecommendationRow], package: str) -> ColumnElement[str]:
    version: ColumnElement[str] = row.environment[("versions", package)].as_string()
    return version


def _has_version(row: type[RecommendationRow], wanted: VersionFilter) -> ColumnElement[bool]:
    """True if a row was found with a version: `2.13` is `2.13.0+cpu` as well, and not `2.130`."""
    version = _version_of(row, wanted.package)
    longer = (version.startswith(f"{wanted.version}{sign}", autoescape=True) for sign in (".", "+"))
    return or_(version == wanted.version, *longer)


def _holds_beside_key(row: type[RecommendationRow], query: RecommendationQuery | None) -> list[ColumnElement[bool]]:
    """The conditions that a row holds for what is asked beside the key; none of no question."""
    if query is None:
        return []
    return [
        *(getattr(row, name) == wanted for name in BESIDE_KEY if (wanted := getattr(query, name)) is not None),
        *(_has_version(row, wanted) for wanted in query.versions),
    ]


def _rank(row: type[RecommendationRow]) -> ColumnElement[int]:
    return case(*((row.status == status, status.rank) for status in EvidenceStatus), else_=len(EvidenceStatus))


def _is_superseded(query: RecommendationQuery | None = None) -> ColumnElement[bool]:
    """True if another row of the project with the key of the enclosing statement's stands in its place: a newer one
    with a better status, or of those with the same status the one with the best score, the newest at a tie.

    Scores say nothing where other code measured them: then the newer row stands. What has lost its place to a row with
    a better status or of other code takes none from later rows. A key that is not known in full is no key: rows with a
    part of it missing stand beside each other.

    Args:
        query: what is asked; rows that do not hold for it beside the key do not count.
    """
    row, other, between = RecommendationRow, aliased(RecommendationRow), aliased(RecommendationRow)
    at_least_as_good = or_(_rank(other) < _rank(row), and_(_is_equal(other, row), ~_is_better(row, other)))
    newer = and_(other.id > row.id, at_least_as_good)
    has_lost = exists().where(
        *_same_key(between, row),
        *_holds_beside_key(between, query),
        between.id > other.id,
        between.id < row.id,
        or_(_rank(between) < _rank(row), and_(_is_equal(between, row), ~_is_comparable(between, row))),
    )
    older = and_(other.id < row.id, _is_equal(other, row), _is_better(other, row), ~has_lost.correlate(row, other))
    return exists().where(*_same_key(other, row), *_holds_beside_key(other, query), or_(newer, older)).correlate(row)


def _same_key(one: type[RecommendationRow], other: type[RecommendationRow]) -> list[ColumnElement[bool]]:
    return [getattr(one, name) == getattr(other, name) for name in _PLACE]


def _is_equal(one: type[RecommendationRow], other: type[RecommendationRow]) -> ColumnElement[bool]:
    return _rank(one) == _rank(other)


def _is_comparable(one: type[RecommendationRow], other: type[RecommendationRow]) -> ColumnElement[bool]:
    return func.coalesce(one.measured_by == other.measured_by, false())


def _is_better(one: type[RecommendationRow], other: type[RecommendationRow]) -> ColumnElement[bool]:
    return and_(_is_comparable(one, other), func.coalesce(one.score > other.score, false()))


class ModelShapeRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, fingerprint: str, shape: ModelShape) -> None:
        """Stores the shape of a model, in place of another one that an earlier version read; two runs may do so at
        once."""
        content = {"parameters": shape.to_json()}
        stored = self._session.get(ModelShapeRow, fingerprint)
        if stored is not None:
            if stored.content != content:
                stored.content = content
            return
        insert = postgresql.insert if self._session.get_bind().dialect.name == "postgresql" else sqlite.insert
        statement = insert(ModelShapeRow).values(fingerprint=fingerprint, content=content)
        self._session.execute(statement.on_conflict_do_nothing())

    def of(self, fingerprints: Collection[str]) -> dict[str, ModelShape]:
        """The shapes that are known of these models."""
        rows = self._session.scalars(select(ModelShapeRow).where(ModelShapeRow.fingerprint.in_(fingerprints)))
        return {row.fingerprint: ModelShape.from_json(row.content["parameters"]) for row in rows}
