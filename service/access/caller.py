"""The one who asks: its name, its project, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from service.domain import DEFAULT_PROJECT


class Scope(StrEnum):
    """A right that a token gives."""

    READ = "read"
    """To see what belongs to the token's project: jobs, trials, events, charts, recommendations, pages."""
    SUBMIT = "submit"
    """To submit jobs in the project and to steer them: pause, cancel, change, try, stop. With it goes `read`."""
    CODE = "code"
    """To have a job import code that it names itself, as `module:Class`. It adds to `submit`, and gives nothing alone:
    whoever has it does on the workers whatever their account can."""
    METRICS = "metrics"
    """To read `/metrics`: counts of all projects together, that name none. For a Prometheus, which needs no other."""
    ADMIN = "admin"
    """To see and steer the jobs of every project, to make tokens and projects, and to read the audit trail. `read`,
    `submit` and `metrics` go with it, `code` does not."""


_IMPLIED = {
    Scope.READ: (Scope.SUBMIT, Scope.ADMIN),
    Scope.SUBMIT: (Scope.ADMIN,),
    Scope.METRICS: (Scope.ADMIN,),
}
"""The scopes with which each goes."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The one who asks for something."""

    name: str | None
    """The name of its token; None: nobody had to say who asks."""
    project: str
    """The project in which its jobs are made."""
    scopes: frozenset[Scope]
    token: str | None = None
    """The prefix of its token."""
    logged_in_at: datetime | None = None
    """The time at which its session in a browser began; None: it sent the token itself."""

    def may(self, scope: Scope) -> bool:
        """True if it has the scope, or one with which it goes."""
        return scope in self.scopes or any(other in self.scopes for other in _IMPLIED.get(scope, ()))

    @property
    def sees(self) -> str | None:
        """The project that it sees alone; None: it sees them all."""
        return None if self.may(Scope.ADMIN) else self.project


ANYBODY = Caller(None, DEFAULT_PROJECT, frozenset(Scope))
"""Whoever asks where no tokens are asked for. Whether its jobs may name code is for the settings to say."""
