"""A worker's part of one batch of images: to read, decode and transform each, and pass over those it cannot."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

from trainers.workloads.images.files import Images, Integers
from trainers.workloads.images.transforms import Pixels, training_image, validation_image
from trainers.workloads.images.unreadable import UnreadableImage

MAX_REPLACEMENTS = 50
"""Unreadable images in a row that are passed over in search of a readable one."""
OUR_OWN_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Failures to read a file that say nothing about the file: the process has too many open, or no memory."""


class ReadBatch(NamedTuple):
    """The images of one batch, and those that could not be read."""

    images: Pixels
    """(n, image_size, image_size, 3) RGB."""
    labels: Integers
    """(n,)"""
    unreadable: tuple[tuple[str, str], ...]
    """Name and reason of each image that was passed over."""


class TrainingTask(NamedTuple):
    """One rank's share of a step's batch."""

    first_position: int
    """Place of the first image in the stream of all steps' global batches; the others follow."""
    indices: Integers


@dataclass(frozen=True, slots=True)
class TrainingReader:
    """Reads the images of a training batch, each with random numbers that follow from the seed and its position.

    An image that cannot be read is replaced by the next one that can, so batches stay full, and are the same wherever
    and whenever they are read.
    """

    images: Images
    seed: int
    image_size: int
    min_crop_area: float
    horizontal_flip: bool

    def __call__(self, task: TrainingTask) -> ReadBatch:
        unreadable: list[tuple[str, str]] = []
        pixels, labels = [], []
        for offset, index in enumerate(task.indices.tolist()):
            found, replaced_by = self._first_readable(index, task.first_position + offset, unreadable)
            pixels.append(found)
            labels.append(self.images.labels[replaced_by])
        return _batch(pixels, labels, unreadable, self.image_size)

    def _first_readable(self, index: int, position: int, unreadable: list[tuple[str, str]]) -> tuple[Pixels, int]:
        for attempt in range(min(MAX_REPLACEMENTS, len(self.images))):
            candidate = (index + attempt) % len(self.images)
            try:
                pixels = training_image(
                    encoded(self.images, candidate),
                    image_size=self.image_size,
                    # All bits of both: no two positions of any two seeds share their numbers.
                    random=Random(self.seed << 64 | position),
                    min_crop_area=self.min_crop_area,
                    horizontal_flip=self.horizontal_flip,
                )
            except UnreadableImage as error:
                unreadable.append((self.images.name(candidate), str(error)))
            else:
                return pixels, candidate
        names = ", ".join(f"{name} ({reason})" for name, reason in unreadable[-3:])
        raise ValueError(f"of {attempt + 1} images in a row, none can be read; the last ones are {names}")


@dataclass(frozen=True, slots=True)
class ValidationReader:
    """Reads images as they are validated; those that cannot be read are left out."""

    images: Images
    image_size: int

    def __call__(self, indices: Integers) -> ReadBatch:
        unreadable: list[tuple[str, str]] = []
        pixels, labels = [], []
        for index in indices.tolist():
            try:
                pixels.append(validation_image(encoded(self.images, index), image_size=self.image_size))
                labels.append(self.images.labels[index])
            except UnreadableImage as error:
                unreadable.append((self.images.name(index), str(error)))
        return _batch(pixels, labels, unreadable, self.image_size)


def encoded(images: Images, index: int) -> bytes:
    """The bytes of the image's file.

    Raises:
        UnreadableImage: they cannot be read.
    """
    try:
        return images.encoded(index)
    except OSError as error:
        if error.errno in OUR_OWN_ERRORS:
            raise
        raise UnreadableImage(str(error)) from error


def _batch(
    pixels: list[Pixels], labels: list[np.int64], unreadable: list[tuple[str, str]], image_size: int
) -> ReadBatch:
    images = np.stack(pixels) if pixels else np.empty((0, image_size, image_size, 3), dtype=np.uint8)
    return ReadBatch(images, np.array(labels, dtype=np.int64), tuple(unreadable))
