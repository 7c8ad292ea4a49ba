"""The options `width` and `depth` of the shipped workloads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.trainers.images.data import write_split_tree
from trainers.config import InvalidConfig
from trainers.identity.model import model_digest
from trainers.workloads.digits.autoencoder import DigitsAutoencoder
from trainers.workloads.images.resnet import RESNETS, resnet_shape
from trainers.workloads.images.vision_transformer import vision_transformer_shape
from trainers.workloads.language.stdlib_gpt import SHAPES, gpt_shape
from trainers.workloads.registry import load

NAMES = ("digits-mlp", "digits-autoencoder", "digits-convnet", "stdlib-gpt")
DEFAULTS = {"digits-mlp": (128, 2), "digits-autoencoder": (128, 4), "digits-convnet": (16, 3), "stdlib-gpt": (64, 2)}


def matrices(name: str, **options: Any) -> list[tuple[int, ...]]:
    with torch.device("meta"):
        model = load(name, options).build_model()
    return [tuple(parameter.shape) for parameter in model.parameters() if parameter.ndim >= 2]


@pytest.mark.parametrize("name", NAMES)
def test_a_models_own_width_and_depth_change_nothing(name: str) -> None:
    width, depth = DEFAULTS[name]
    with torch.device("meta"):
        same, plain = load(name, {"width": width, "depth": depth}).build_model(), load(name, {}).build_model()
    assert model_digest(same) == model_digest(plain)


@pytest.mark.parametrize("name", NAMES)
def test_eightfold_width_and_fourfold_depth_train(name: str) -> None:
    width, depth = DEFAULTS[name]
    plain, wide, deep = matrices(name), matrices(name, width=8 * width), matrices(name, depth=4 * depth)
    assert len(wide) == len(plain)
    assert max(map(max, wide)) == 8 * max(map(max, plain)) or name == "stdlib-gpt"  # a table of 256 bytes
    assert sorted(deep) != sorted(plain)
    assert len(deep) >= 2 * len(plain)
    workload = load(name, {"depth": 2 * depth})
    model = workload.build_model()
    loss = workload.loss(model, workload.batch(torch.arange(2)))  # type: ignore[attr-defined]  # of the protocol beside
    loss.backward()
    assert torch.isfinite(loss)


def test_layers_keep_their_proportion() -> None:
    assert load("digits-mlp", {"width": 32, "depth": 3}).hidden_sizes == (32, 32, 16)  # type: ignore[attr-defined]
    assert DigitsAutoencoder(size="tiny", width=64, depth=3).encoder_sizes == (64, 32, 8)
    assert gpt_shape("tiny", width=128, depth=5).num_heads == 2 * SHAPES["tiny"].num_heads
    assert resnet_shape("resnet50", width=128, depth=32).num_blocks == (6, 8, 12, 6)
    assert resnet_shape("resnet18", width=None, depth=None) == RESNETS["resnet18"]
    assert vision_transformer_shape("vit-tiny", width=384, depth=24).num_heads == 6


def test_a_folder_of_images_takes_them(tmp_path: Any) -> None:
    write_split_tree(tmp_path, num_train=2, num_validation=1, size=16)
    options = {"path": str(tmp_path), "architecture": "vit-nano", "image_size": 16, "width": 128, "depth": 2}
    shapes = matrices("image-folder", **options)
    assert (3 * 128, 128) in shapes
    assert shapes.count((3 * 128, 128)) == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digits-mlp", {"width": 0}, "width must be an integer >= 1, got 0"),
        ("digits-mlp", {"depth": 1, "hidden_sizes": []}, "depth has no effect without layers, got 1"),
        ("digits-convnet", {"width": 20}, "width must be a multiple of 8, got 20"),
        ("digits-convnet", {"depth": 2}, "depth must be an integer >= 3, got 2"),
        ("digits-autoencoder", {"depth": 1}, "depth must be an integer >= 2, got 1"),
        ("stdlib-gpt", {"width": 100}, "width must be a multiple of 16, got 100"),
        ("stdlib-gpt", {"depth": "4"}, "depth must be an integer >= 1, got '4'"),
        ("digits-mlp", {"depth": 10**9}, "must be at most 1000, got 1000000000"),
        ("digits-mlp", {"hidden_sizes": [1] * 1001}, "hidden_sizes must have at most 1,000 elements, got 1,001"),
    ],
)
def test_impossible_shapes_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load(name, options)
    assert message in caught.value.message
