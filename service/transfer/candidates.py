"""Tuned configs to start from, with what they were tuned for and who says so: of jobs, shipped tables and papers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from search_spaces import SearchSpace, preset
from search_spaces.shipped.algoperf import NOT_SAID, POINTS, PublishedPoint
from service.domain import Direction
from service.evidence.formats.family import grafting_of
from service.evidence.parameter_groups import OwnSettings
from service.evidence.types import EvidenceStatus
from service.transfer.rules import TunedConfig
from service.transfer.situation import Situation
from trainers.identity.values import ModelShape

TABLE = Path(__file__).with_name("knowledge.json")
"""Made by `python -m tests.benchmarks.search.make_knowledge`."""

OF_TABLE = "of the table that comes with shampoo-tuner"
"""Said of its members, which a job of one's own may have the name of."""


class SourceKind(StrEnum):
    """The kind of source that a config comes from."""

    STORE = "store"
    """A job of this service, or several tuned models together of which some are of jobs."""
    SHIPPED = "shipped"
    """The table that comes with this package, of small models."""
    PUBLISHED = "published"
    """The winning Shampoo submission of AlgoPerf, for models other than this one."""
    ADAPTERS = "adapters"
    """A learning rate that was measured for this package on the low-rank adapters of a small model."""


@dataclass(frozen=True, slots=True)
class MemberShare:
    """The weight of a tuned model's trials in the answer of several models together."""

    name: str
    """The name of the model for a person."""
    share: float
    """The shares of all models sum to 1."""
    job_id: str | None = None
    """The job that tuned it; None: it is of the shipped table."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a config."""

    kind: SourceKind
    name: str
    """The name for a person: a workload with its options, or a point of a submission."""
    recommendation_id: str | None = None
    """With `store`: the recommendation that it is of."""
    job_id: str | None = None
    """With `store`: the job that tuned it."""
    status: EvidenceStatus | None = None
    """With `store`: what new seeds said of the recommendation."""
    standing: str | None = None
    """The status with what was confirmed, for a person."""
    metric: str | None = None
    """The objective that decided."""
    direction: Direction | None = None
    """With `store`: the direction in which that is better."""
    value: float | None = None
    """The value of that objective for the model that it was tuned for: never to be expected of another one."""
    num_trials: int | None = None
    """Trials that the search had; those of all models, where several say it together."""
    shares: Sequence[MemberShare] = ()
    """The weight of each of several models that say it together, the largest first; empty: it is of one."""

    @property
    def badness(self) -> float:
        """The value, or for what is maximised its negative: of configs of one model, less is better."""
        if self.value is None:
            return math.inf
        return -self.value if self.direction is Direction.MAXIMIZE else self.value


@dataclass(frozen=True, slots=True)
class TransferCandidate:
    """A tuned config with what it was tuned for."""

    config: TunedConfig
    source: Source
    situation: Situation | None
    """None: for several models at once, as published points are."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the training beside its length, e.g. `gradient_clip_norm`."""
    parameter_groups: Sequence[OwnSettings] = ()
    """Settings that some parameters of the tuned model had of their own: rules find the like of another one."""
    remarks: Sequence[str] = ()
    """Remarks on the config that its arguments do not express, for a person."""


@dataclass(frozen=True, slots=True)
class EarlyValue:
    """The objective of a trial before its end."""

    step: int
    value: float


@dataclass(frozen=True, slots=True)
class TunedTrial:
    """A trial of a tuned model."""

    value: float | None
    """Its objective at the end; None: it diverged, or was stopped before (`was_stopped`)."""
    parameters: Mapping[str, Any]
    """Parameters of the preset."""
    early: EarlyValue | None = None
    """Its objective where it was stopped, or else where `auto` first pauses; None: it is not known."""
    was_stopped: bool = False
    """True if the search stopped it before its end."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TunedTrial:
        """The trial that `dataclasses.asdict` gave."""
        early = content["early"]
        return cls(**{**content, "early": None if early is None else EarlyValue(**early)})


@dataclass(frozen=True, slots=True)
class ShippedMember:
    """A tuned model of the shipped table, with all of its trials."""

    name: str
    workload: str
    options: Mapping[str, Any]
    preset: str
    metric: str
    situation: Situation
    trials: Sequence[TunedTrial]

    @property
    def best(self) -> TunedTrial:
        """The trial with the least objective."""
        return min(self.trials, key=lambda trial: float("inf") if trial.value is None else trial.value)

    def candidate(self) -> TransferCandidate:
        """Its best config."""
        best, space = self.best, preset(self.preset)
        assigned = space.assign(space.check(dict(best.parameters)))
        return TransferCandidate(
            TunedConfig(assigned.optimizer, assigned.optimizer_arguments, {"decay": "cosine", **assigned.schedule}),
            Source(
                SourceKind.SHIPPED,
                f"{source_name(self.workload, self.options, self.situation.batch_size)}, {OF_TABLE}",
                metric=self.metric,
                value=best.value,
                num_trials=len(self.trials),
            ),
            self.situation,
        )


def is_alike(space: SearchSpace, config: TunedConfig) -> bool:
    """True if the space has the optimizer, and searches the config's member of Shampoo's family or is of it."""
    if space.optimizer != config.optimizer:
        return False
    if config.optimizer != "shampoo":
        return True
    searched, fixed = {parameter.name for parameter in space.parameters}, space.fixed
    member, grafting = _member(config.arguments)
    own_member, own_grafting = _member(fixed)
    if "preconditioner" not in searched and member != own_member:
        return False
    return "grafting" in searched or "preconditioner" in searched or grafting == own_grafting


def member_of(config: TunedConfig) -> str | None:
    """The member of Shampoo's family that a config is of; None: it is of another optimizer."""
    return _member(config.arguments)[0] if config.optimizer == "shampoo" else None


def _member(arguments: Mapping[str, Any]) -> tuple[str, str]:
    """The member of the family and its grafting, with the optimizer's own defaults."""
    return str(arguments.get("preconditioner") or "shampoo"), grafting_of(arguments)


def source_name(model: str, options: Mapping[str, Any], batch_size: int) -> str:
    """The name of a tuned model for a person: those of one workload differ in its options."""
    given = "".join(f" {name}={json.dumps(value)}" for name, value in options.items())
    return f"{model}{given}, batch size {batch_size}"


@cache
def shipped_members() -> tuple[ShippedMember, ...]:
    """The table that comes with the package."""
    return tuple(
        ShippedMember(
            name=row["name"],
            workload=row["workload"],
            options=row["options"],
            preset=row["preset"],
            metric=row["objective"],
            situation=Situation.of(
                ModelShape.from_json(row["shape"]),
                batch_size=row["batch_size"],
                num_steps=row["num_steps"],
                workload=row["workload"],
            ),
            trials=tuple(TunedTrial(trial["value"], trial["parameters"]) for trial in row["trials"]),
        )
        for row in json.loads(TABLE.read_text())
    )


def published() -> tuple[TransferCandidate, ...]:
    """The five points of AlgoPerf's Shampoo submission, whole, in the order that hits soonest."""
    return tuple(map(_published, POINTS))


def _published(point: PublishedPoint) -> TransferCandidate:
    smoothing = f"label smoothing {point.label_smoothing:g}" if point.label_smoothing else "no label smoothing"
    dropout = f"dropout {point.dropout:g}" if point.dropout else "no dropout"
    return TransferCandidate(
        TunedConfig(
            "shampoo",
            point.arguments,
            {
                "decay": "cosine",
                "warmup_fraction": point.searched["schedule.warmup_fraction"],
                "horizon": point.horizon,
            },
        ),
        Source(SourceKind.PUBLISHED, f"AlgoPerf's winning Shampoo submission, point {point.number} (arXiv:2502.15015)"),
        None,
        remarks=(f"trained with {smoothing} and {dropout}, where the model has them", NOT_SAID),
    )
