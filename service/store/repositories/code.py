"""Code that comes with jobs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, exists, func, select, update
from sqlalchemy.orm import Session

from service.errors import NotFound
from service.store.models import Code, Job


class CodeRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, code: Code) -> None:
        self._session.add(code)
        self._session.flush()

    def find(self, project: str, sha256: str) -> Code | None:
        return self._session.get(Code, (project, sha256))

    def archive(self, project: str, sha256: str) -> bytes:
        """The archive. Raises: NotFound."""
        found = self._session.scalar(select(Code.archive).where(Code.project == project, Code.sha256 == sha256))
        if found is None:
            raise NotFound("code", sha256)
        return found

    def page(self, project: str, *, after_sha256: str | None = None, limit: int) -> list[tuple[Code, int]]:
        """Up to `limit` of a project, by hash, beginning behind one; each with the number of jobs that name it."""
        num_jobs = select(func.count()).where(*_names_it()).correlate(Code).scalar_subquery()
        statement = select(Code, num_jobs).where(Code.project == project).order_by(Code.sha256).limit(limit)
        if after_sha256 is not None:
            statement = statement.where(Code.sha256 > after_sha256)
        return [(row[0], row[1]) for row in self._session.execute(statement)]

    def num_jobs_locked(self, project: str, sha256: str) -> int:
        """The number of jobs that name it; until the transaction ends, others wait who name it anew.

        Raises:
            NotFound: the project has it not.
        """
        own = (Code.project == project, Code.sha256 == sha256)
        if self._session.scalar(select(Code.sha256).where(*own).with_for_update()) is None:
            raise NotFound("code", sha256)
        return (
            self._session.scalar(select(func.count()).select_from(Job).join(Code, and_(*_names_it())).where(*own)) or 0
        )

    def delete(self, project: str, sha256: str) -> None:
        self._session.execute(delete(Code).where(Code.project == project, Code.sha256 == sha256))

    def use(self, project: str, sha256: str, *, now: datetime) -> bool:
        """Notes that it is used, so that whoever removes what is not leaves it there; False: it is not there."""
        statement = update(Code).where(Code.project == project, Code.sha256 == sha256).values(used_at=now)
        return bool(self._session.scalar(statement.returning(Code.sha256)))

    def stored_bytes(self, project: str) -> int:
        """The bytes of all archives of a project."""
        statement = select(func.coalesce(func.sum(Code.stored_bytes), 0)).where(Code.project == project)
        return self._session.scalar(statement) or 0

    def has_unused(self, before: datetime) -> bool:
        """True if `delete_unused` would delete anything."""
        return bool(self._session.scalar(select(exists().where(Code.used_at < before, ~_is_named()))))

    def delete_unused(self, before: datetime) -> int:
        """Deletes what no job names and nobody has used since `before`; how many there were."""
        statement = delete(Code).where(Code.used_at < before, ~_is_named())
        return len(self._session.scalars(statement.returning(Code.sha256)).all())


def _is_named() -> ColumnElement[bool]:
    return exists().where(*_names_it())


def _names_it() -> tuple[ColumnElement[bool], ...]:
    """True of a job and the code that it names."""
    return Job.code_sha256.is_not(None), Job.code_sha256 == Code.sha256, Job.project == Code.project
