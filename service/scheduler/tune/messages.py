"""The messages that pass through Ray Tune, and the pickling of its adapters, which is empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from service.domain import FailureReason
from service.places import NodePlace
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.output.files import OutputPlace
from trainers.config import Measurement, TrialConfig
from trainers.config_part import Refusal
from trainers.data.roots import DataRoots
from trainers.identity.values import TrialIdentity


class TuneAdapter:
    """An object whose pickles are empty.

    Tune pickles all it is given, to be able to restore an experiment from files. A job is restored from SQL, and
    database connections cannot be pickled.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """A trial to train; travels as it is in Tune's config."""

    number: int
    config: TrialConfig
    checkpoint_directory: str
    """A path, or the URI of a store."""
    size: GroupSize
    data_roots: DataRoots | None = None
    """The directories that the trial may read; None: all that its ranks may."""
    report_timeout_seconds: float | None = None
    """Seconds to wait for a measurement; None: forever."""
    until_step: int | None = None
    """The step at which the trial will be paused: its ranks continue only when they are told to; None: it is not
    paused."""
    begins_at_step: int = 0
    """The step of the checkpoint that a fork begins from, which is in the directory; 0: it begins from nothing."""

    output: OutputPlace | None = None
    """The place where its ranks write what they print; None: it is not kept."""
    weights_directory: str | None = None
    """The place for its trained weights: a path, or the URI of a store; None: they are not kept."""

    def to_tune(self) -> dict[str, Any]:
        return {"order": self}

    @staticmethod
    def from_tune(config: dict[str, Any]) -> TrialOrder:
        order = config["order"]
        assert isinstance(order, TrialOrder)
        return order


Kind: TypeAlias = Literal["measured", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class TrialReport:
    """The report of a trial after each call of the trainable's `train`; travels as Tune's result."""

    kind: Kind
    measurement: Measurement | None = None
    """Absent if the trial failed."""
    reason: FailureReason | None = None
    detail: str | None = None
    trace: str = ""
    refusal: Refusal | None = None
    """The refusal of the trial's config, for which it failed; None: it was none."""
    begins_anew: bool = False
    """True if the trial can begin again, because only its checkpoint does not fit it."""
    exit_status: int | None = None
    """The exit status of the process of a rank that died, if it is known; negative: the signal that killed it."""
    identity: TrialIdentity | None = None
    """The trial's identity, with the first measurement of each run of it."""
    places: tuple[NodePlace, ...] = ()
    """The places of its ranks, with the first report of each run."""

    def to_tune(self) -> dict[str, Any]:
        # `done` ends the trial whatever the pruner would say.
        return {"report": self, "done": self.kind != "measured"}

    @staticmethod
    def from_tune(result: dict[str, Any]) -> TrialReport:
        report = result["report"]
        assert isinstance(report, TrialReport)
        return report
