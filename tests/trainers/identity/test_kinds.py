"""The kinds of parameters: names in a file tell what the modules of published architectures tell."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn

from trainers.identity.kinds import parameter_of_name
from trainers.identity.safetensors_header import shape_of_safetensors
from trainers.identity.shape import model_shape
from trainers.identity.values import ParameterShape

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
OF_WORDS = {**SMALL, "vocab_size": 90}
IMAGES = {**SMALL, "image_size": 32, "patch_size": 8}
ENCODER_DECODER = {
    "vocab_size": 90,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2": ("LMHeadModel", {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 90, "n_positions": 16}),
    "Llama": ("ForCausalLM", OF_WORDS),
    "Mixtral": ("ForCausalLM", {**OF_WORDS, "num_key_value_heads": 2, "num_local_experts": 4}),
    "Bert": ("ForMaskedLM", OF_WORDS),
    "Albert": ("ForMaskedLM", {**OF_WORDS, "embedding_size": 16}),
    "Electra": ("ForPreTraining", {**OF_WORDS, "embedding_size": 16}),
    "MPNet": ("ForMaskedLM", OF_WORDS),
    "T5": (
        "ForConditionalGeneration",
        {"vocab_size": 90, "d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 1, "num_heads": 2},
    ),
    "Bart": ("ForConditionalGeneration", {**ENCODER_DECODER, **TOKENS, "max_position_embeddings": 16}),
    "Mamba": ("ForCausalLM", {"hidden_size": 32, "num_hidden_layers": 1, "vocab_size": 90, "state_size": 4}),
    "ViT": ("ForImageClassification", IMAGES),
    "Dinov2": ("ForImageClassification", IMAGES),
    "Beit": ("ForImageClassification", {**IMAGES, "use_relative_position_bias": True}),
    "Swin": ("ForImageClassification", {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "image_size": 32}),
    "ResNet": ("ForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}),
    "ConvNextV2": ("ForImageClassification", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}),
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    """The library: a second that every process of a run would pay for an import at the top of this file."""
    return pytest.importorskip("transformers")


def build(transformers: Any, name: str) -> nn.Module:
    task, settings = ARCHITECTURES[name]
    config = getattr(transformers, f"{name}Config")(**settings)
    model: nn.Module = getattr(transformers, f"{name}{task}")(config)
    return model


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_a_file_tells_the_kinds_that_the_modules_tell(tmp_path: Path, transformers: Any, name: str) -> None:
    model = build(transformers, name)
    save_model(model, str(tmp_path / "weights.safetensors"))
    assert shape_of_safetensors(tmp_path / "weights.safetensors").shape == model_shape(model)


@pytest.mark.parametrize("name", ["Llama", "GPT2"])
def test_the_outputs_of_a_linear_layer_come_first_however_its_class_keeps_them(
    tmp_path: Path, transformers: Any, name: str
) -> None:
    model = build(transformers, name)
    layers = [module for name, module in model.named_modules() if "head" not in name]
    sizes = Counter(
        (module.nf, module.nx) if isinstance(module, transformers.pytorch_utils.Conv1D) else tuple(module.weight.shape)
        for module in layers
        if isinstance(module, nn.Linear | transformers.pytorch_utils.Conv1D)
    )
    assert any(outputs != inputs for outputs, inputs in sizes)
    save_model(model, str(tmp_path / "weights.safetensors"))
    for shape in (model_shape(model), shape_of_safetensors(tmp_path / "weights.safetensors").shape):
        found = {one.shape: one.count for one in shape.parameters if one.kind == "linear" and 90 not in one.shape}
        assert found == sizes


def test_weights_without_a_bias_are_taken_as_torch_has_them(tmp_path: Path) -> None:
    """As those of nanoGPT, which calls its layers as GPT-2 does."""
    for bias, expected in (({}, (12, 4)), ({"attn.c_attn.bias": torch.ones(12)}, (12, 4))):
        save_file({"attn.c_attn.weight": torch.ones(12, 4), **bias}, tmp_path / "nano.safetensors")
        (linear, *_) = shape_of_safetensors(tmp_path / "nano.safetensors").shape.parameters
        assert linear == ParameterShape("linear", expected, 1)


@pytest.mark.parametrize("name", ["ViT", "Dinov2", "Beit", "Swin", "Mixtral", "ConvNextV2"])
def test_only_weights_of_convolutions_are_kernels(transformers: Any, name: str) -> None:
    model = build(transformers, name)
    kernels = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    assert sum(one.count for one in model_shape(model).parameters if one.kind == "convolution") == kernels


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        # as timm, torchvision, OpenAI's CLIP and minGPT have them
        ("pos_embed", (1, 197, 768), ("embedding", (197, 768), 1)),
        ("cls_token", (1, 1, 768), ("vector", (768,), 1)),
        ("reg_token", (1, 4, 768), ("embedding", (4, 768), 1)),
        ("image_encoder.pos_embed", (1, 64, 64, 768), ("embedding", (4096, 768), 1)),
        ("patch_embed.proj.weight", (768, 3, 16, 16), ("convolution", (768, 3, 16, 16), 1)),
        ("blocks.0.attn.rel_pos_h", (27, 64), ("linear", (27, 64), 1)),
        ("layers.0.blocks.0.attn.relative_position_bias_table", (169, 3), ("embedding", (169, 3), 1)),
        ("encoder.pos_embedding", (1, 197, 768), ("embedding", (197, 768), 1)),
        ("class_token", (1, 1, 768), ("vector", (768,), 1)),
        ("visual.positional_embedding", (50, 768), ("embedding", (50, 768), 1)),
        ("text_projection", (512, 512), ("linear", (512, 512), 1)),
        ("pos_emb", (1, 128, 512), ("embedding", (128, 512), 1)),
        # what must stay: kernels with one output or input, layers with one output, heads of language models
        ("head.weight", (1, 64, 3, 3), ("convolution", (1, 64, 3, 3), 1)),
        ("depthwise.weight", (64, 1, 7, 7), ("convolution", (64, 1, 7, 7), 1)),
        ("score.weight", (1, 768), ("linear", (1, 768), 1)),
        ("embed_out.weight", (90, 32), ("linear", (90, 32), 1)),
        ("embedding_bags.3.weight", (90, 32), ("embedding", (90, 32), 1)),
        ("time_embedding.linear_1.weight", (320, 1280), ("linear", (320, 1280), 1)),
        ("shared.weight", (32, 32), ("linear", (32, 32), 1)),
    ],
)
def test_a_name_and_sizes_tell_the_parameter(
    name: str, shape: tuple[int, ...], expected: tuple[Any, tuple[int, ...], int]
) -> None:
    assert parameter_of_name(name, shape) == ParameterShape(*expected)
