"""The identity of a trial, told by the rank that trains it, and by a process that only builds its model."""

from __future__ import annotations

import dataclasses
import json
import platform

import pytest
import torch

from trainers.config import InvalidConfig, OptimizerConfig, TrialConfig
from trainers.identity.asking import ask_model
from trainers.identity.trial import versions
from trainers.identity.values import Environment, TrialIdentity
from trainers.loop import train
from trainers.ranks.context import RankContext


def config(**options: object) -> TrialConfig:
    return TrialConfig(
        workload="digits-mlp",
        workload_options=options,  # type: ignore[arg-type]
        optimizer=OptimizerConfig("adamw", {"lr": 0.01}),
        num_steps=4,
        evaluate_every=2,
        batch_size=32,
    )


def test_a_trial_tells_its_identity_once_and_trains_as_if_nobody_had_asked() -> None:
    told: list[TrialIdentity] = []
    asked = list(train(config(), RankContext(0, 1, "cpu", on_built=told.append)))
    plain = list(train(config(), RankContext(0, 1, "cpu")))
    [identity] = told
    assert identity.data is not None
    environment = identity.environment
    assert (environment.device, environment.device_name, environment.world_size) == ("cpu", None, 1)
    assert environment.hardware == "cpu"
    assert Environment.from_json(json.loads(json.dumps(dataclasses.asdict(environment)))) == environment
    assert [one.metrics["train_loss"] for one in asked] == [one.metrics["train_loss"] for one in plain]


@pytest.mark.slow
def test_versions_are_those_of_what_is_installed() -> None:
    versions.cache_clear()  # others may have asked before they imported more
    found = versions("trainers.workloads.digits.digits")
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__
    assert "shampoo-tuner" in found
    assert "pytest" in versions("_pytest.config")
    assert versions("my_script").keys() == found.keys()


@pytest.mark.processes
def test_a_process_that_builds_the_model_without_weights_tells_the_same_digest() -> None:
    told: list[TrialIdentity] = []
    next(train(config(hidden_sizes=[16]), RankContext(0, 1, "cpu", on_built=told.append)))
    asked = ask_model(config(hidden_sizes=[16], dropout=0.5))
    assert (asked.digest, asked.shape) == (told[0].model, told[0].shape)
    with pytest.raises(InvalidConfig, match="hidden_sizes must be a list"):
        ask_model(config(hidden_sizes=16))
