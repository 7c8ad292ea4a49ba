"""Checks of a job's measurements and recommendation, from the point of view of a user."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from service.client import Client
from service.domain import WeightsOf
from trainers.precision import DTYPES
from trainers.workload.batches import train_batches
from trainers.workloads.registry import BUILT_IN, load


def assert_measured(metrics: Mapping[str, float | None], name: str) -> None:
    """Every metric that the workload promises is there, and all are finite."""
    assert metrics.keys() >= BUILT_IN[name].metrics.keys()
    assert [metric for metric, value in metrics.items() if value is None or not math.isfinite(value)] == []


def train_with_snippet(python: str, name: str, options: Mapping[str, Any]) -> Any:
    """Takes two steps with the recommended Python, as a user who pastes it; returns the optimizer."""
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


def assert_has_loss(weights: Path, config: Mapping[str, Any], loss: float | None) -> None:
    """A new model with these weights, on one process, has the validation loss of the trial that has the config."""
    workload = load(config["workload"], config["workload_options"])
    model = workload.build_model()
    model.load_state_dict(load_file(weights))
    dtype = DTYPES[config["precision"]]
    model.to(dtype).eval()  # as it is gathered if parameters are shards
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
        sums = workload.evaluate(model, rank=0, world_size=1, device="cpu")
    total, count = sums["validation_loss"]
    assert total / count == pytest.approx(loss, rel=1e-6)


def assert_winners_are_downloaded(client: Client, job_id: str, directory: Path) -> None:
    """The weights of both configs that a job compares come over HTTP, and are those of the best trial of each."""
    evidence = client.recommendation(job_id).evidence
    assert evidence.baseline is not None
    confirming = [trial for trial in client.trials(job_id) if trial.confirms is not None]
    for side, winner in ((WeightsOf.RECOMMENDED, evidence.best), (WeightsOf.BASELINE, evidence.baseline)):
        client.download_weights(job_id, directory / side, side=side)
        best = min(
            (trial for trial in confirming if trial.confirms == winner.number), key=lambda trial: trial.value or 0
        )
        assert_has_loss(directory / side, best.config, best.metrics["validation_loss"])
