"""Architectures built by `transformers`: configs checked, local weights exact, nothing fetched, no code executed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.trainers import promises
from tests.support.waiting import PATIENCE_SECONDS
from tests.trainers.workloads.huggingface import test_huggingface
from tests.trainers.workloads.huggingface.test_huggingface import ATTENTION, BERT, LLAMA, NAME, RESNET, VIT
from trainers.config import InvalidConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.batches import train_batches
from trainers.workload.protocol import Workload
from trainers.workloads.huggingface.architecture import Architecture, quiet, transformers
from trainers.workloads.registry import load

GPT2 = {**test_huggingface.GPT2, "config": {**test_huggingface.GPT2["config"], "vocab_size": 260}}
"""With a vocabulary as any real model has it: larger than some tokenizer's."""


def build(options: Mapping[str, Any], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return load(NAME, {"max_validation_examples": 16, **options}).build_model()


def save(model: nn.Module, directory: Path, **options: Any) -> None:
    """Saves a model as the library does it."""
    with quiet():
        model.save_pretrained(directory, **options)  # type: ignore[operator]  # the library's own method


def saved(options: Mapping[str, Any], directory: Path) -> nn.Module:
    """A model that differs from every freshly drawn one, saved."""
    model = build(options, seed=7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    save(model, directory)
    return model


def check_equal(one: nn.Module, other: nn.Module) -> None:
    """Two models have the same weights, bit for bit and of the same dtype."""
    weights, others = one.state_dict(), other.state_dict()
    assert list(weights) == list(others)
    for name, weight in weights.items():
        assert weight.dtype == others[name].dtype
        assert torch.equal(weight, others[name]), name


def of_path(directory: Path, options: Mapping[str, Any], weights: str = "pretrained", **fields: Any) -> dict[str, Any]:
    kept = {name: value for name, value in options.items() if name not in ("architecture", "config")}
    return {**kept, "model_path": str(directory), "weights": weights, **fields}


def batches(workload: Workload, size: int) -> Iterator[Any]:
    """Those of one rank."""
    return train_batches(workload, batch_size=size, seed=0, rank=0, world_size=1, start_step=0)


def logits(model: nn.Module, options: Mapping[str, Any]) -> Tensor:
    workload = load(NAME, {**options, "max_validation_examples": 16})
    with torch.no_grad():
        found: Tensor = workload.logits_and_targets(model.eval(), next(batches(workload, 4)))[0]  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gpt2")
    saved(GPT2, directory)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("options", [GPT2, LLAMA, BERT, RESNET, VIT], ids=["gpt2", "llama", "bert", "resnet", "vit"])
def test_pretrained_weights_are_those_in_the_directory(options: dict[str, Any], tmp_path: Path) -> None:
    original = saved(options, tmp_path)
    loaded = build(of_path(tmp_path, options), seed=1)
    assert loaded.training
    check_equal(original, loaded)
    assert torch.equal(logits(original, options), logits(loaded, options))


@pytest.mark.slow
def test_random_weights_take_only_the_shape_from_the_directory(gpt2: Path) -> None:
    # The config of the directory: the same draw as from the options it was written from.
    check_equal(build(of_path(gpt2, GPT2, weights="random"), seed=3), build(GPT2, seed=3))


@pytest.mark.slow
def test_another_task_takes_the_base_model_and_draws_its_head(gpt2: Path) -> None:
    options = of_path(gpt2, {"task": "sequence-classification", "context_length": 32}, tokenizer="byte")
    one, other = (build(options, seed) for seed in (1, 2))
    embedding, head = "transformer.wte.weight", "score.weight"
    assert torch.equal(one.get_parameter(embedding), other.get_parameter(embedding))
    assert not torch.equal(one.get_parameter(head), other.get_parameter(head))


@pytest.mark.slow
def test_a_config_that_does_not_fit_the_weights_is_refused(gpt2: Path) -> None:
    for config, name in (({"n_embd": 64}, "transformer.h.0.attn"), ({"n_layer": 3}, "transformer.h.2")):
        with pytest.raises(ValueError, match=rf"weights of GPT2LMHeadModel are missing or have .*e.g. {name}"):
            build(of_path(gpt2, GPT2, config=config))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_in_several_files_are_read_and_trained_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    model = build(GPT2, seed=7).to(dtype)
    save(model, tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    check_equal(model.float(), build(of_path(tmp_path, GPT2)))


@pytest.mark.slow
def test_training_begins_at_the_weights_of_the_directory(tmp_path: Path) -> None:
    # The model is trained, saved and trained on: it begins where it ended.
    options = {**GPT2, "max_validation_examples": 16}
    workload = load(NAME, options)
    torch.manual_seed(0)
    model = workload.build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for batch in islice(batches(workload, 16), 40):
        optimizer.zero_grad()
        loss = workload.loss(model, batch)
        loss.backward()
        optimizer.step()
    save(model, tmp_path)
    measured = {}
    for weights in ("random", "pretrained"):
        config = promises.trial(NAME, of_path(tmp_path, options, weights), num_steps=1, evaluate_every=1)
        (measurement,) = train(config, single_process_context())
        measured[weights] = measurement.metrics["train_loss"]
    assert measured["random"] > 5.0
    assert measured["pretrained"] == pytest.approx(loss.item(), rel=0.2)  # of another batch


@pytest.mark.slow
def test_a_tokenizer_beside_the_weights_is_used(gpt2: Path, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    shutil.copytree(gpt2, tmp_path, dirs_exist_ok=True)
    words = {word: number for number, word in enumerate(["[UNK]", "def", "self", "return", "import", "<|endoftext|>"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    workload = load(NAME, of_path(tmp_path, GPT2))
    (batch,) = next(batches(workload, 64))
    assert set(batch.unique().tolist()) <= set(range(6))
    assert {1, 2, 3} <= set(batch.unique().tolist())
    # The weights' own vocabulary stays, larger than the tokenizer's.
    assert workload.build_model().transformer.wte.weight.shape == (260, 32)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "evil.Evil"}}, r"names code .*auto_map.*evil.Evil.*refused"),
        ({"task_specific_params": {"x": [{"auto_map": {}}]}}, r"names code .*auto_map"),
        ({"attn_implementation": "someone/kernels"}, r"names kernels .*someone/kernels"),
        ({"_attn_implementation": {"": "someone/kernels"}}, r"names kernels .*someone/kernels"),
        ({"quantization_config": {"quant_method": "gptq"}}, r"is of quantized weights .*gptq"),
        ({"model_type": "evil"}, r"architecture must be one of the \d+ of transformers.*got 'evil'"),
        ({"model_type": None}, r"architecture must be one of .*got None"),
        ({"model_type": ["gpt2"]}, r"architecture must be one of .*got \['gpt2'\]"),
    ],
)
def test_a_directory_that_names_code_is_refused(
    gpt2: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    shutil.copytree(gpt2, tmp_path, dirs_exist_ok=True)
    marker = tmp_path / "executed"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')\nclass Evil: pass\n")
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, **change}))
    for weights in ("random", "pretrained"):
        with pytest.raises(InvalidConfig, match=message):
            load(NAME, of_path(tmp_path, GPT2, weights))
    assert not marker.exists()


def test_pickled_weights_are_not_read(gpt2: Path, tmp_path: Path) -> None:
    shutil.copy(gpt2 / "config.json", tmp_path)
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(marker),)

    torch.save({"transformer.wte.weight": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InvalidConfig, match=r"has no model.safetensors; weights in other formats are not read"):
        load(NAME, of_path(tmp_path, GPT2))
    # Nor where an index points at them, or elsewhere.
    files = ("pytorch_model.bin", "../model.safetensors", "/tmp/model.safetensors", None)
    named = [({"transformer.wte.weight": file}, f"names {file!r}; only safetensors files beside it") for file in files]
    for weight_map, message in [*named, ({}, "has no weight_map")]:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        with pytest.raises(InvalidConfig, match=rf"index.json {message}"):
            load(NAME, of_path(tmp_path, GPT2))
    assert not marker.exists()


def test_damaged_files_of_a_directory_are_named(gpt2: Path, tmp_path: Path) -> None:
    for config, weights, message in (
        (None, "pretrained", r"model_path .* has no config.json"),
        ("{", "pretrained", r"model_path .* has no model.safetensors"),
        ("{", "random", r"config.json is not JSON"),
        ("[]", "random", r"config.json must hold an object, got \[\]"),
    ):
        if config is not None:
            (tmp_path / "config.json").write_text(config)
        with pytest.raises(InvalidConfig, match=message):
            load(NAME, of_path(tmp_path, GPT2, weights))
    shutil.copy(gpt2 / "config.json", tmp_path)
    content = (gpt2 / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=rf"model_path {tmp_path}: the weights cannot be read"):
        build(of_path(tmp_path, GPT2))
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    with pytest.raises(InvalidConfig, match=r"holds an adapter of another model"):
        load(NAME, of_path(tmp_path, GPT2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "gtp2"}, r"architecture must be one of the \d+ .* causal-lm \(e.g. gpt2.*got 'gtp2'"),
        ({"architecture": "resnet"}, r"architecture must be one of the \d+ .* causal-lm .*got 'resnet'"),
        ({"architecture": 3}, r"architecture must be one of .*got 3"),
        ({"config": [1]}, r"config must be an object, got \[1\]"),
        ({"config": {"n_layers": 2}}, r"config.n_layers: GPT2Config has no such field \(known: .*n_layer,.*got 2"),
        ({"config": {"auto_map": {}}}, r"config.auto_map: GPT2Config has no such field"),
        ({"config": {"num_labels": 5}}, r"config.num_labels follows from the task and the data, got 5"),
        ({"config": {"vocab_size": 100}}, r"config.vocab_size must be at least the tokenizer's 256, got 100"),
        ({"config": {"n_layer": "two"}}, r"refuses this config of gpt2: .*'n_layer' expected int, got str"),
        ({"config": {"n_embd": 30, "n_head": 4}}, r"refuses this config of gpt2: .*divisible"),
        ({"config": {"activation_function": "nope"}}, r"refuses this config of gpt2: KeyError: 'nope'"),
        ({"weights": "pretrained"}, r"model_path must be given with weights 'pretrained', got None"),
        ({"weights": "zero"}, r"weights must be one of random, pretrained, got 'zero'"),
        ({"model_path": "gpt2"}, r"either architecture or model_path must be given, got 'gpt2' and 'gpt2'"),
        (
            {"architecture": None, "model_path": "openai/gpt2"},
            r"model_path must be a local directory, got 'openai/gpt2'",
        ),
    ],
)
def test_a_wrong_architecture_is_refused_with_its_name_and_value(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load(NAME, {**GPT2, **fields})


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "bart"])
def test_language_models_do_not_see_what_they_predict(architecture: str) -> None:
    shape = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 2} if architecture == "bart" else ATTENTION
    model = build({"architecture": architecture, "config": shape, "context_length": 16}).eval()
    tokens = torch.randint(5, 250, (1, 16))
    changed = tokens.clone()
    changed[0, 9:] = 4
    with torch.no_grad():
        before, after = (model(input_ids=ids).logits[0, :9] for ids in (tokens, changed))
    torch.testing.assert_close(before, after)


def test_a_model_that_sees_what_it_predicts_is_refused() -> None:
    xlnet = {"architecture": "xlnet", "config": {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64}}
    with pytest.raises(ValueError, match=r"architecture xlnet sees the tokens .* choose a decoder"):
        build({**xlnet, "context_length": 16})


@pytest.mark.slow
def test_parameters_without_a_part_in_the_task_are_frozen() -> None:
    # BART's decoder has attention to an encoder that a language model does not have; DINOv2 masks in pretraining only.
    bart = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 64}
    dino = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4, "image_size": 16}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"architecture": "bart", "config": bart, "context_length": 16}, "encoder_attn"),
        ({"task": "image-classification", "architecture": "dinov2", "config": dino}, "mask_token"),
    ]
    for options, part in cases:
        workload = load(NAME, options)
        model = workload.build_model()
        workload.loss(model, next(batches(workload, 2))).backward()
        for name, parameter in model.named_parameters():
            assert parameter.requires_grad == (part not in name)
            assert (parameter.grad is not None) == parameter.requires_grad


@pytest.mark.slow
def test_experts_are_trained() -> None:
    # Whose shapes are only known in bfloat16, while they train in float32.
    config = {**ATTENTION, "num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 1}
    model = build({"architecture": "mixtral", "config": config, "context_length": 16})
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.fixture
def caught_logs() -> Iterator[list[str]]:
    """The library's log above its debugging; it does not propagate, so that pytest's own fixture sees nothing."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = logging.getLogger("transformers"), Handler()
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


@pytest.mark.slow
def test_building_and_loading_say_nothing(
    gpt2: Path, caught_logs: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    verbosity = transformers().utils.logging.get_verbosity()
    build(of_path(gpt2, {"task": "sequence-classification", "context_length": 32}, tokenizer="byte"))
    build({"architecture": "llama", "config": {**ATTENTION, "pad_token_id": 0}})
    assert caught_logs == []
    assert capfd.readouterr() == ("", "")
    assert transformers().utils.logging.get_verbosity() == verbosity
    assert transformers().utils.logging.is_progress_bar_enabled()


@pytest.mark.processes
def test_nothing_is_fetched(gpt2: Path) -> None:
    # In a process of its own, where every connection fails loudly, the hub is not switched off, and its library is
    # imported before this project's.
    script = f"""
import os, socket, sys
def refuse(*arguments, **named):
    sys.stderr.write("a connection was asked for: " + repr(arguments) + "\\n")
    os._exit(9)
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
import huggingface_hub, transformers
import torch
from trainers.config import InvalidConfig
from trainers.workload.batches import train_batches
from trainers.workloads.registry import load
from huggingface_hub import constants
assert not constants.HF_HUB_OFFLINE
local = {{"model_path": {str(gpt2)!r}, "weights": "pretrained"}}
for options in (local, {{"architecture": "llama", "config": {ATTENTION!r}}}):
    workload = load("huggingface", options)
    workload.loss(workload.build_model(), next(train_batches(
        workload, batch_size=2, seed=0, rank=0, world_size=1, start_step=0))).backward()
assert constants.HF_HUB_OFFLINE and os.environ["HF_HUB_OFFLINE"] == "1"
hub = "openai-community/gpt2"
for options in ({{"model_path": hub, "weights": "pretrained"}}, {{"architecture": hub}}):
    try:
        load("huggingface", options)
    except InvalidConfig:
        continue
    raise AssertionError(options)
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=environment,
        timeout=PATIENCE_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_an_architecture_takes_one_source() -> None:
    with pytest.raises(ValueError, match="either architecture or model_path must be given, got None and None"):
        Architecture(
            task="causal-lm",
            architecture=None,
            config={},
            model_path=None,
            weights="random",
            required={},
            inputs=dict,
        )
