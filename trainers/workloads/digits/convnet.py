"""A small convolutional network that classifies the handwritten digits."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from trainers.workloads.digits.digits import NUM_CLASSES, DigitsClassification, digits
from trainers.workloads.options import OptionRefused, deepened, shape_of_size, widened

CHANNELS = {"tiny": (16, 32, 64), "small": (32, 64, 128)}
"""Output channels of the convolutions."""

CHANNELS_PER_GROUP = 8
"""Channels in each group of the normalisation."""
NUM_STAGES = 3
"""Sizes of the image: 8x8, 4x4 and 2x2."""


class DigitsConvnet(DigitsClassification):
    """A convolutional network that classifies the digits; cross-entropy loss."""

    def __init__(
        self, *, size: str, label_smoothing: float, width: int | None = None, depth: int | None = None
    ) -> None:
        self.channels = widened(shape_of_size(size, CHANNELS), width)
        if self.channels[0] % CHANNELS_PER_GROUP != 0:
            raise OptionRefused("width", f"must be a multiple of {CHANNELS_PER_GROUP}, got {width}")
        self.stages = deepened(range(NUM_STAGES), depth, minimum=NUM_STAGES)
        """Of each convolution."""
        pixels = digits().train_pixels
        # One mean and deviation for all pixels: a convolution treats all places alike, and standardising each pixel
        # would blow up the margins, where ink is rare.
        mean, deviation = pixels.mean(), pixels.std(correction=0)
        super().__init__(
            train_images=(pixels - mean) / deviation,
            validation_images=(digits().validation_pixels - mean) / deviation,
            label_smoothing=label_smoothing,
        )

    def build_model(self) -> nn.Module:
        """3x3 convolutions at 8x8, 4x4 and 2x2 pixels, the mean over pixels, and a linear layer.

        The parameters are those of `convolution0`, `norm0`, ..., `output`. Normalisation is by groups of channels
        within each image, not by batch: a rank's batch is its share of the global one, so batch statistics would make
        the model depend on the number of ranks, and with small shares be mostly noise.
        """
        layers: OrderedDict[str, nn.Module] = OrderedDict(images=nn.Unflatten(1, (1, 8, 8)))
        inputs, last_stage = 1, 0
        for index, stage in enumerate(self.stages):
            outputs, stride = self.channels[stage], 1 if stage == last_stage else 2
            last_stage = stage
            # No bias: the normalisation has one.
            layers[f"convolution{index}"] = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
            layers[f"norm{index}"] = nn.GroupNorm(outputs // CHANNELS_PER_GROUP, outputs)
            layers[f"relu{index}"] = nn.ReLU()
            inputs = outputs
        layers["mean"] = nn.AdaptiveAvgPool2d(1)
        layers["flat"] = nn.Flatten()
        layers["output"] = nn.Linear(inputs, NUM_CLASSES)
        return nn.Sequential(layers)
