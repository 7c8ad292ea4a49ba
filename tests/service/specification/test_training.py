"""How a job's specification says what its trials train and measure."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain import Direction, Objective, Phase
from service.errors import InvalidInput
from service.specification.job import JobSpecification
from service.specification.planning import JobPlan, plan_job
from trainers.config import AveragingConfig, CompressionConfig, ParallelismConfig, TargetConfig, TrialConfig


def plan(**fields: Any) -> JobPlan:
    return plan_job(JobSpecification.model_validate({"workload": {"name": "digits-mlp"}, **fields}))


def trial(of: JobPlan, side: str = Phase.SEARCH, /, **parameters: Any) -> TrialConfig:
    return of.trial_config(side, of.spaces[side].defaults(parameters))


def test_training_fields_reach_the_trials_of_both_phases() -> None:
    planned = plan(
        training={
            "precision": "bfloat16",
            "accumulation_steps": 2,
            "activation_checkpointing": True,
            "compile": True,
            "parallelism": {"mode": "hsdp", "shard_size": 2},
            "averaging": {"method": "ema", "arguments": {"decay": 0.9}},
            "evaluate_every_epochs": 0.5,
            "checkpoint_every": 30,
            "keep_checkpoints": 3,
            "max_loss": 50.0,
        },
        resources={"workers_per_trial": 4},
    )
    for side in (Phase.SEARCH, "adamw"):
        config = trial(planned, side)
        assert (config.precision, config.accumulation_steps, config.max_loss) == ("bfloat16", 2, 50.0)
        assert (config.activation_checkpointing, config.compile) == (True, True)
        assert config.parallelism == ParallelismConfig("hsdp", 2)
        assert config.averaging == AveragingConfig("ema", {"decay": 0.9})
        assert (config.evaluate_every, config.evaluate_every_epochs) == (None, 0.5)
        assert (config.checkpoint_every, config.keep_checkpoints) == (30, 3)


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon", "soap-peer"])
def test_a_baseline_may_be_any_preset(name: str) -> None:
    config = trial(plan(baselines=[{"search_space": name}]), name)
    assert config.optimizer.name == name
    assert TrialConfig.from_json(config.to_json()) == config


def test_left_out_they_are_the_trials_own_defaults() -> None:
    config = trial(plan())
    bare = TrialConfig(
        workload="digits-mlp",
        optimizer=config.optimizer,
        schedule=config.schedule,
        num_steps=config.num_steps,
        batch_size=config.batch_size,
        evaluate_every=config.evaluate_every,
        gradient_clip_norm=config.gradient_clip_norm,
    )
    assert config == bare


def test_the_max_loss_of_jobs_that_are_stored_without_one_is_the_trials_default() -> None:
    assert trial(plan(training={"max_loss": None})).max_loss == 10_000.0


def test_the_schema_of_a_request_has_the_prose_and_the_bounds_of_the_trials_settings() -> None:
    fields = JobSpecification.model_json_schema()["$defs"]["Training"]["properties"]
    assert [name for name, field in fields.items() if "description" not in field] == []
    assert (fields["keep_checkpoints"]["minimum"], fields["keep_checkpoints"]["maximum"]) == (1, 2**31 - 1)
    assert fields["max_loss"]["exclusiveMinimum"] == 0


def test_a_space_varies_what_a_job_sets() -> None:
    space = {
        "optimizer": "adamw",
        "parameters": [
            {"type": "float", "name": "averaging.decay", "low": 0.5, "high": 0.9, "default": 0.7},
            {"type": "integer", "name": "compression.rank", "low": 1, "high": 8, "default": 2},
            {"type": "float", "name": "schedule.horizon", "low": 1.0, "high": 2.0, "default": 1.5},
            {"type": "categorical", "name": "training.precision", "choices": ["float32", "bfloat16"]},
        ],
        "fixed": {"schedule.decay": "wsd"},
    }
    planned = plan(
        search_space=space,
        training={
            "averaging": {"method": "ema", "arguments": {"update_frequency": 3}},
            "compression": {"rank": 7, "error_feedback": False},
        },
        resources={"workers_per_trial": 2},
    )
    config = trial(planned, **{"training.precision": "bfloat16"})
    assert config.averaging == AveragingConfig("ema", {"update_frequency": 3, "decay": 0.7})
    assert config.compression == CompressionConfig(rank=2, start_step=10, error_feedback=False)
    assert (config.schedule.horizon, config.schedule.decay) == (1.5, "wsd")
    assert config.precision == "bfloat16"
    # The baseline's space varies none of it.
    assert trial(planned, "adamw").compression == CompressionConfig(rank=7, error_feedback=False)


def test_a_space_alone_can_choose_the_averaging() -> None:
    space = {"optimizer": "adamw", "fixed": {"averaging.method": "lawa", "averaging.num_snapshots": 3}}
    assert trial(plan(search_space=space)).averaging == AveragingConfig("lawa", {"num_snapshots": 3})


@pytest.mark.parametrize(
    ("metric", "direction", "summaries"),
    [
        ("validation_accuracy", Direction.MAXIMIZE, ()),
        ("examples_per_second", Direction.MAXIMIZE, ()),
        ("peak_memory_bytes", Direction.MINIMIZE, ()),
        ("best_validation_accuracy", Direction.MAXIMIZE, ("best_validation_accuracy",)),
        ("mean_of_last_validation_loss", Direction.MINIMIZE, ("mean_of_last_validation_loss",)),
    ],
)
def test_an_objective_is_measured_in_its_direction(
    metric: str, direction: Direction, summaries: tuple[str, ...]
) -> None:
    planned = plan(objectives=[{"metric": metric}])
    assert planned.objectives == (Objective(metric, direction),)
    config = trial(planned)
    assert (config.summaries, config.target) == (summaries, None)


@pytest.mark.parametrize(
    ("objectives", "target", "measured"),
    [
        (
            [{"metric": "seconds_to_target"}],
            {"metric": "validation_accuracy", "value": 0.9},
            TargetConfig("validation_accuracy", 0.9, "maximize"),
        ),
        (
            [{"metric": "validation_loss"}],
            {"metric": "validation_loss", "value": 0.5},
            TargetConfig("validation_loss", 0.5, "minimize"),
        ),
        ([], {"metric": "validation_loss", "value": 0.5}, TargetConfig("validation_loss", 0.5, "minimize")),
    ],
)
def test_a_target_is_reached_in_the_direction_of_its_metric(
    objectives: list[dict[str, str]], target: dict[str, Any], measured: TargetConfig
) -> None:
    planned = plan(objectives=objectives, target=target)
    assert planned.direction is Direction.MINIMIZE
    assert trial(planned).target == measured


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        (
            {"objectives": [{"metric": "perplexity"}]},
            "objectives[0].metric",
            "has no metric 'perplexity' (it has: examples_",
        ),
        ({"objectives": [{"metric": "best_perplexity"}]}, "objectives[0].metric", "has no metric 'best_perplexity'"),
        ({"objectives": [{"metric": "steps_to_target"}]}, "target", "is required by the metric 'steps_to_targ"),
        (
            {"objectives": [{"metric": "validation_loss"}], "target": {"metric": "step_seconds", "value": 1.0}},
            "target.metric",
            "has no metric 'step_seconds' (it has: train_loss, ",
        ),
        (
            {"training": {"evaluate_every": 10, "evaluate_every_seconds": 1.0}},
            "training.evaluate_every",
            "exactly one of",
        ),
        (
            {"training": {"parallelism": {"mode": "hsdp", "shard_size": 3}}, "resources": {"workers_per_trial": 4}},
            "training.parallelism.shard_size",
            "3 does not divide workers_per_trial = 4",
        ),
        (
            {"training": {"parallelism": {"mode": "fsdp2"}, "compression": {}}, "resources": {"workers_per_trial": 2}},
            "training.compression",
            "is for parallelism mode ddp, got 'fsdp2'",
        ),
        (
            {
                "training": {"parallelism": {"mode": "fsdp2"}},
                "resources": {"workers_per_trial": 2},
                "baseline": {"search_space": "muon"},
            },
            "training.parallelism.mode",
            "must be ddp with muon, which steps whole parameters, got 'fsdp2'",
        ),
        (
            {"training": {"compression": {}, "precision": "float16"}, "resources": {"workers_per_trial": 2}},
            "training.compression",
            "is for the precisions float32 and bfloat16, got 'float16'",
        ),
        ({"training": {"compression": {}}}, "training.compression", "has no effect with workers_per_trial = 1"),
        (
            {"search_space": {"optimizer": "adamw", "fixed": {"compression.rank": 2}}},
            "search_space",
            "has no effect with workers_per_trial = 1",
        ),
        (
            {
                "search_space": {"optimizer": "adamw", "fixed": {"compression.rank": 2}},
                "training": {"parallelism": {"mode": "fsdp2"}},
                "resources": {"workers_per_trial": 2},
            },
            "search_space",
            "compression: is for parallelism mode ddp",
        ),
        (
            {"search_space": {"optimizer": "adamw", "fixed": {"schedule.decay_fraction": 0.1}}},
            "search_space",
            "schedule.decay_fraction: has no effect with decay cosine, got 0.1",
        ),
        (
            {"training": {"accumulation_steps": 3, "batch_size": 64}},
            "training.batch_size",
            "64 is not divisible by workers_per_trial = 1 times accumulation_steps = 3",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_field_and_the_value(
    fields: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(**fields)
    assert (caught.value.field, message in caught.value.message) == (field, True), caught.value
