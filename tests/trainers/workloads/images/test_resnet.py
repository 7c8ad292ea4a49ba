from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from trainers.workloads.images.resnet import RESNETS, BasicBlock, Bottleneck, ResNet


def seeded(name: str, num_classes: int = 10) -> ResNet:
    torch.manual_seed(0)
    return ResNet(RESNETS[name], num_classes=num_classes)


@pytest.mark.parametrize(
    ("name", "num_classes", "num_parameters"),
    # torchvision's models have so many; ResNet-20 the paper's 0.27 million, with projections.
    [("resnet18", 1000, 11_689_512), ("resnet50", 1000, 25_557_032), ("resnet20", 10, 272_474)],
)
def test_sizes_are_the_known_ones(name: str, num_classes: int, num_parameters: int) -> None:
    with torch.device("meta"):  # without drawing as many numbers
        model = seeded(name, num_classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters


def test_parameters_have_the_names_they_have_in_torchvision() -> None:
    with torch.device("meta"):
        shapes = {name: tuple(parameter.shape) for name, parameter in seeded("resnet50", 1000).state_dict().items()}
    # Some that a ResNet-50 checkpoint of torchvision has; it has 320 entries.
    assert len(shapes) == 320
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer1.0.downsample.0.weight"] == (256, 64, 1, 1)
    assert shapes["layer1.0.downsample.1.running_var"] == (256,)
    assert shapes["layer3.5.conv2.weight"] == (256, 256, 3, 3)
    assert shapes["layer4.2.bn3.weight"] == (2048,)
    assert shapes["fc.weight"] == (1000, 2048)


@pytest.mark.parametrize(
    ("name", "size", "after_blocks"),
    # Channels and sides after each block, from the papers' tables.
    [
        ("resnet18", 64, [(64, 16)] * 2 + [(128, 8)] * 2 + [(256, 4)] * 2 + [(512, 2)] * 2),
        ("resnet50", 64, [(256, 16)] * 3 + [(512, 8)] * 4 + [(1024, 4)] * 6 + [(2048, 2)] * 3),
        ("resnet20", 32, [(16, 32)] * 3 + [(32, 16)] * 3 + [(64, 8)] * 3),
    ],
)
def test_shapes_of_blocks_and_logits(name: str, size: int, after_blocks: list[tuple[int, int]]) -> None:
    model = seeded(name)
    shapes: list[tuple[int, ...]] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _module, _inputs, output: shapes.append(tuple(output.shape)))
    logits = model(torch.randn(2, 3, size, size))
    assert logits.shape == (2, 10)
    assert shapes == [(2, channels, side, side) for channels, side in after_blocks]


def test_the_stride_is_in_the_3x3_convolution() -> None:
    block = Bottleneck(64, 32, stride=2)
    assert [block.conv1.stride, block.conv2.stride, block.conv3.stride] == [(1, 1), (2, 2), (1, 1)]


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_block_begins_as_its_shortcut(block: type[BasicBlock | Bottleneck]) -> None:
    name = "resnet18" if block is BasicBlock else "resnet50"
    second = seeded(name).blocks[1]
    images = torch.rand(2, 64 * block.expansion, 4, 4)  # not negative, as after a ReLU
    torch.testing.assert_close(second(images), images, rtol=0, atol=0)


@pytest.mark.slow
def test_convolutions_begin_by_the_number_of_outputs() -> None:
    for name, module in seeded("resnet50").named_modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.weight.shape[0] * module.weight[0, 0].numel()
            # The deviation of n draws is off by 1/sqrt(2n): 1.1 % for the smallest, of 4,096 entries.
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.05), name
            assert module.bias is None


def test_each_parameter_gets_a_gradient_but_those_behind_the_zeros() -> None:
    model = seeded("resnet18")
    nn.functional.cross_entropy(model(torch.randn(4, 3, 32, 32)), torch.arange(4)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        # A block multiplies by 0 at first: that factor learns, and what is before it does from the second step on.
        is_before_zeros = any(part in name for part in ("conv2", "bn1", ".conv1")) and name.startswith("layer")
        assert bool(parameter.grad.any()) != is_before_zeros, name
