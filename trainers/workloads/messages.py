"""The answers of the processes that are asked about workloads and models: a line of JSON each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TextIO, TypeVar

from trainers.config import InvalidConfig
from trainers.workload.user_workload import explain

T = TypeVar("T")

_TOLD, _REFUSED = "told", "refused"


class Tellable(Protocol):
    """An answer that tells what was asked."""

    def to_json(self) -> object:
        """The answer as JSON."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer that there is no telling."""

    reason: str
    """For a person."""
    field: str | None = None
    """The field at fault, as an `InvalidConfig` names it; None: it is of none."""


def answer_to_line(answer: Tellable | Refused) -> str:
    """An answer as `answer_from_line` reads it.

    Raises:
        ValueError, TypeError: JSON cannot hold it.
    """
    content = [_REFUSED, asdict(answer)] if isinstance(answer, Refused) else [_TOLD, answer.to_json()]
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def answer_from_line(line: str | bytes, read: Callable[[Any], T]) -> T | Refused:
    """The answer that `answer_to_line` wrote.

    Args:
        read: what makes an answer of the JSON that its `to_json` gave.

    Raises:
        ValueError: the line is none.
    """
    try:
        kind, content = json.loads(line)
        if kind == _TOLD:
            return read(content)
        if kind == _REFUSED:
            return Refused(**content)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{line[:80]!r} is no answer") from error
    raise ValueError(f"{line[:80]!r} is no answer")


def standard_output_for_answers() -> TextIO:
    """Standard output for what is written to this file alone: all that is printed from now on goes to standard error.

    So what an imported module prints, however it does it, does not get between the answers.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def answer(find: Callable[[], Tellable]) -> int:
    """Answers on standard output with what is found, or with the reason why there is nothing.

    Returns:
        The exit status: 0 if it was found.
    """
    with standard_output_for_answers() as answers:
        try:
            line, status = answer_to_line(find()), 0
        except InvalidConfig as error:
            line, status = answer_to_line(Refused(error.message, error.field)), 2
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to a user's own code
            line, status = answer_to_line(Refused(explain(error))), 2
        answers.write(line + "\n")
    return status
