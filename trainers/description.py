"""What is known of a workload without building it, and the metrics that the loop adds: plain values, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from trainers.config import Json

Direction: TypeAlias = Literal["minimize", "maximize"]


@dataclass(frozen=True, slots=True)
class WorkloadOption:
    """One argument of a workload's constructor."""

    default: Json
    """None where `required`."""
    description: str
    required: bool = False
    """Whether the user must give it, e.g. the path of the data."""


@dataclass(frozen=True, slots=True)
class WorkloadDescription:
    """What is known of a workload without building it."""

    name: str
    title: str
    implementation: str
    """`module:Class`; the class is called with the workload's options as keyword arguments."""
    metrics: Mapping[str, Direction]
    """Every metric a measurement holds, with the direction in which it is better."""
    default_objective: str
    default_num_steps: int
    default_evaluate_every: int
    default_batch_size: int
    options: Mapping[str, WorkloadOption] = field(default_factory=dict)
