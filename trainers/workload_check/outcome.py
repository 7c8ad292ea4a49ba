"""The outcome of a rule, and the exceptions by which a rule says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """The outcome of one rule, for a person."""

    rule: str
    status: Status
    text: str
    """The finding; of a failure, what is wrong and how to mend it."""


class Broken(Exception):
    """The workload breaks the rule: what is wrong, and how to mend it."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what if what.endswith('?') else f'{what}.'} {mend}")


class Doubtful(Exception):
    """The rule is not clearly broken, but a person should look."""


class NotChecked(Exception):
    """The rule cannot be checked, or does not apply; the message says why."""
