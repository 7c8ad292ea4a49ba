"""Code that comes with jobs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, delete, exists, func, select, update
from sqlalchemy.orm import Session

from service.errors import NotFound
from service.store.code_models import Code
from service.store.models import Job


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

    def use(self, project: str, sha256: str, *, now: datetime) -> bool:
        """Notes that it is used, so that whoever removes what is not leaves it there; False: it is not there."""
        statement = update(Code).where(Code.project == project, Code.sha256 == sha256).values(used_at=now)
        return bool(self._session.scalar(statement.returning(Code.sha256)))

    def stored_bytes(self, project: str) -> int:
        """Of all archives of a project."""
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
    return exists().where(Job.code_sha256.is_not(None), Job.code_sha256 == Code.sha256, Job.project == Code.project)
