"""Settings of training and options are checked when a job is submitted: a message names field and value."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from search_spaces.optimizers import AVERAGING
from service.errors import InvalidInput
from service.faults import all_of
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from tests.support.service.scenarios import specification


def training(**fields: Any) -> dict[str, Any]:
    return {"training": fields, "resources": {"workers_per_trial": 2}}


def averaging(**arguments: Any) -> dict[str, Any]:
    return training(averaging={"method": "ema", "arguments": arguments})


def space(*parameters: dict[str, Any], **fixed: Any) -> dict[str, Any]:
    return {"search_space": {"optimizer": "adamw", "parameters": list(parameters), "fixed": fixed}}


DROPOUT = {"type": "float", "name": "workload.dropout", "low": 0.0, "high": 0.5}
WITH_DROPOUT = {"workload": {"name": "digits-mlp", "options": {"dropout": 0.25}}}


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        (training(parallelism={"mode": "hsdp", "shard_size": 3}), "training.parallelism.shard_size", "3 does not"),
        (training(batch_size=126, accumulation_steps=4), "training.batch_size", "126 is not divisible by workers_per"),
        (training(parallelism={"mode": "fsdp2"}, compression={}), "training.compression", "ddp"),
        (training(evaluate_every=5, evaluate_every_epochs=1.0), "training.evaluate_every", "exactly one of"),
        (
            {"training": {"parallelism": {"mode": "fsdp2"}}},
            "training.parallelism.mode",
            "'fsdp2' has no effect with wo",
        ),
        (averaging(beta=0.9), "training.averaging.arguments.beta", "(known: decay, "),
        (averaging(method="ema"), "training.averaging.arguments.method", "unknown argument"),
        (averaging(decay=2), "training.averaging.arguments.decay", "must be in [0, 1), got 2"),
        (averaging(update_frequency=0.5), "training.averaging.arguments.update_frequency", "an integer, got 0.5"),
        (averaging(decay={"a": 1}), "training.averaging.arguments.decay", "got {'a': 1}"),
        ({"objectives": [{"metric": "best_bleu"}]}, "objectives[0].metric", "best_<metric>, mean_of_last_<metric>)"),
        (
            {"objectives": [{"metric": "best_steps_to_target"}]},
            "objectives[0].metric",
            "already: give it without the prefix",
        ),
        ({"objectives": [{"metric": "steps_to_target"}]}, "target", "'steps_to_target'"),
        (
            {"objectives": [{"metric": "validation_loss"}], "target": {"metric": "bleu", "value": 1.0}},
            "target.metric",
            "'bleu'",
        ),
        ({**WITH_DROPOUT, **space(DROPOUT)}, "search_space.parameters[0].name", "holds 'dropout' at 0.25"),
        (
            {**WITH_DROPOUT, **space(**{"workload.dropout": 0.5})},
            "search_space.fixed.workload.dropout",
            "leave one of them out",
        ),
    ],
)
def test_an_impossible_training_is_refused_naming_field_and_value(
    fields: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        plan_job(specification(**fields))
    assert refused.value.field == field
    assert said in refused.value.message


@pytest.mark.parametrize(
    "fields",
    [
        training(precision="fp16"),
        training(averaging={"method": "swa"}),
        training(compression={"start_step": 1}),
        training(epochs=3),
        training(parallelism={"mode": "hsdp"}),
        {"objectives": [{"metric": "seconds_to_target"}], "target": {"metric": "validation_loss"}},
    ],
)
def test_fields_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        specification(**fields)


def test_the_methods_of_averaging_are_those_of_a_search_space() -> None:
    schema = JobSpecification.model_json_schema()["$defs"]["AveragingConfig"]["properties"]["method"]
    assert tuple(schema["enum"]) == AVERAGING["method"].choices


def test_sound_arguments_of_averaging_reach_the_trials() -> None:
    plan = plan_job(specification(**averaging(decay=0.9, warm_up="ramp")))
    for phase, found in plan.spaces.items():
        config = plan.trial_config(phase, found.defaults())
        assert config.averaging is not None
        assert config.averaging.arguments == {"decay": 0.9, "warm_up": "ramp"}


def test_settings_that_do_not_go_with_each_other_are_told_beside_all_other_faults() -> None:
    contradicting = {
        "parallelism": {"mode": "fsdp2"},
        "compression": {},
        "evaluate_every": 5,
        "evaluate_every_epochs": 1.0,
        "checkpoint_every": 7,
        "num_steps": 20,
        "num_examples": 100,
    }
    with pytest.raises(InvalidInput) as refused:
        plan_job(specification(**training(**contradicting), search_space="shampo", constraints=[{"metric": "x"}]))
    assert [one.field for one in all_of(refused.value)] == [
        "constraints[0].metric",
        "training.compression",
        "training.evaluate_every",
        "training.checkpoint_every",
        "training.num_examples",
        "search_space",
    ]
