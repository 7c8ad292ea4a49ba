from __future__ import annotations

import math

import pytest
import torch

from trainers.workloads.images.vision_transformer import VISION_TRANSFORMERS, VisionTransformer


def seeded(
    name: str = "vit-nano", *, image_size: int = 32, patch_size: int = 8, num_classes: int = 10
) -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(
        VISION_TRANSFORMERS[name], image_size=image_size, patch_size=patch_size, num_classes=num_classes
    )


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    # The papers say 5.7, 22 and 86 million; to the last one, those of timm's vit_*_patch16_224.
    [("vit-tiny", 5_717_416), ("vit-small", 22_050_664), ("vit-base", 86_567_656)],
)
def test_sizes_are_the_known_ones(name: str, num_parameters: int) -> None:
    with torch.device("meta"):  # without drawing as many numbers
        model = seeded(name, image_size=224, patch_size=16, num_classes=1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters


def test_parameters_have_the_names_they_have_in_timm() -> None:
    with torch.device("meta"):
        shapes = {name: tuple(parameter.shape) for name, parameter in seeded("vit-tiny").state_dict().items()}
    assert len(shapes) == 152
    assert shapes["cls_token"] == (1, 1, 192)
    assert shapes["pos_embed"] == (1, 17, 192)
    assert shapes["patch_embed.proj.weight"] == (192, 3, 8, 8)
    assert shapes["blocks.11.attn.qkv.weight"] == (576, 192)
    assert shapes["blocks.0.attn.proj.bias"] == (192,)
    assert shapes["blocks.0.mlp.fc1.weight"] == (768, 192)
    assert shapes["norm.bias"] == (192,)
    assert shapes["head.weight"] == (10, 192)


def test_the_untrained_model_is_indifferent() -> None:
    logits = seeded()(torch.randn(3, 3, 32, 32))
    assert logits.shape == (3, 10)
    assert not logits.any()


def test_weights_begin_as_in_the_paper() -> None:
    for name, parameter in seeded("vit-tiny").named_parameters():
        if name in ("cls_token", "head.weight") or name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        elif name == "pos_embed":
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05)
        elif name == "patch_embed.proj.weight":
            # 1/sqrt(fan-in); torch truncates at -2 and 2, far out.
            assert parameter.std().item() == pytest.approx(1 / math.sqrt(3 * 8 * 8), rel=0.05)
        else:
            parts = 3 if "qkv" in name else 1
            outputs, inputs = parameter.shape
            deviation = math.sqrt(2 / (outputs / parts + inputs))
            assert parameter.std().item() == pytest.approx(deviation, rel=0.05), name


def test_a_patch_is_seen_at_its_place_by_the_class_token() -> None:
    model = seeded()
    torch.nn.init.normal_(model.head.weight)
    image = torch.randn(1, 3, 32, 32)
    changed, moved = image.clone(), image.clone()
    changed[:, :, 8:16, 24:] += 1  # one patch
    moved[:, :, :8, :8], moved[:, :, -8:, -8:] = image[:, :, -8:, -8:], image[:, :, :8, :8]  # two, exchanged
    with torch.no_grad():
        logits = model(image)
        for other in (changed, moved):
            assert (model(other) - logits).abs().max() > 1e-4


def test_each_parameter_is_trained_once_the_head_is_not_zero() -> None:
    model = seeded()
    torch.nn.init.normal_(model.head.weight)
    torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.arange(4)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
