"""Handwritten digits: the 1,797 grey 8x8 images that ship inside scikit-learn. Real data, no download.

The data, what the workloads that classify them share, and the multi-layer perceptron; the other models have files of
their own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.workloads.digits.data import read_digits, stratified_split
from trainers.workloads.options import deepened, integers, share, widened

NUM_PIXELS = 64
NUM_CLASSES = 10
MAX_PIXEL = 16
"""All three are of the images as scikit-learn gives them."""

Images: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

SPLIT_SEED = 0
"""Fixed, and not the trial's seed: all trials are compared on the same validation images."""
NUM_VALIDATION = 360
"""A fifth."""


@dataclass(frozen=True, slots=True)
class Digits:
    """The images, cut in two."""

    train_pixels: Tensor
    """(1437, 64) float32: the share of ink, in [0, 1]; rows of the image one after the other."""
    train_images: Tensor
    """(1437, 64) float32: each pixel standardised with its mean and deviation over the training images."""
    train_labels: Tensor
    """(1437,) int64."""
    validation_pixels: Tensor
    """(360, 64) float32, in [0, 1]."""
    validation_images: Tensor
    """(360, 64) float32, standardised as the training images are."""
    validation_labels: Tensor
    """(360,) int64."""


@cache
def digits() -> Digits:
    """The data set, loaded once per process; the split is stratified by digit."""
    images, labels = read_digits()
    train, validation = stratified_split(labels, NUM_VALIDATION, seed=SPLIT_SEED)
    train_images, validation_images = images[train], images[validation]
    mean = train_images.mean(axis=0)
    deviation = train_images.std(axis=0)
    deviation[deviation == 0] = 1.0  # the corners of the images are always empty

    def pixels(array: Images) -> Tensor:
        return torch.from_numpy((array / MAX_PIXEL).astype(np.float32))

    def standardised(array: Images) -> Tensor:
        return torch.from_numpy(((array - mean) / deviation).astype(np.float32))

    return Digits(
        train_pixels=pixels(train_images),
        train_images=standardised(train_images),
        train_labels=torch.from_numpy(labels[train]),
        validation_pixels=pixels(validation_images),
        validation_images=standardised(validation_images),
        validation_labels=torch.from_numpy(labels[validation]),
    )


class DigitsClassification:
    """Data, loss and metrics of the workloads that classify the digits; a subclass builds the model.

    The model maps images (b, 64) float32, prepared as those given here, to logits (b, 10).
    """

    def __init__(self, *, train_images: Tensor, validation_images: Tensor, label_smoothing: float) -> None:
        self.label_smoothing = share("label_smoothing", label_smoothing)
        self._train_images = train_images
        self._validation_images = validation_images
        self._train_labels = digits().train_labels
        self._validation_labels = digits().validation_labels

    @property
    def num_train_examples(self) -> int:
        return len(self._train_labels)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Images (b, 64) float32, labels (b,) int64."""
        return self._train_images[indices], self._train_labels[indices]

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        images, labels = cast("tuple[Tensor, Tensor]", batch)
        return functional.cross_entropy(model(images), labels, label_smoothing=self.label_smoothing)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """`validation_loss` (without label smoothing) and `validation_accuracy` on every `world_size`-th image."""
        images = self._validation_images[rank::world_size].to(device)
        labels = self._validation_labels[rank::world_size].to(device)
        logits = model(images)
        loss_sum = functional.cross_entropy(logits, labels, reduction="sum").item()
        num_correct = int((logits.argmax(dim=1) == labels).sum())
        return {
            "validation_loss": (loss_sum, float(len(labels))),
            "validation_accuracy": (float(num_correct), float(len(labels))),
        }


class DigitsMLP(DigitsClassification):
    """A multi-layer perceptron (ReLU) that classifies the digits; cross-entropy loss."""

    def __init__(
        self,
        *,
        hidden_sizes: Sequence[int],
        dropout: float,
        label_smoothing: float,
        width: int | None = None,
        depth: int | None = None,
    ) -> None:
        sizes = integers("hidden_sizes", hidden_sizes)
        self.hidden_sizes = deepened(widened(sizes, width), depth)
        self.dropout = share("dropout", dropout)
        super().__init__(
            train_images=digits().train_images,
            validation_images=digits().validation_images,
            label_smoothing=label_smoothing,
        )

    def build_model(self) -> nn.Module:
        """Linear layers of the given sizes; names `hidden0`, ..., `output`."""
        sizes = (NUM_PIXELS, *self.hidden_sizes)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for index, (inputs, outputs) in enumerate(pairwise(sizes)):
            layers[f"hidden{index}"] = nn.Linear(inputs, outputs)
            layers[f"relu{index}"] = nn.ReLU()
            if self.dropout > 0:
                layers[f"dropout{index}"] = nn.Dropout(self.dropout)
        layers["output"] = nn.Linear(sizes[-1], NUM_CLASSES)
        return nn.Sequential(layers)
