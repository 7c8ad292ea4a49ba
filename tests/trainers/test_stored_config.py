"""Stored configs as their readers have them."""

from __future__ import annotations

from dataclasses import fields

from trainers.config import OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.stored_config import StoredConfig

COMPLETE = TrialConfig(
    workload="digits-mlp",
    optimizer=OptimizerConfig("shampoo", {"lr": 0.01, "betas": [0.9, 0.99]}),
    num_steps=100,
    evaluate_every=10,
    batch_size=64,
    schedule=ScheduleConfig(warmup_fraction=0.1, decay="linear"),
    workload_options={"label_smoothing": 0.1},
    seed=3,
    accumulation_steps=2,
    gradient_clip_norm=1.0,
    precision="bfloat16",
)


def test_it_says_what_the_config_says() -> None:
    content = COMPLETE.to_json()
    stored = StoredConfig.of(content)
    own = ("optimizer", "arguments", "schedule", "content")
    for name in (field.name for field in fields(StoredConfig) if field.name not in own):
        assert getattr(stored, name) == getattr(COMPLETE, name)
    assert (stored.optimizer, stored.arguments) == (COMPLETE.optimizer.name, COMPLETE.optimizer.arguments)
    assert stored.schedule == {"warmup_fraction": 0.1, "decay": "linear", "horizon": 1.0}
    assert TrialConfig.from_json(stored.content) == COMPLETE


def test_what_an_older_config_lacks_takes_its_default() -> None:
    added = {"accumulation_steps": 1, "gradient_clip_norm": None, "precision": "float32"}
    older = {name: value for name, value in COMPLETE.to_json().items() if name not in added}
    stored = StoredConfig.of(older)
    assert {name: getattr(stored, name) for name in added} == added
    assert stored.training("num_steps", "precision") == {"num_steps": 100}


def test_what_this_version_would_refuse_is_read() -> None:
    content = {**COMPLETE.to_json(), "optimizer": {"name": "gone", "arguments": {}}, "unknown": 1}
    assert StoredConfig.of(content).optimizer == "gone"
