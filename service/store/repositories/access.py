"""Projects and what their jobs take, tokens, signing keys, the audit trail."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, inspect, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.orm import Session

from service.domain import DEFAULT_PROJECT, JobState
from service.store.models import AuditEntry, Job, Project, SigningKey, Token, Trial
from service.store.repositories.code import CodeRepository
from service.store.repositories.deletions import DeletionRepository
from service.store.session import UNREADABLE_ROWS


@dataclass(frozen=True, slots=True)
class Usage:
    """The jobs of a project, and what they have taken."""

    running_jobs: int
    queued_jobs: int
    device_hours: float
    """Training time of all trials times their ranks."""
    stored_bytes: int


class ProjectRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, project: Project) -> None:
        self._session.add(project)
        self._session.flush()

    def find(self, name: str) -> Project | None:
        return self._session.get(Project, name)

    def find_locked(self, name: str) -> Project | None:
        """The project, locked against other writers until the transaction ends, with its newest values."""
        statement = select(Project).where(Project.name == name).with_for_update()
        return self._session.scalars(statement.execution_options(populate_existing=True)).one_or_none()

    def lock_names(self) -> None:
        """Makes others who create a project or a token wait until the transaction ends, so that no two get one name."""
        self.find_locked(DEFAULT_PROJECT)

    def page(self, *, after_name: str | None = None, limit: int) -> list[Project]:
        """Up to `limit` projects, by name, beginning behind one."""
        statement = select(Project).order_by(Project.name).limit(limit)
        if after_name is not None:
            statement = statement.where(Project.name > after_name)
        return list(self._session.scalars(statement))

    def all(self) -> list[Project]:
        return list(self._session.scalars(select(Project).order_by(Project.name)))

    def num_jobs(self, name: str, state: JobState) -> int:
        statement = select(func.count()).where(Job.project == name, Job.state == state)
        return self._session.scalar(statement) or 0

    def device_hours(self, name: str) -> float:
        """Training time of all trials of its jobs times their ranks, of deleted ones, too. It reads the trials of
        running jobs alone.
        """
        own, is_running = (Job.project == name, Job.deleted_at.is_(None)), Job.state == JobState.RUNNING
        spent = self._session.scalar(select(func.sum(Job.spent_device_seconds)).where(*own, ~is_running)) or 0.0
        of_trials = select(func.sum(Trial.spent_seconds)).where(Trial.job_id == Job.id).scalar_subquery()
        running = select(Job.id, Job.spent_device_seconds, of_trials).where(*own, is_running)
        for job_id, spent_before, seconds in self._session.execute(running).all():
            try:
                job = self._session.get_one(Job, job_id)
                spent += (seconds or 0.0) * job.specification.resources.workers_per_trial
            except UNREADABLE_ROWS:  # or no job of any project could begin
                spent += spent_before
        return (spent + DeletionRepository(self._session).rank_seconds(name)) / 3600

    def stored_bytes(self, name: str) -> int:
        """The bytes that a project's jobs had when their workers last looked, and of the code that came with them; of
        deleted jobs until their files are gone."""
        of_jobs = self._session.scalar(select(func.coalesce(func.sum(Job.disk_bytes), 0)).where(Job.project == name))
        return (of_jobs or 0) + CodeRepository(self._session).stored_bytes(name)

    def usage(self, name: str) -> Usage:
        return Usage(
            self.num_jobs(name, JobState.RUNNING),
            self.num_jobs(name, JobState.QUEUED),
            self.device_hours(name),
            self.stored_bytes(name),
        )


class TokenRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, token: Token) -> None:
        self._session.add(token)
        self._session.flush()

    def find(self, prefix: str) -> Token | None:
        return self._session.get(Token, prefix)

    def named(self, name: str) -> Token | None:
        """The token of this name that is not revoked."""
        return self._session.scalars(select(Token).where(Token.name == name, Token.revoked_at.is_(None))).one_or_none()

    def all(self) -> list[Token]:
        """All tokens, the oldest first; those that are revoked or have expired, too."""
        return list(self._session.scalars(select(Token).order_by(Token.created_at, Token.prefix)))

    def page(self, *, after_prefix: str | None = None, limit: int) -> list[Token]:
        """Up to `limit` tokens, the oldest first, beginning behind the one of a prefix."""
        age = tuple_(Token.created_at, Token.prefix)
        statement = select(Token).order_by(Token.created_at, Token.prefix).limit(limit)
        if after_prefix is not None:
            last = self.find(after_prefix)
            if last is None:
                return []
            statement = statement.where(age > tuple_(last.created_at, last.prefix))
        return list(self._session.scalars(statement))

    def exists(self) -> bool:
        """True if there ever was one; False also in a database that has no table of them yet."""
        if not inspect(self._session.connection()).has_table(Token.__tablename__):
            return False
        return self._session.scalar(select(Token.prefix).limit(1)) is not None

    def note_use(self, prefix: str, now: datetime) -> None:
        self._session.execute(update(Token).where(Token.prefix == prefix).values(last_used_at=now))


class SigningKeyRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, name: str) -> str | None:
        return self._session.scalar(select(SigningKey.value).where(SigningKey.name == name))

    def add_once(self, name: str, now: datetime) -> str:
        """The key of this name, made at random if there is none. Two processes that ask at once get the same."""
        insert = insert_sqlite if self._session.get_bind().dialect.name == "sqlite" else insert_postgresql
        values = {"name": name, "value": secrets.token_hex(32), "created_at": now}
        self._session.execute(insert(SigningKey).values(values).on_conflict_do_nothing())
        found = self.find(name)
        assert found is not None
        return found


class AuditRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, entry: AuditEntry) -> None:
        self._session.add(entry)
        self._session.flush()

    def page(
        self, *, project: str | None, actor: str | None = None, before_id: int | None = None, limit: int
    ) -> Sequence[AuditEntry]:
        """Up to `limit` entries, newest first, beginning after the entry `before_id`."""
        statement = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
        if project is not None:
            statement = statement.where(AuditEntry.project == project)
        if actor is not None:
            statement = statement.where(AuditEntry.actor == actor)
        if before_id is not None:
            statement = statement.where(AuditEntry.id < before_id)
        return list(self._session.scalars(statement))
