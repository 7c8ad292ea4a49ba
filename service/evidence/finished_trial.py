"""A trial as a recommendation reads it: plain values of its row and its curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from service.domain import FailureReason, Phase, TrialState
from trainers.stored_config import StoredConfig


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


def final_value(state: TrialState, value: float | None) -> float | None:
    """The objective that a trial in this state ended with; None: it did not complete, or the value is not finite."""
    return value if state is TrialState.COMPLETED and value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial as it stands when its job ends."""

    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None
    config: StoredConfig
    value: float | None
    """Objective at the last measurement."""
    curve: Sequence[tuple[int, float, Mapping[str, float | None]]]
    """Step, training seconds and metrics of each measurement, by step; None where a metric was not finite."""
    confirms: int | None = None
    """The number of the trial whose config this one repeats with another seed."""
    forked_from: int | None = None
    """The number of the trial from whose checkpoint this one began; None: it began from nothing."""
    forked_at_step: int | None = None
    """The step of that checkpoint; None: there is none."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """{parameter name: sampled value}"""
    remarks: str | None = None
    """The remarks of its measurements on its data, if it completed."""

    @property
    def final_value(self) -> float | None:
        """The objective that it ended with; None: it did not complete, or the value is not finite."""
        return final_value(self.state, self.value)

    @property
    def seconds(self) -> float:
        """Seconds that it trained itself, up to its last measurement."""
        whole = self.curve[-1][1] if self.curve else 0.0
        # A fork's curve begins with what its parent measured where it was forked.
        return whole - (self.curve[0][1] if self.curve and self.forked_from is not None else 0.0)

    @property
    def optimizer(self) -> str:
        """The name of its optimizer."""
        return self.config.optimizer

    @property
    def batch_size(self) -> int:
        """Training examples of each step."""
        return self.config.batch_size

    @property
    def tokens_per_example(self) -> float | None:
        """The tokens of an example, by the speeds that it last measured; None: its workload counts no tokens."""
        metrics = self.curve[-1][2] if self.curve else {}
        tokens, examples = metrics.get("tokens_per_second"), metrics.get("examples_per_second")
        return tokens / examples if tokens and examples else None

    @property
    def ending(self) -> TrialEnding:
        """The trial's state, and why it failed."""
        return TrialEnding(self.state, self.reason)


Pair = tuple[FinishedTrial, FinishedTrial]
"""Our trial and the baseline's with one seed."""
