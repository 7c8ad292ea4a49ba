"""Decoding, cropping and scaling of images with Pillow, from a file's bytes to pixels. No torch: workers run it.

The transforms are those of the ImageNet recipe (He et al., arXiv 1512.03385, with the crops of Szegedy et al.,
arXiv 1409.4842): in training a crop of random area and shape, scaled to the model's size, and a random mirroring; in
validation the middle of the image, after scaling its shorter side to 8/7 of the model's size (256 for 224).
"""

from __future__ import annotations

import math
import struct
import warnings
import zlib
from collections.abc import Callable
from io import BytesIO
from random import Random
from typing import TypeAlias

import numpy as np
from PIL import Image, UnidentifiedImageError

from trainers.workloads.images.unreadable import UnreadableImage

Pixels: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
Box: TypeAlias = tuple[float, float, float, float]
"""Left, upper, right and lower edge, in pixels from the upper left corner."""

FORMATS = ("JPEG", "PNG", "WEBP")
"""Formats that are decoded, by Pillow's names; no others, whatever a file is: fewer decoders, fewer ways to crash
one."""
MAX_PIXELS = 89_478_485
"""Most pixels of an image, checked before it is decoded: Pillow's own bound, above which it suspects a decompression
bomb."""
VALIDATION_SCALE = 256 / 224
"""Shorter side of the image that the middle is cut out of, relative to the model's size."""
MAX_CROP_ASPECT = 4 / 3
"""Longest shape of a random crop, either way."""
NUM_CROP_TRIALS = 10
"""A crop that does not fit into the image is drawn again, so often; then the largest in the middle is taken."""

ORIENTATION_TAG = 0x0112
"""The tag of EXIF that tells how the camera was held."""
ORIENTATIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The operation of Pillow that turns an image of that orientation upright."""
SIDEWAYS = (5, 6, 7, 8)
"""The orientations that exchange width and height."""

DECODING_ERRORS = (
    OSError,  # truncated files among them
    ValueError,
    SyntaxError,  # a broken PNG
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    OverflowError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""The errors of Pillow on bytes that are no image, or a broken one."""


def training_image(
    encoded: bytes, *, image_size: int, random: Random, min_crop_area: float, horizontal_flip: bool
) -> Pixels:
    """A random crop, mirrored every other time if `horizontal_flip`: (image_size, image_size, 3) RGB.

    Raises:
        UnreadableImage: the bytes are not a whole image.
    """

    def random_box(width: int, height: int) -> Box:
        return random_crop(width, height, random=random, min_area=min_crop_area)

    image = _cut_out(encoded, random_box, image_size)
    if horizontal_flip and random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image)


def validation_image(encoded: bytes, *, image_size: int) -> Pixels:
    """The middle of the image: (image_size, image_size, 3) RGB.

    Raises:
        UnreadableImage: the bytes are not a whole image.
    """
    return np.array(_cut_out(encoded, middle_square, image_size))


def random_crop(width: int, height: int, *, random: Random, min_area: float) -> Box:
    """A box of `min_area` to all of the area, uniform, and of width to height 3/4 to 4/3, uniform in the logarithm."""
    longest = math.log(MAX_CROP_ASPECT)
    for _ in range(NUM_CROP_TRIALS):
        area = width * height * random.uniform(min_area, 1.0)
        aspect = math.exp(random.uniform(-longest, longest))
        crop_width, crop_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left, upper = random.randint(0, width - crop_width), random.randint(0, height - crop_height)
            return left, upper, left + crop_width, upper + crop_height
    crop_width = min(width, round(height * MAX_CROP_ASPECT))
    crop_height = min(height, round(width * MAX_CROP_ASPECT))
    return _in_the_middle(width, height, crop_width, crop_height)


def middle_square(width: int, height: int) -> Box:
    """The middle of an image: its shorter side is scaled to 8/7 of a square's, and the square is cut out."""
    side = min(width, height) / VALIDATION_SCALE
    return _in_the_middle(width, height, side, side)


def _in_the_middle(width: int, height: int, box_width: float, box_height: float) -> Box:
    left, upper = (width - box_width) / 2, (height - box_height) / 2
    return left, upper, left + box_width, upper + box_height


def _cut_out(encoded: bytes, choose_box: Callable[[int, int], Box], size: int) -> Image.Image:
    """The box that is chosen from the upright image's width and height, scaled to (size, size), in RGB."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about oddities of a file that it can read
            with Image.open(BytesIO(encoded), formats=FORMATS) as image:
                return _cut_out_of(image, choose_box, size)
    except UnidentifiedImageError as error:
        # Pillow's words have the address of the bytes in memory: two ranks, or two equal trials, would tell it twice.
        raise UnreadableImage(f"no image in one of the formats {', '.join(FORMATS)}") from error
    except DECODING_ERRORS as error:
        raise UnreadableImage(f"{type(error).__name__}: {error}") from error


def _cut_out_of(image: Image.Image, choose_box: Callable[[int, int], Box], size: int) -> Image.Image:
    if image.width * image.height > MAX_PIXELS:
        raise UnreadableImage(f"{image.width} x {image.height} are more than {MAX_PIXELS:,} pixels")
    orientation = _orientation(image)
    full_size = image.size[::-1] if orientation in SIDEWAYS else image.size
    left, upper, right, lower = choose_box(*full_size)
    # A JPEG can be decoded at a half, a quarter or an eighth of its size, for a fraction of the time. That is asked for
    # as long as the crop keeps the pixels it is scaled down to.
    shrink = min((right - left) / size, (lower - upper) / size)
    if shrink >= 2:
        image.draft(None, (math.ceil(image.width / shrink), math.ceil(image.height / shrink)))  # None keeps the mode
    upright = to_rgb(image)
    if orientation in ORIENTATIONS:
        upright = upright.transpose(ORIENTATIONS[orientation])
    x, y = upright.width / full_size[0], upright.height / full_size[1]
    # Rounding must not push the box over the edge.
    box = (left * x, upper * y, min(right * x, upright.width), min(lower * y, upright.height))
    return upright.resize((size, size), Image.Resampling.BILINEAR, box=box)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION_TAG, 1))
    except DECODING_ERRORS:  # broken EXIF does not make the pixels unreadable
        return 1


def to_rgb(image: Image.Image) -> Image.Image:
    """The image in RGB: 16 bits are scaled to 8, and what is transparent is laid on white."""
    image.load()
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):
        # Pillow's own conversion cuts off at 255 instead of scaling.
        values = np.asarray(image).astype(np.int64)
        return Image.fromarray((values.clip(0, 65535) // 257).astype(np.uint8)).convert("RGB")
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "La", "RGBa"):
        with_alpha = image.convert("RGBA")
        background = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(background, with_alpha).convert("RGB")
    return image.convert("RGB")
