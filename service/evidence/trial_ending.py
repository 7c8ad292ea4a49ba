"""The end of a trial as evidence has it: typed here, and one text in JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from service.domain import FailureReason, TrialState


@dataclass(frozen=True, slots=True)
class TrialEnding:
    """The state that a trial ended in, and why it failed. `str` gives the state, with the reason in brackets."""

    state: TrialState
    reason: FailureReason | None = None

    def __str__(self) -> str:
        return f"{self.state.value} ({self.reason.value})" if self.reason else self.state.value


_BY_TEXT = {
    str(ending): ending
    for ending in (TrialEnding(state, reason) for state in TrialState for reason in (None, *FailureReason))
}


def _read(value: object) -> TrialEnding:
    ending = value if isinstance(value, TrialEnding) else _BY_TEXT.get(str(value))
    if ending is None:
        raise ValueError(f"{value!r} is not how a trial ends")
    return ending


WrittenEnding = Annotated[
    TrialEnding,
    PlainValidator(_read, json_schema_input_type=str),
    PlainSerializer(str, return_type=str),
]
"""The field of what is stored or answered as JSON, where it is the text of `TrialEnding`."""
