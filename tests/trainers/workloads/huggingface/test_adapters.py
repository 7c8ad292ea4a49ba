"""Low-rank adapters: where they are, what is trained beside them, and the same training alone, resumed, on ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.trainers import promises
from tests.support.trainers.ranks import WarmRanks
from tests.trainers.workloads.huggingface.test_huggingface import BERT, GPT2, LLAMA, NAME, RESNET, VIT, options
from trainers.config import InvalidConfig, OptimizerConfig, ParallelismConfig, TrialConfig
from trainers.loop import train
from trainers.memory.prediction import needs_of
from trainers.optimizers import parameter_groups
from trainers.ranks.context import single_process_context
from trainers.trial import build_trial
from trainers.workload.batches import train_batches
from trainers.workloads.registry import load

LORA_RITE = OptimizerConfig("lora-rite", {"lr": 3e-3, "weight_decay": 0.1})


def build(fields: dict[str, Any], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return load(NAME, {"max_validation_examples": 16, **fields}).build_model()


def adapted(model: nn.Module) -> set[str]:
    """The names of the layers that have an adapter."""
    return {name.partition(".lora_A")[0] for name, _ in model.named_parameters() if ".lora_A." in name}


def scale(model: nn.Module, layer: str) -> float:
    """The factor of an adapter's output."""
    by_adapter: Any = model.get_submodule(layer).scaling
    return float(by_adapter["default"])


def of_gpt2(**fields: Any) -> dict[str, Any]:
    return options("gpt2", lora_rank=2, **fields)


def test_linear_layers_get_one_and_all_else_is_frozen() -> None:
    model = build({**GPT2, "lora_rank": 3})
    layers = {
        f"transformer.h.{i}.{name}" for i in (0, 1) for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    }
    assert adapted(model) == layers
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert set(trained) == {f"{layer}.{factor}.default.weight" for layer in layers for factor in ("lora_A", "lora_B")}
    assert trained["transformer.h.0.attn.c_attn.lora_A.default.weight"].shape == (3, 32)
    assert trained["transformer.h.0.attn.c_attn.lora_B.default.weight"].shape == (96, 3)


@pytest.mark.parametrize(
    ("fields", "head"),
    [(BERT, "classifier"), (VIT, "classifier"), ({**GPT2, "task": "sequence-classification"}, "score")],
)
def test_the_head_of_a_classifier_is_trained_whole(fields: dict[str, Any], head: str) -> None:
    model = build({**fields, "lora_rank": 2})
    assert head not in adapted(model)
    whole = {name for name, p in model.named_parameters() if p.requires_grad and "lora_" not in name}
    assert whole == {name for name, _ in model.named_parameters() if name.startswith(f"{head}.")}


def test_a_model_begins_as_it_is_without_them() -> None:
    workload = load(NAME, of_gpt2())
    batch = next(train_batches(workload, batch_size=4, seed=0, rank=0, world_size=1, start_step=0))
    losses = [float(workload.loss(build(fields).eval(), batch).detach()) for fields in (GPT2, {**GPT2, "lora_rank": 2})]
    assert losses[0] == losses[1]


def test_the_targets_and_the_scale_are_the_options() -> None:
    model = build({**LLAMA, "lora_rank": 2, "lora_alpha": 3.0, "lora_targets": ["q_proj", "down_proj"]})
    found = {f"model.layers.{i}.{name}" for i in (0, 1) for name in ("self_attn.q_proj", "mlp.down_proj")}
    assert adapted(model) == found
    assert {scale(model, name) for name in found} == {1.5}
    plain = build({**LLAMA, "lora_rank": 2})
    assert scale(plain, "model.layers.0.self_attn.q_proj") == 1


def test_convolutions_and_tables_get_one_where_they_are_named() -> None:
    convnet = build({**RESNET, "lora_rank": 2, "lora_targets": ["convolution"]})
    assert len(adapted(convnet)) > 2
    workload = load(NAME, {**GPT2, "lora_rank": 2, "lora_targets": ["wte", "c_attn"]})
    groups = parameter_groups(workload, workload.build_model(), LORA_RITE)
    assert [tuple(p.shape) for p in groups[0]["params"]][:2] == [(2, 256), (32, 2)]


@pytest.mark.slow
def test_shapes_without_data_are_those_of_the_model() -> None:
    with torch.device("meta"):
        meta = build({**BERT, "lora_rank": 2})
    for (name, one), (other_name, other) in zip(
        meta.named_parameters(), build({**BERT, "lora_rank": 2}).named_parameters(), strict=True
    ):
        assert (name, one.shape, one.requires_grad) == (other_name, other.shape, other.requires_grad)
        assert one.is_meta


@pytest.mark.parametrize("optimizer", [LORA_RITE, OptimizerConfig("adamw", {"lr": 1e-3})], ids=lambda one: one.name)
def test_what_a_trial_needs_is_predicted(optimizer: OptimizerConfig) -> None:
    config = promises.trial(NAME, of_gpt2(), optimizer=optimizer)
    trial = build_trial(config, load(NAME, of_gpt2()), single_process_context())
    trained = [p for p in trial.parallel.model.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    trial.optimizer.step()
    state = sum(
        value.nbytes for kept in trial.optimizer.state.values() for value in kept.values() if isinstance(value, Tensor)
    )
    needs = needs_of(config)
    assert (needs.optimizer, needs.gradients, needs.scratch) == (state, sum(p.nbytes for p in trained), 0)


@pytest.mark.slow
def test_lora_rite_goes_on_bit_for_bit(tmp_path: Path) -> None:
    promises.assert_resume_is_bit_identical(NAME, of_gpt2(max_validation_examples=8), LORA_RITE, tmp_path)


def test_lora_rite_of_two_ranks_is_that_of_one(two_ranks: WarmRanks) -> None:
    fields = options("bert", lora_rank=2)
    promises.assert_one_rank_equals_two(NAME, fields, two_ranks, optimizer=LORA_RITE)


@pytest.mark.parametrize("mode", ["fsdp2", "simple_fsdp"])
def test_adapters_beside_frozen_weights_are_sharded(mode: Any, two_ranks: WarmRanks) -> None:
    sharding = ParallelismConfig(mode=mode)
    promises.assert_one_rank_equals_two(NAME, of_gpt2(), two_ranks, parallelism=sharding)


@pytest.mark.slow
def test_lora_rite_is_ahead_of_adamw_at_this_learning_rate() -> None:
    losses = {}
    for name in ("lora-rite", "adamw"):
        config = TrialConfig(
            workload=NAME,
            workload_options={"task": "image-classification", "lora_rank": 4},
            optimizer=OptimizerConfig(name, {"lr": 1e-2}),
            num_steps=60,
            evaluate_every=60,
            batch_size=32,
        )
        [measured] = train(config, single_process_context())
        losses[name] = measured.metrics["validation_loss"]
    assert losses["lora-rite"] < losses["adamw"] < 2.3  # ln 10, of a guess


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lora_rank": 0}, "lora_rank must be an integer >= 1, got 0"),
        ({"lora_alpha": 2}, "lora_alpha has no effect without lora_rank, got 2"),
        ({"lora_targets": ["c_attn"]}, r"lora_targets has no effect without lora_rank, got \['c_attn'\]"),
        ({"lora_rank": 2, "lora_alpha": 0}, "lora_alpha must be a number > 0, got 0"),
        ({"lora_rank": 2, "lora_alpha": float("inf")}, "lora_alpha must be a number > 0, got inf"),
        ({"lora_rank": 2, "lora_targets": []}, r"lora_targets must be a list of names .*got \[\]"),
        ({"lora_rank": 2, "lora_targets": "c_attn"}, "lora_targets must be a list of names .*got 'c_attn'"),
        ({"lora_rank": 2, "lora_targets": [1]}, r"lora_targets\[0\] must be a string that is not empty, got 1"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_value(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load(NAME, fields)


def test_layers_that_cannot_have_one_are_refused_with_those_that_can() -> None:
    for fields, option, message in (
        ({**GPT2, "lora_targets": ["c_attn", "q_proj"]}, "targets", r"no layer 'q_proj' .*\(known: wte, wpe, c_attn"),
        (RESNET, "rank", "ResNetForImageClassification has no linear layer but its head, got 33: set lora_targets"),
        (GPT2, "rank", "must be at most 32, the largest rank that weights of these layers can have, got 33"),
    ):
        config = promises.trial(NAME, {**fields, "lora_rank": 33})
        with pytest.raises(InvalidConfig, match=message) as caught:
            needs_of(config)
        assert caught.value.field == f"workload_options.lora_{option}"


def test_lora_rite_is_refused_without_adapters() -> None:
    for name, given in ((NAME, GPT2), ("digits-mlp", {})):
        config = promises.trial(name, given, optimizer=LORA_RITE)
        with pytest.raises(InvalidConfig, match=r"no trained pair of low-rank factors.*option lora_rank") as caught:
            needs_of(config)
        assert caught.value.field == "optimizer.name"
    with pytest.raises(InvalidConfig, match="must be ddp with lora-rite, which steps whole parameters, got 'fsdp2'"):
        promises.trial(NAME, of_gpt2(), optimizer=LORA_RITE, parallelism=ParallelismConfig(mode="fsdp2"))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "peft"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "peft", None)  # what an import finds of a package that is not there
    load(NAME, {})
    with pytest.raises(InvalidConfig, match=r"lora_rank needs peft, which is not installed.*shampoo-tuner\[lora\]"):
        load(NAME, {"lora_rank": 2})
