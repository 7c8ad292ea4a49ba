from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from trainers.config import Diverged, InvalidConfig, OptimizerConfig, ScheduleConfig, TrialConfig

COMPLETE = TrialConfig(
    workload="digits-mlp",
    optimizer=OptimizerConfig("shampoo", {"lr": 0.01, "betas": [0.9, 0.99], "grafting": "sgd"}),
    num_steps=100,
    evaluate_every=10,
    batch_size=64,
    schedule=ScheduleConfig(warmup_fraction=0.1, decay="linear"),
    workload_options={"hidden_sizes": [16], "label_smoothing": 0.1},
    seed=3,
    gradient_clip_norm=1.0,
    max_loss=50.0,
    checkpoint_every=20,
)
MINIMAL: dict[str, Any] = {
    "workload": "digits-mlp",
    "optimizer": {"name": "adamw"},
    "num_steps": 10,
    "evaluate_every": 5,
    "batch_size": 8,
}


def test_a_config_survives_json() -> None:
    assert TrialConfig.from_json(json.loads(json.dumps(COMPLETE.to_json()))) == COMPLETE


def test_defaults_may_be_left_out() -> None:
    config = TrialConfig.from_json(MINIMAL)
    assert config.schedule == ScheduleConfig()
    assert TrialConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_step": 10}, "num_step"),
        ({"num_steps": 0}, "num_steps"),
        ({"num_steps": 2.5}, "num_steps"),
        ({"num_steps": True}, "num_steps"),
        ({"evaluate_every": "5"}, "evaluate_every"),
        ({"batch_size": -1}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"workload": ""}, "workload"),
        ({"workload_options": [1]}, "workload_options"),
        ({"gradient_clip_norm": 0}, "gradient_clip_norm"),
        ({"max_loss": float("inf")}, "max_loss"),
        ({"checkpoint_every": 7}, "checkpoint_every"),
        ({"optimizer": "adamw"}, "optimizer"),
        ({"optimizer": {"name": "lion"}}, "optimizer.name"),
        ({"optimizer": {}}, "optimizer.name"),
        ({"optimizer": {"name": "adamw", "lr": 1}}, "optimizer.lr"),
        ({"schedule": {"warmup_fraction": 1.0}}, "schedule.warmup_fraction"),
        ({"schedule": {"decay": "step"}}, "schedule.decay"),
        ({"schedule": {"decay_fraction": 0.1}}, "schedule.decay_fraction"),
        ({"averaging": {"method": "mean"}}, "averaging.method"),
        ({"compression": {"start_step": 1}}, "compression.start_step"),
        ({"parallelism": {"mode": "hsdp"}}, "parallelism.shard_size"),
        ({"target": {"metric": "", "value": 1.0}}, "target.metric"),
        ({"target": {"metric": "validation_loss", "value": float("nan")}}, "target.value"),
        ({"keep_checkpoints": 2**31}, "keep_checkpoints"),
        ({"compile": 1}, "compile"),
        ({"precision": None}, "precision"),
        ({"parallelism": None}, "parallelism"),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        TrialConfig.from_json({**MINIMAL, **change})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_steps": 0}, "num_steps: must be an integer >= 1, got 0"),
        ({"num_steps": 2**31}, "num_steps: must be an integer <= 2147483647, got 2147483648"),
        ({"max_loss": 0}, "max_loss: must be > 0, got 0"),
        ({"schedule": {"warmup_fraction": 1}}, "schedule.warmup_fraction: must be in [0, 1), got 1"),
        ({"precision": "half"}, "precision: must be one of float32, bfloat16, float16, got 'half'"),
        ({"compile": "yes"}, "compile: must be true or false, got 'yes'"),
    ],
)
def test_a_message_says_the_rule_and_the_value(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        TrialConfig.from_json({**MINIMAL, **change})
    assert str(caught.value) == message


@pytest.mark.parametrize("field", ["workload", "optimizer", "num_steps", "batch_size"])
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{field}: is required"):
        TrialConfig.from_json({name: value for name, value in MINIMAL.items() if name != field})


@pytest.mark.parametrize("data", [None, [], "config", 3])
def test_json_that_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(InvalidConfig, match="must be an object"):
        TrialConfig.from_json(data)


@pytest.mark.parametrize("error", [Diverged(7, "loss nan"), InvalidConfig("seed", "must be an integer")])
def test_errors_cross_process_boundaries_whole(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("name", ["muon", "soap-peer"])
def test_what_steps_whole_parameters_is_not_for_shards(name: str) -> None:
    data = {**MINIMAL, "optimizer": {"name": name}, "parallelism": {"mode": "fsdp2"}}
    with pytest.raises(InvalidConfig, match=f"must be ddp with {name}.*got 'fsdp2'") as caught:
        TrialConfig.from_json(data)
    assert caught.value.field == "parallelism.mode"
