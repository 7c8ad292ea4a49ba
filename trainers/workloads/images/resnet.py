"""Residual networks (He et al., arXiv 1512.03385): ResNet-18 and ResNet-50 for ImageNet, ResNet-20 for small images.

Parameters have the names that they have in torchvision, so that weights and layer-wise settings found elsewhere apply.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn import functional

from trainers.workloads.options import deepened, integer


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: (b, c, h, w) to (b, width, h / stride, w / stride)."""

    expansion = 1
    """Channels that come out, relative to `width`."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.bn2

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.relu(self.bn1(self.conv1(images)))
        hidden = self.bn2(self.conv2(hidden))
        return functional.relu(hidden + self.downsample(images))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut: (b, c, h, w) to (b, 4 width, h / stride, w / stride).

    The 3x3 convolution has the stride, not the first one as in the paper: "v1.5", half a percent more accurate.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        return self.bn3

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.relu(self.bn1(self.conv1(images)))
        hidden = functional.relu(self.bn2(self.conv2(hidden)))
        hidden = self.bn3(self.conv3(hidden))
        return functional.relu(hidden + self.downsample(images))


@dataclass(frozen=True, slots=True)
class ResNetShape:
    """The shape of a residual network."""

    block: type[BasicBlock | Bottleneck]
    num_blocks: Sequence[int]
    """Blocks of each stage; all stages but the first halve the image's sides and double the channels."""
    width: int
    """Channels of the first stage."""
    is_for_small_images: bool
    """True if the network begins with a 3x3 convolution, instead of shrinking the image to a quarter of its sides."""


RESNETS = {
    "resnet18": ResNetShape(BasicBlock, (2, 2, 2, 2), width=64, is_for_small_images=False),
    "resnet50": ResNetShape(Bottleneck, (3, 4, 6, 3), width=64, is_for_small_images=False),
    "resnet20": ResNetShape(BasicBlock, (3, 3, 3), width=16, is_for_small_images=True),
}
"""ResNet-20 is that of the paper's section 4.2, with projections where a shortcut changes shape."""


def resnet_shape(name: str, *, width: object, depth: object) -> ResNetShape:
    """The shape of that name, except for what is given: channels of the first stage, and blocks of all stages, which
    share them in their old proportion.

    Raises:
        ValueError: an option is no integer >= 1, or there are fewer blocks than the name says.
    """
    shape = RESNETS[name]
    if width is not None:
        shape = replace(shape, width=integer("width", width))
    if depth is not None:
        stages = range(len(shape.num_blocks))
        of_blocks = [stage for stage in stages for _ in range(shape.num_blocks[stage])]
        deep = deepened(of_blocks, depth, minimum=len(of_blocks))
        shape = replace(shape, num_blocks=tuple(deep.count(stage) for stage in stages))
    return shape


class ResNet(nn.Module):
    """Images (b, 3, h, w) to logits (b, num_classes).

    Convolutions begin as in He et al. (arXiv 1502.01852), by the number of outputs; the last normalisation of each
    block multiplies by 0 at first, so that blocks begin as identities (Goyal et al., arXiv 1706.02677).
    """

    def __init__(self, shape: ResNetShape, *, num_classes: int) -> None:
        super().__init__()
        if shape.is_for_small_images:
            self.conv1 = convolution(3, shape.width, 3)
            self.maxpool: nn.Module = nn.Identity()
        else:
            self.conv1 = convolution(3, shape.width, 7, 2)
            self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = nn.BatchNorm2d(shape.width)
        self.num_stages = len(shape.num_blocks)
        channels = shape.width
        for stage, num_blocks in enumerate(shape.num_blocks):
            width = shape.width * 2**stage
            blocks = []
            for index in range(num_blocks):
                blocks.append(shape.block(channels, width, stride=2 if stage > 0 and index == 0 else 1))
                channels = width * shape.block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, num_classes)
        self._initialise()

    @property
    def blocks(self) -> list[nn.Module]:
        """The residual blocks, in order."""
        return [
            block for stage in range(self.num_stages) for block in self.get_submodule(f"layer{stage + 1}").children()
        ]

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.maxpool(functional.relu(self.bn1(self.conv1(images))))
        for stage in range(self.num_stages):
            hidden = self.get_submodule(f"layer{stage + 1}")(hidden)
        logits: Tensor = self.fc(hidden.mean(dim=(2, 3)))
        return logits

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, BasicBlock | Bottleneck):
                nn.init.zeros_(module.last_norm.weight)


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """One that keeps the image's sides, but for the stride. No bias: a normalisation with one follows."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity, or where the shape changes a 1x1 convolution with normalisation."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(OrderedDict({"0": convolution(inputs, outputs, 1, stride), "1": nn.BatchNorm2d(outputs)}))
