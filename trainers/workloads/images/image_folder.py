"""Classification of a user's own images, in directories or in Parquet or Arrow files."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.data.loading import read_in_order
from trainers.data.order import rank_batches
from trainers.installation.extras import optional_library
from trainers.workload.parameter_groups import groups_by_rule
from trainers.workloads.images.description import PARAMETER_GROUPS
from trainers.workloads.images.files import FoundImages, Integers, find_images
from trainers.workloads.images.resnet import RESNETS, ResNet, ResNetShape, resnet_shape
from trainers.workloads.images.unreadable import UnreadableCount
from trainers.workloads.images.vision_transformer import (
    VISION_TRANSFORMERS,
    VisionTransformer,
    vision_transformer_shape,
)
from trainers.workloads.options import boolean, integer, one_of, open_share, positive_share, share, text, without_effect

if TYPE_CHECKING:
    from trainers.workloads.images.reading import ReadBatch, TrainingTask

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""Means and standard deviations of red, green and blue in ImageNet's training images, with pixels in [0, 1]: what
published weights expect."""

DEFAULT_PATCH_SIZE = 16
"""Pixels of a patch's side, as in ViT-S/16 and ViT-B/16."""
NUM_IMAGES_AT_ONCE = 128
"""Images at once in evaluation: bounds its memory."""


class ImageFolder:
    """Classifies a user's images with a residual network or a vision transformer; cross-entropy loss.

    The recipe is the one that Distributed Shampoo was published with (arXiv 2309.06497): crops of random area and
    shape, mirrored at random, label smoothing, no weight decay on normalisation and biases, and validation on the
    middle of each image. Its 90 epochs, cosine and warm-up belong to the trial's config.

    Images are decoded in `num_workers` processes per rank, and go to the device as bytes. What a step sees depends on
    the seed and the step alone, random crops included. An unreadable image is passed over and counted: in training the
    next one takes its place, in validation it is left out.

    Residual networks normalise by batch, and a batch is a rank's share of the global one, as in that recipe: with
    another number of ranks the gradients differ slightly. Running means and variances are each rank's own while it
    trains; the loop evaluates with those of rank 0.
    """

    def __init__(
        self,
        *,
        path: str,
        architecture: str,
        image_size: int,
        patch_size: int | None,
        validation_share: float | None,
        label_smoothing: float,
        min_crop_area: float,
        horizontal_flip: bool,
        num_workers: int,
        max_unreadable_share: float,
        image_column: str,
        label_column: str,
        width: int | None = None,
        depth: int | None = None,
    ) -> None:
        optional_library("PIL.Image", extra="vision", purpose="image-folder")
        self.architecture = one_of("architecture", architecture, (*RESNETS, *VISION_TRANSFORMERS))
        self._shape = (
            resnet_shape(self.architecture, width=width, depth=depth)
            if self.architecture in RESNETS
            else vision_transformer_shape(self.architecture, width=width, depth=depth)
        )
        self.image_size = integer("image_size", image_size, minimum=8)
        self.patch_size = _patch_size(patch_size, self.architecture, self.image_size)
        self.label_smoothing = share("label_smoothing", label_smoothing)
        self.min_crop_area = positive_share("min_crop_area", min_crop_area)
        self.horizontal_flip = boolean("horizontal_flip", horizontal_flip)
        self.num_workers = integer("num_workers", num_workers, minimum=0)
        self.images: FoundImages = find_images(
            text("path", path),
            validation_share=None if validation_share is None else open_share("validation_share", validation_share),
            image_column=text("image_column", image_column),
            label_column=text("label_column", label_column),
        )
        """The images that were found."""
        self._unreadable = UnreadableCount(share("max_unreadable_share", max_unreadable_share))
        self._num_restarted_loaders = 0

    def build_model(self) -> nn.Module:
        """Images (b, 3, image_size, image_size) float32, standardised, to logits (b, number of classes)."""
        num_classes = len(self.images.classes)
        if isinstance(self._shape, ResNetShape):
            return ResNet(self._shape, num_classes=num_classes)
        assert self.patch_size is not None
        return VisionTransformer(
            self._shape,
            image_size=self.image_size,
            patch_size=self.patch_size,
            num_classes=num_classes,
        )

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """The residual blocks, or those of the transformer."""
        assert isinstance(model, ResNet | VisionTransformer)
        return list(model.blocks)

    def parameter_groups(self, model: nn.Module) -> Sequence[Mapping[str, Any]]:
        """Groups as the description has them."""
        return groups_by_rule(model, PARAMETER_GROUPS, options={})

    def counts(self) -> Mapping[str, int]:
        """`num_unreadable_images`: how often an unreadable image was met, in training (up to the batches given so far)
        and in evaluations. `num_restarted_loaders`: worker processes that died and were replaced."""
        return {
            "num_unreadable_images": self._unreadable.num_unreadable,
            "num_restarted_loaders": self._num_restarted_loaders,
        }

    def remarks(self) -> Sequence[str]:
        """Remarks on the part of the path that is not read, and the first images that could not be."""
        aside = self.images.left_aside
        return [*([] if aside is None else [aside]), *self._unreadable.remarks]

    @property
    def num_train_examples(self) -> int:
        """The number of training images, the unreadable ones included."""
        return len(self.images.train)

    def train_batches(self, *, seed: int, **order: int) -> Generator[tuple[Tensor, Tensor], None, None]:
        """Batches of (images (b, image_size, image_size, 3) uint8, labels (b,) int64), b = batch_size / world_size.

        What is due is read ahead, so that the rest of `ReadsAhead.train_batches`' arguments go to `training_tasks`.
        In pinned memory, where CUDA is in use. The worker processes live until the generator is closed.

        Raises:
            ValueError: too large a share of the images is unreadable.
            WorkersKeepDying: worker processes die over and over.
        """
        from trainers.workloads.images.reading import TrainingReader  # needs Pillow

        reader = TrainingReader(
            images=self.images.train,
            seed=seed,
            image_size=self.image_size,
            min_crop_area=self.min_crop_area,
            horizontal_flip=self.horizontal_flip,
        )
        tasks = training_tasks(self.num_train_examples, seed=seed, **order)
        with closing(self._read(reader, tasks)) as batches:
            yield from batches

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        images, labels = cast("tuple[Tensor, Tensor]", batch)
        return functional.cross_entropy(model(standardised(images)), labels, label_smoothing=self.label_smoothing)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """`validation_loss` (without label smoothing) and `validation_accuracy` on every `world_size`-th image.

        Raises:
            ValueError: too large a share of the images is unreadable.
            WorkersKeepDying: worker processes die over and over.
        """
        from trainers.workloads.images.reading import ValidationReader  # needs Pillow

        own = np.arange(rank, len(self.images.validation), world_size, dtype=np.int64)
        tasks = [own[start : start + NUM_IMAGES_AT_ONCE] for start in range(0, len(own), NUM_IMAGES_AT_ONCE)]
        # Summed up on the device: the host goes on to the next images meanwhile.
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        num_correct = torch.zeros((), dtype=torch.int64, device=device)
        num_images = 0
        reader = ValidationReader(images=self.images.validation, image_size=self.image_size)
        # To wait for one batch of a worker's is no faster than to read it.
        num_workers = min(self.num_workers, len(tasks)) if len(tasks) > 1 else 0
        with closing(self._read(reader, tasks, num_workers=num_workers)) as batches:
            for batch in batches:
                images, labels = (part.to(device, non_blocking=True) for part in batch)
                if len(labels) == 0:
                    continue
                logits = model(standardised(images)).float()
                loss_sum += functional.cross_entropy(logits, labels, reduction="sum")
                num_correct += (logits.argmax(dim=1) == labels).sum()
                num_images += len(labels)
        return {
            "validation_loss": (loss_sum.item(), float(num_images)),
            "validation_accuracy": (float(num_correct.item()), float(num_images)),
        }

    def _read(
        self, reader: Any, tasks: Iterator[TrainingTask] | list[Integers], *, num_workers: int | None = None
    ) -> Generator[tuple[Tensor, Tensor], None, None]:
        is_on_cuda = torch.cuda.is_initialized()  # then the model is there, too
        results = read_in_order(
            reader,
            tasks,
            num_workers=self.num_workers if num_workers is None else num_workers,
            on_restart=self._count_restart,
        )
        with closing(results):
            for found in results:
                batch: ReadBatch = found
                self._unreadable.add(num_read=len(batch.labels), unreadable=batch.unreadable)
                images, labels = torch.from_numpy(batch.images), torch.from_numpy(batch.labels)
                yield (images.pin_memory(), labels.pin_memory()) if is_on_cuda else (images, labels)

    def _count_restart(self) -> None:
        self._num_restarted_loaders += 1


def training_tasks(
    num_examples: int, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
) -> Iterator[TrainingTask]:
    """The images of each step from `start_step` on, in the order of `trainers.data.order`, as `TrainingReader` takes
    them."""
    from trainers.workloads.images.reading import TrainingTask  # needs Pillow

    position = start_step * batch_size + rank * (batch_size // world_size)
    for indices in rank_batches(
        num_examples, batch_size=batch_size, seed=seed, rank=rank, world_size=world_size, start_step=start_step
    ):
        yield TrainingTask(position, indices.numpy())
        position += batch_size


def standardised(images: Tensor) -> Tensor:
    """Pixels (b, h, w, 3) uint8 as models take them: (b, 3, h, w) float32, of mean 0 and deviation 1 on ImageNet."""
    # Built on the device, without a copy from the host, which would wait for the device.
    mean, deviation = (
        torch.stack([torch.full((), 255 * value, device=images.device) for value in values])
        for values in (MEAN, DEVIATION)
    )
    return ((images - mean) / deviation).permute(0, 3, 1, 2).contiguous()


def _patch_size(patch_size: object, architecture: str, image_size: int) -> int | None:
    if architecture in RESNETS:
        without_effect("patch_size", patch_size, f"with {architecture}")
        return None
    size = DEFAULT_PATCH_SIZE if patch_size is None else integer("patch_size", patch_size)
    if image_size % size != 0:
        raise ValueError(f"patch_size {size} must divide image_size {image_size}")
    return size
