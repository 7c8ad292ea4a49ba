"""Pasted Python trains what was measured: with the workload's model and batches it gives the trial's own numbers."""

from __future__ import annotations

from typing import Any

import pytest

from service.evidence.recommend import pasteable
from tests.support.trainers import small_data
from tests.support.trainers.pasting import snippet_of, trained_alone
from trainers.config import AveragingConfig, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.loop import train
from trainers.optimizers import parameter_groups
from trainers.ranks.context import single_process_context
from trainers.stored_config import StoredConfig
from trainers.workload.description import ParameterGroup
from trainers.workload.parameter_groups import groups_by_rule
from trainers.workloads.registry import BUILT_IN, describe, load

SCHEDULES = {
    "cosine": ScheduleConfig(warmup_fraction=0.2, decay="cosine"),
    "linear": ScheduleConfig(warmup_fraction=0.1, decay="linear", horizon=1.5),
    "wsd": ScheduleConfig(warmup_fraction=0.1, decay="wsd", decay_fraction=0.4),
    "constant": ScheduleConfig(warmup_fraction=0.3, decay="constant"),
}
WITHOUT_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
CASES = {
    "digits-mlp": "linear",
    "digits-convnet": "wsd",
    "digits-autoencoder": "constant",
    "stdlib-gpt": "cosine",
    "text-lm": "cosine",
    "text-lm: llama, all preconditioned": "wsd",
    "image-folder: resnet20": "cosine",
    "image-folder": "linear",
    "click-log": "constant",
    "huggingface": "cosine",
    "huggingface: untied": "linear",
    "huggingface: adapters": "constant",
}
OPTIMIZERS = {
    "adamw": OptimizerConfig("adamw", {"lr": 3e-3, "betas": [0.8, 0.99], "weight_decay": 0.3}),
    # The refreshes of a group are spread over the steps by its own parameters, so that the groups must be the same.
    # Small blocks, for large ones take a second to decompose.
    "shampoo": OptimizerConfig(
        "shampoo", {"lr": 3e-3, "weight_decay": 0.3, "precondition_frequency": 3, "max_preconditioner_dim": 64}
    ),
    "lora-rite": OptimizerConfig("lora-rite", {"lr": 3e-3, "betas": [0.8, 0.99], "weight_decay": 0.3}),
    "shampoo, its defaults": OptimizerConfig("shampoo", {"lr": 3e-3, "preconditioner": "soap"}),
}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Options of the workload by case."""
    root = tmp_path_factory.mktemp("data")
    images, text = {**small_data.write_images(root), "num_workers": 0}, small_data.write_text(root)
    gpt2 = {**small_data.GPT2, "config": {**small_data.GPT2["config"], **WITHOUT_DROPOUT}}
    return {
        "text-lm": text,
        "text-lm: llama, all preconditioned": {**text, "architecture": "llama", "precondition_embeddings": True},
        "image-folder": images,
        "image-folder: resnet20": {**images, "architecture": "resnet20", "patch_size": None},
        "click-log": small_data.write_clicks(root),
        "huggingface": gpt2,
        "huggingface: untied": {**gpt2, "config": {**gpt2["config"], "tie_word_embeddings": False}},
        "huggingface: adapters": {**gpt2, "lora_rank": 2},
    }


def measured_trial(case: str, options: dict[str, dict[str, Any]], optimizer: str) -> TrialConfig:
    """Four steps with all that changes what its optimizer does, measured at the end."""
    return TrialConfig(
        workload=case.partition(":")[0],
        workload_options=options.get(case, {}),
        optimizer=OPTIMIZERS[optimizer],
        schedule=SCHEDULES[CASES[case]],
        averaging=AveragingConfig("ema", {"decay": 0.7}),
        gradient_clip_norm=0.5,
        num_steps=4,
        evaluate_every=4,
        batch_size=8,
        seed=3,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "optimizer"),
    # Every case meets the optimizer whose refreshes depend on the groups, and one of the others, in turns.
    [(case, "shampoo") for case in CASES]
    + [(case, ("adamw", "shampoo, its defaults")[number % 2]) for number, case in enumerate(CASES)]
    + [("huggingface: adapters", "lora-rite")],
)
def test_what_is_pasted_is_what_was_measured(case: str, optimizer: str, options: dict[str, dict[str, Any]]) -> None:
    config = measured_trial(case, options, optimizer)
    python = snippet_of(config)
    assert "NOT AS MEASURED" not in python
    [measurement] = train(config, single_process_context())
    found = trained_alone(python, config)
    assert found == {name: measurement.metrics[name] for name in found}
    assert found


@pytest.mark.parametrize("case", [case for case in CASES if describe(case.partition(":")[0]).parameter_groups])
def test_the_groups_of_the_json_are_those_of_the_trial(case: str, options: dict[str, dict[str, Any]]) -> None:
    config = measured_trial(case, options, "shampoo")
    stored = StoredConfig.of(config.to_json())
    found = pasteable(stored, describe(config.workload).parameter_groups).model_dump(mode="json")
    workload = load(config.workload, config.workload_options)
    model = workload.build_model()
    told = [ParameterGroup.from_json(group) for group in found["parameter_groups"]]
    groups = [group for group in groups_by_rule(model, told, options={}) if group["params"]]
    expected = parameter_groups(workload, model, config.optimizer)
    for group, other in zip(groups, expected, strict=True):
        assert list(map(id, group.pop("params"))) == list(map(id, other.pop("params")))
        assert group == other


@pytest.mark.slow
@pytest.mark.parametrize("case", ["text-lm", "image-folder", "click-log", "huggingface"])
def test_the_groups_are_a_part_of_it(case: str, options: dict[str, dict[str, Any]]) -> None:
    config = measured_trial(case, options, "shampoo")
    python = snippet_of(config)
    without = python.replace("    parameter_groups(model),", "    model.parameters(),")
    assert without != python
    assert trained_alone(without, config) != trained_alone(python, config)


def test_every_workload_is_a_case() -> None:
    assert {case.partition(":")[0] for case in CASES} == set(BUILT_IN)
