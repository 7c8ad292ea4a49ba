"""The settings as plain values: who is let in, what a scope allows, what a project takes of its quotas. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from service.access.caller import Caller, Scope
from service.access.token_state import TokenState, state_of
from service.settings import Access
from service.store.models import Project, Token
from service.store.repositories import Usage

SCOPES: dict[Scope, str] = {
    Scope.READ: "to see the project's jobs, trials, charts and recommendations, and pages",
    Scope.SUBMIT: "also to submit jobs in the project and to steer them",
    Scope.CODE: "beside submit: to name code of its own in a job, which workers then run",
    Scope.METRICS: "to read /metrics, for a Prometheus",
    Scope.ADMIN: "to see and steer the jobs of every project, and to change all that is on this page",
}
"""The rights that each scope grants, for people."""
NUM_ENDED = 50
"""Tokens that have ended, of which so many are listed, the newest."""
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


class Door(StrEnum):
    """The kinds of callers that may be let in."""

    THIS_MACHINE = "this machine"
    """Anybody, and this machine alone can ask."""
    OPEN = "open"
    """Anybody: something in front of the service asks who it is."""
    TOKENS = "tokens"
    """Whoever has a token."""


def door_of(caller: Caller, access: Access) -> Door:
    """The kind of callers that are let in, given that this one was."""
    if caller.name is not None:
        return Door.TOKENS
    return Door.OPEN if access is Access.OPEN else Door.THIS_MACHINE


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens there are, and the newest that have ended."""

    valid: Sequence[Token]
    ended: Sequence[tuple[Token, TokenState]]


def tokens_of(found: Sequence[Token], now: datetime) -> Tokens:
    """All tokens, the oldest first, apart by whether they are let in now."""
    states = [(token, state_of(token, now)) for token in found]
    ended = [pair for pair in states if pair[1] is not TokenState.VALID]
    return Tokens([token for token, state in states if state is TokenState.VALID], ended[::-1][:NUM_ENDED])


@dataclass(frozen=True, slots=True)
class Taken:
    """The part of a quota that a project uses."""

    used: str
    limit: str | None
    """None: there is no limit."""
    share: float
    """Share of the limit, at most 1; 0: there is none."""

    @property
    def is_spent(self) -> bool:
        return self.share >= 1


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project with what it takes."""

    project: Project
    running: Taken
    queued: Taken
    hours: Taken
    stored: Taken


def project_row(project: Project, usage: Usage) -> ProjectRow:
    """A project with what it takes, in words."""
    return ProjectRow(
        project,
        _taken(usage.running_jobs, project.max_running_jobs, str),
        _taken(usage.queued_jobs, project.max_queued_jobs, str),
        _taken(usage.device_hours, project.max_device_hours, "{:.4g}".format),
        _taken(usage.stored_bytes, project.max_stored_bytes, size),
    )


def _taken(used: float, limit: float | None, written: Callable[[float], str]) -> Taken:
    if limit is None:
        return Taken(written(used), None, 0.0)
    return Taken(written(used), written(limit), min(1.0, used / limit) if limit else 1.0)


def size(num_bytes: float) -> str:
    """Bytes in the unit in which they are few: `4.2 GB`."""
    unit = 0
    while num_bytes >= 999.5 and unit < len(_SIZES) - 1:
        num_bytes, unit = num_bytes / 1000, unit + 1
    return f"{num_bytes:.3g} {_SIZES[unit]}"
