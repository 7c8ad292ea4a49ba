"""Checks of what a job measured and recommends, as a user of either looks at it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from trainers.workload.batches import train_batches
from trainers.workloads.registry import BUILT_IN, load


def assert_measured(metrics: Mapping[str, float | None], name: str) -> None:
    """Every metric that the workload promises is there, and all are finite."""
    assert metrics.keys() >= BUILT_IN[name].metrics.keys()
    assert [metric for metric, value in metrics.items() if value is None or not math.isfinite(value)] == []


def train_with_snippet(python: str, name: str, options: Mapping[str, Any]) -> Any:
    """Two steps as a user who pastes the recommended Python takes them; the optimizer."""
    torch.manual_seed(0)
    workload = load(name, options)
    model = workload.build_model()
    namespace: dict[str, Any] = {"model": model}
    exec(compile(python, "snippet", "exec"), namespace)
    batches = train_batches(workload, batch_size=8, seed=0, rank=0, world_size=1, start_step=0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(2):
        namespace["training_step"](workload.loss(model, next(batches)))
    changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert sum(changed) > len(changed) / 2  # tables of rare categories may lack a gradient
    return namespace["optimizer"]
