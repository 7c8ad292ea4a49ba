"""A deep autoencoder of the handwritten digits: the classic task of second-order optimization.

Eight layers with a narrow code in the middle make a badly conditioned problem, on which first-order methods are slow.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.workloads.digits.digits import NUM_PIXELS, digits
from trainers.workloads.options import deepened, integer, shape_of_size, widened

ENCODER_SIZES = {"tiny": (128, 64, 32, 8), "small": (512, 256, 128, 16)}
"""Units of the encoder's layers, the code last; the decoder is its mirror image."""


class DigitsAutoencoder:
    """Reproduces the images through a narrow code.

    The pixels are taken as probabilities of ink. The loss is the Kullback-Leibler divergence of the reconstruction,
    summed over pixels (nats per image): the Bernoulli cross-entropy less the entropy of the image. That has the
    cross-entropy's gradient, and 0 is a perfect reconstruction.
    """

    def __init__(self, *, size: str, width: int | None = None, depth: int | None = None) -> None:
        *hidden, code = shape_of_size(size, ENCODER_SIZES)
        if depth is not None:
            depth = integer("depth", depth, minimum=2) - 1
        self.encoder_sizes = (*deepened(widened(hidden, width), depth), code)
        self._digits = digits()

    def build_model(self) -> nn.Module:
        """Pixels (b, 64) to logits (b, 64); layers `encoder0`, ..., `code`, `decoder0`, ..., `output`.

        Hidden layers are tanh and the code is linear; Glorot's initialisation keeps the variance through the depth.
        """
        sizes = (NUM_PIXELS, *self.encoder_sizes, *reversed(self.encoder_sizes[:-1]), NUM_PIXELS)
        depth = len(self.encoder_sizes)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for index, (inputs, outputs) in enumerate(pairwise(sizes)):
            linear = nn.Linear(inputs, outputs)
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
            if index == depth - 1:
                layers["code"] = linear
            elif index == 2 * depth - 1:
                layers["output"] = linear
            else:
                half, number = ("encoder", index) if index < depth else ("decoder", index - depth)
                layers[f"{half}{number}"] = linear
                layers[f"{half}_tanh{number}"] = nn.Tanh()
        return nn.Sequential(layers)

    @property
    def num_train_examples(self) -> int:
        return len(self._digits.train_pixels)

    def batch(self, indices: Tensor) -> Tensor:
        """Pixels (b, 64) float32 in [0, 1]."""
        return self._digits.train_pixels[indices]

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """Nats per image."""
        assert isinstance(batch, Tensor)
        return divergence(model(batch), batch) / len(batch)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """Metrics on every `world_size`-th image: `validation_loss` (nats per image) and `validation_squared_error`
        (summed over the image's pixels)."""
        pixels = self._digits.validation_pixels[rank::world_size].to(device)
        logits = model(pixels)
        squared_error = functional.mse_loss(logits.sigmoid(), pixels, reduction="sum")
        return {
            "validation_loss": (divergence(logits, pixels).item(), float(len(pixels))),
            "validation_squared_error": (squared_error.item(), float(len(pixels))),
        }


def divergence(logits: Tensor, pixels: Tensor) -> Tensor:
    """The Kullback-Leibler divergence from `pixels` (probabilities) to `logits.sigmoid()`, in nats, summed: a scalar.

    Both (b, 64) float32.
    """
    entropy = torch.special.entr(pixels) + torch.special.entr(1 - pixels)
    cross_entropy = functional.binary_cross_entropy_with_logits(logits, pixels, reduction="none")
    total: Tensor = (cross_entropy - entropy).sum()
    return total
