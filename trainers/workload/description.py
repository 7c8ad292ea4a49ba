"""The description of a workload, which is known without building it, and the metrics that the loop adds: no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from trainers.config import SUMMARY_PREFIXES, Json

Direction: TypeAlias = Literal["minimize", "maximize"]
OptionRole: TypeAlias = Literal["model", "data", "path", "reading"]
"""What an option is about: the `model` or its loss; which `data` are read, and what is made of them; the `path` of
files, which stand for themselves wherever they lie; or only how the data are read (`reading`), e.g. by how many
processes. Two jobs train the same model on the same data if the first three agree (`trainers.identity`)."""
_SummaryKind: TypeAlias = Literal["best", "mean_of_last"]


@dataclass(frozen=True, slots=True)
class WorkloadOption:
    """One argument of a workload's constructor."""

    default: Json
    """None where `required`."""
    description: str
    required: bool = False
    """True if the user must give it, e.g. the path of the data."""
    role: OptionRole = "model"


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters that trials of a workload give settings of their own (`HasParameterGroups`)."""

    parameters: str
    """The parameters, in words."""
    settings: Mapping[str, Json] | None = None
    """Arguments of the optimizer that they get in place of its own, as far as it has them; None: its class knows."""
    unless: str | None = None
    """The option of the workload that, where it is true, takes these settings away."""


@dataclass(frozen=True, slots=True)
class WorkloadDescription:
    """A workload as it is listed and checked, known without building it."""

    name: str
    title: str
    implementation: str
    """`module:Class`; the class is called with the workload's options as keyword arguments."""
    metrics: Mapping[str, Direction]
    """The workload's own metrics, `train_loss` and what it counts included, with the direction in which each is better.
    A measurement holds more: see `LOOP_METRICS`."""
    default_objective: str
    default_num_steps: int
    default_evaluate_every: int
    default_batch_size: int
    extra: str | None = None
    """Of shampoo-tuner, with the libraries that the workload's modules import; None: it needs torch alone."""
    options: Mapping[str, WorkloadOption] = field(default_factory=dict)
    parameter_groups: Sequence[ParameterGroup] = ()
    """Of a class that has the method of this name. Whoever pastes a config that was found with them is told of them."""


LOOP_METRICS: Mapping[str, Direction] = {
    "train_loss": "minimize",
    "step_seconds": "minimize",
    "examples_per_second": "maximize",
    "tokens_per_second": "maximize",
    "optimizer_share": "minimize",
    "optimizer_state_bytes": "minimize",
    "peak_memory_bytes": "minimize",
    "steps_to_target": "minimize",
    "seconds_to_target": "minimize",
    "target_reached": "maximize",
}
"""The metrics of the loop beside a workload's own, with the direction in which each is better.

Times are means over the steps since the measurement before, without evaluation; bytes are those of the rank that needs
most. `optimizer_share` is the optimizer's part of a step, `tokens_per_second` is there for workloads on sequences, and
the last three if the trial has a target (`trainers.curve`).
"""
TARGET_METRICS = ("steps_to_target", "seconds_to_target", "target_reached")
"""Those that only a trial with a target measures."""


def split_summary(name: str) -> tuple[Literal["best", "mean_of_last"], str]:
    """The kind of a summary and the metric it is of.

    Raises:
        ValueError: the name is none of a summary.
    """
    for prefix, kind in zip(SUMMARY_PREFIXES, get_args(_SummaryKind), strict=True):
        if name.startswith(prefix) and len(name) > len(prefix):
            return kind, name.removeprefix(prefix)
    raise ValueError(f"{name!r} does not begin with {' or '.join(SUMMARY_PREFIXES)}")
