"""Classification of images by an architecture of `transformers`: a user's own, or the handwritten digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.workloads.digits.digits import NUM_CLASSES, digits
from trainers.workloads.huggingface.adapters import Adapters
from trainers.workloads.huggingface.architecture import Architecture, Weights
from trainers.workloads.huggingface.tasks import ArchitectureWorkload, Batch, ExamplesInMemory, WorkloadInMemory
from trainers.workloads.images.image_folder import ImageFolder
from trainers.workloads.options import integer, without_effect

DIGIT_SIDE = 8
"""Pixels of a side of the digits that ship with scikit-learn."""
DEFAULT_IMAGE_SIZE = 32
"""Side of the images of models whose config names none: small enough for a CPU."""
SMALL_ARCHITECTURE = "vit"
SMALL_CONFIG: Mapping[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "image_size": 16,
    "patch_size": 4,
    "num_channels": 1,
}
"""Config of the model that is trained when none is named."""

_FOLDER_DEFAULTS: Mapping[str, Any] = {"min_crop_area": 0.08, "horizontal_flip": True, "num_workers": 2}
"""Defaults of the workload image-folder."""


def image_classification(*, path: str | None, **options: Any) -> DigitsImages | FolderImages:
    """The workload on a user's images, or without a path on the digits.

    Raises:
        ValueError: an option is refused, or has no effect on these images.
    """
    if options["architecture"] is None and options["model_path"] is None and isinstance(options["config"], Mapping):
        own = {} if path is None else {"num_channels": 3}
        small = {**SMALL_CONFIG, **own, **options["config"]}
        if options["image_size"] is not None and "image_size" not in options["config"]:
            del small["image_size"]
        options |= {"architecture": SMALL_ARCHITECTURE, "config": small}
    without_effect("validation_path", options.pop("validation_path"), "on images, which are split as in image-folder")
    if path is not None:
        without_effect("max_validation_examples", options.pop("max_validation_examples"), "on images of a path")
        return FolderImages(path=path, **options)
    for name in _FOLDER_DEFAULTS:
        without_effect(name, options.pop(name), "without path")
    return DigitsImages(**options)


class DigitsImages(WorkloadInMemory):
    """Classifies the handwritten digits, enlarged to the side that the model takes."""

    def __init__(
        self,
        *,
        architecture: str | None,
        config: Mapping[str, Any],
        model_path: str | None,
        weights: Weights,
        image_size: int | None,
        adapters: Adapters | None,
        precondition_embeddings: bool,
        label_smoothing: float,
        max_validation_examples: int | None,
    ) -> None:
        built = classifier(
            architecture=architecture,
            config=config,
            model_path=model_path,
            weights=weights,
            image_size=image_size,
            num_classes=NUM_CLASSES,
        )
        self._num_channels, self._side = input_shape(built.config, image_size)
        data = digits()
        mean, deviation = data.train_pixels.mean(), data.train_pixels.std()
        train, validation = (
            ((pixels - mean) / deviation).view(-1, 1, DIGIT_SIDE, DIGIT_SIDE)
            for pixels in (data.train_pixels, data.validation_pixels)
        )
        super().__init__(
            built,
            train=ExamplesInMemory(train, data.train_labels),
            validation=ExamplesInMemory(validation, data.validation_labels),
            label_smoothing=label_smoothing,
            max_validation_examples=max_validation_examples,
            adapters=adapters,
            precondition_embeddings=precondition_embeddings,
        )

    def logits_and_targets(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits and labels of (images (b, 1, 8, 8) float32, labels (b,) int64); images are enlarged on the device."""
        images, labels = batch
        pixels = functional.interpolate(images, size=self._side, mode="bilinear", align_corners=False)
        return model(pixel_values=pixels.expand(-1, self._num_channels, -1, -1)).logits, labels


class FolderImages(ArchitectureWorkload):
    """Classifies a user's images, read, cropped and mirrored as by the workload image-folder."""

    def __init__(
        self,
        *,
        path: str,
        architecture: str | None,
        config: Mapping[str, Any],
        model_path: str | None,
        weights: Weights,
        image_size: int | None,
        adapters: Adapters | None,
        precondition_embeddings: bool,
        label_smoothing: float,
        **reading: Any,
    ) -> None:
        self._folder = ImageFolder(
            path=path,
            architecture="resnet18",  # never built: data and loss are what is taken of this
            image_size=DEFAULT_IMAGE_SIZE,
            patch_size=None,
            validation_share=None,
            label_smoothing=label_smoothing,
            max_unreadable_share=0.01,
            image_column="image",
            label_column="label",
            **{name: default if reading[name] is None else reading[name] for name, default in _FOLDER_DEFAULTS.items()},
        )
        built = classifier(
            architecture=architecture,
            config=config,
            model_path=model_path,
            weights=weights,
            image_size=image_size,
            num_classes=len(self._folder.images.classes),
        )
        num_channels, self._folder.image_size = input_shape(built.config, image_size)
        if num_channels != 3:
            raise ValueError(f"config.num_channels must be 3, as the images of a path have, got {num_channels}")
        super().__init__(built, adapters=adapters, precondition_embeddings=precondition_embeddings)

    @property
    def num_train_examples(self) -> int:
        return self._folder.num_train_examples

    def train_batches(self, **order: int) -> Iterator[object]:
        """Batches as `ImageFolder` gives them."""
        return self._folder.train_batches(**order)

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        return self._folder.loss(_logits_of(model), batch)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """The same as `ImageFolder`'s."""
        return self._folder.evaluate(_logits_of(model), rank=rank, world_size=world_size, device=device)

    def counts(self) -> Mapping[str, int]:
        """The same as `ImageFolder`'s."""
        return self._folder.counts()

    def remarks(self) -> Sequence[str]:
        """The same as `ImageFolder`'s."""
        return self._folder.remarks()


def _logits_of(model: nn.Module) -> nn.Module:
    """The model as one that gives nothing but logits; a function does for being called."""

    def logits(images: Tensor) -> Tensor:
        return cast("Tensor", model(pixel_values=images).logits)

    return cast("nn.Module", logits)


def classifier(
    *,
    architecture: str | None,
    config: Mapping[str, Any],
    model_path: str | None,
    weights: Weights,
    image_size: int | None,
    num_classes: int,
) -> Architecture:
    """The architecture for images of so many classes; an image size that is given becomes that of its config.

    Raises:
        ValueError: as `Architecture`; or the image size is given twice, or is no integer >= 1.
    """
    if image_size is not None:
        integer("image_size", image_size)
        if "image_size" in config:
            raise ValueError(f"image_size is given twice: {image_size!r}, and {config['image_size']!r} in config")

    def inputs(found: Any) -> dict[str, Tensor]:
        num_channels, side = input_shape(found, image_size)
        return {"pixel_values": torch.zeros(2, num_channels, side, side)}

    return Architecture(
        task="image-classification",
        architecture=architecture,
        config=config,
        model_path=model_path,
        weights=weights,
        required={"num_labels": num_classes},
        inputs=inputs,
        where_known={} if image_size is None else {"image_size": image_size},
    )


def input_shape(config: Any, image_size: int | None) -> tuple[int, int]:
    """Channels and side of the images that a model of this config takes.

    Raises:
        ValueError: its images are not square.
    """
    side = image_size or getattr(config, "image_size", None) or DEFAULT_IMAGE_SIZE
    if isinstance(side, list | tuple):
        if len(set(side)) != 1:
            raise ValueError(f"config.image_size must be one number, or the same one twice, got {side!r}")
        side = side[0]
    return getattr(config, "num_channels", 3), side
