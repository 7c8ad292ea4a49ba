"""Decoding, cropping and scaling, on images whose right pixels are known."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from random import Random

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.support.trainers.images.data import drawing, encoded
from trainers.workloads.images.transforms import (
    MAX_PIXELS,
    Pixels,
    middle_square,
    random_crop,
    training_image,
    validation_image,
)
from trainers.workloads.images.unreadable import UnreadableImage

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def quarters(size: int = 64) -> Image.Image:
    """Red, green / blue, white."""
    pixels = np.empty((size, size, 3), dtype=np.uint8)
    half = size // 2
    pixels[:half, :half], pixels[:half, half:], pixels[half:, :half], pixels[half:, half:] = RED, GREEN, BLUE, WHITE
    return Image.fromarray(pixels)


def training(data: bytes, seed: int = 0, *, size: int = 16, area: float = 0.08, flip: bool = False) -> Pixels:
    return training_image(data, image_size=size, random=Random(seed), min_crop_area=area, horizontal_flip=flip)


def corners(pixels: Pixels) -> list[tuple[int, ...]]:
    """Upper left, upper right, lower left, lower right."""
    return [tuple(int(value) for value in pixels[y, x]) for y in (1, -2) for x in (1, -2)]


def is_near(found: list[tuple[int, ...]], expected: list[tuple[int, ...]], *, atol: int) -> bool:
    return bool((np.abs(np.array(found) - np.array(expected)) <= atol).all())


@pytest.mark.parametrize(
    ("kind", "settings", "atol"),
    [("PNG", {}, 0), ("WEBP", {"lossless": True}, 0), ("JPEG", {"quality": 95, "subsampling": 0}, 4)],
)
def test_formats(kind: str, settings: dict[str, object], atol: int) -> None:
    pixels = validation_image(encoded(quarters(), kind, **settings), image_size=32)
    assert (pixels.shape, pixels.dtype) == ((32, 32, 3), np.dtype(np.uint8))
    assert is_near(corners(pixels), [RED, GREEN, BLUE, WHITE], atol=atol)


def as_palette() -> Image.Image:
    return quarters().quantize(8)


def as_cmyk() -> Image.Image:
    return quarters().convert("CMYK")


def with_alpha() -> Image.Image:
    """The green quarter is transparent, the blue one half: on white, they are white and light blue."""
    image = quarters().convert("RGBA")
    alpha = np.full((64, 64), 255, dtype=np.uint8)
    alpha[:32, 32:], alpha[32:, :32] = 0, 128
    image.putalpha(Image.fromarray(alpha))
    return image


def as_transparent_palette() -> Image.Image:
    image = with_alpha().quantize(8)
    assert image.mode == "P"
    return image


@pytest.mark.parametrize(
    ("build", "kind", "expected"),
    [
        (as_palette, "PNG", [RED, GREEN, BLUE, WHITE]),
        (as_cmyk, "JPEG", [RED, GREEN, BLUE, WHITE]),
        (with_alpha, "PNG", [RED, WHITE, (127, 127, 255), WHITE]),
        (with_alpha, "WEBP", [RED, WHITE, (127, 127, 255), WHITE]),
        (as_transparent_palette, "PNG", [RED, WHITE, (127, 127, 255), WHITE]),
    ],
)
def test_modes_become_rgb(build: Callable[[], Image.Image], kind: str, expected: list[tuple[int, ...]]) -> None:
    settings = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    data = encoded(build(), kind, **settings)
    assert Image.open(BytesIO(data)).mode == build().mode
    pixels = validation_image(data, image_size=32)
    assert is_near(corners(pixels), expected, atol=4)  # of JPEG and of palettes


def test_grey_becomes_rgb() -> None:
    ramp = np.tile(np.arange(0, 256, 4, dtype=np.uint8), (64, 1))
    pixels = validation_image(encoded(Image.fromarray(ramp)), image_size=56)  # 56 of 64: cut out without scaling
    np.testing.assert_array_equal(pixels, np.repeat(ramp[4:-4, 4:-4, None], 3, axis=2))


def test_black_and_white_becomes_rgb() -> None:
    image = Image.fromarray(np.tile(np.arange(64) >= 32, (64, 1)))
    assert image.mode == "1"
    assert corners(validation_image(encoded(image), image_size=32)) == [(0, 0, 0), WHITE, (0, 0, 0), WHITE]


def test_16_bits_are_scaled_and_not_cut_off() -> None:
    ramp = np.tile(np.arange(0, 65536, 1024, dtype=np.uint16), (64, 1))
    data = encoded(Image.fromarray(ramp))
    assert Image.open(BytesIO(data)).mode.startswith("I")
    pixels = validation_image(data, image_size=56)
    np.testing.assert_array_equal(pixels[:, :, 0], (ramp // 257)[4:-4, 4:-4])


def test_grey_with_alpha_is_laid_on_white() -> None:
    image = Image.merge("LA", [Image.new("L", (64, 64), 0), Image.new("L", (64, 64), 0)])
    assert corners(validation_image(encoded(image), image_size=32)) == [WHITE] * 4


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_cameras_held_otherwise_are_turned_upright(orientation: int, kind: str) -> None:
    image = quarters(512)
    exif = Image.Exif()
    exif[0x0112] = orientation
    settings = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
    data = encoded(image, kind, exif=exif, **settings)
    expected = np.array(ImageOps.exif_transpose(Image.open(BytesIO(data))).resize((32, 32)))  # Pillow's own turning
    assert is_near(corners(validation_image(data, image_size=32)), corners(expected), atol=4)
    crop = training(data, size=32, area=1.0)  # all but the whole of it
    assert is_near(corners(crop), corners(expected), atol=4)


def test_crops_of_a_wide_sideways_image_stay_inside() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(drawing(0, 1, size=300).resize((1000, 120)), "JPEG", exif=exif)
    for seed in range(30):
        assert training(data, seed, size=20).shape == (20, 20, 3)


def test_broken_exif_leaves_the_image_readable() -> None:
    data = encoded(quarters(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff garbage", quality=95, subsampling=0)
    assert is_near(corners(validation_image(data, image_size=32)), [RED, GREEN, BLUE, WHITE], atol=4)


def test_the_validation_crop_is_the_middle_after_scaling_the_shorter_side() -> None:
    # 256 of the shorter side, then 224 in the middle of 341 x 256.
    assert middle_square(500, 375) == pytest.approx((85.9375, 23.4375, 414.0625, 351.5625))
    image = drawing(1, 0, size=256).resize((320, 256))
    expected = np.array(image)[16:240, 48:272]
    np.testing.assert_array_equal(validation_image(encoded(image), image_size=224), expected)


def test_random_crops_have_the_areas_and_shapes_of_the_recipe() -> None:
    random = Random(0)
    boxes = [random_crop(400, 300, random=random, min_area=0.08) for _ in range(4000)]
    widths = np.array([right - left for left, _, right, _ in boxes])
    heights = np.array([lower - upper for _, upper, _, lower in boxes])
    areas, aspects = widths * heights / (400 * 300), widths / heights
    assert min(box[0] for box in boxes) == min(box[1] for box in boxes) == 0
    assert max(box[2] for box in boxes) == 400
    assert max(box[3] for box in boxes) == 300
    # Sides are rounded to pixels, which are at most 1 % of one.
    assert 0.078 < areas.min() < 0.09
    assert 0.99 < areas.max() <= 1
    assert 0.74 < aspects.min() < 0.76
    assert 1.32 < aspects.max() < 1.35
    # Areas and shapes drawn apart from each other, without those that do not fit.
    generator = np.random.default_rng(0)
    drawn = generator.uniform(0.08, 1, 100_000)
    shapes = np.exp(generator.uniform(-math.log(4 / 3), math.log(4 / 3), 100_000))
    fitting = (drawn * shapes <= 4 / 3) & (drawn / shapes <= 3 / 4)
    # Standard errors are 0.0035 and 0.0025.
    assert areas.mean() == pytest.approx(drawn[fitting].mean(), abs=0.015)
    assert np.log(aspects).mean() == pytest.approx(np.log(shapes[fitting]).mean(), abs=0.01)
    places = np.array([box[0] for box in boxes])[widths < 400] / (400 - widths[widths < 400])
    assert places.mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("width", "height"), [(1000, 10), (10, 1000), (1, 1), (2, 1)])
def test_an_image_that_no_crop_fits_is_cut_in_the_middle(width: int, height: int) -> None:
    left, upper, right, lower = random_crop(width, height, random=Random(0), min_area=1.0)
    assert (left + right, upper + lower) == (width, height)
    assert 3 / 4 <= (right - left) / (lower - upper) <= 4 / 3 or (width, height) == (2, 1)
    assert training(encoded(Image.new("RGB", (width, height), GREEN))).tolist() == [[list(GREEN)] * 16] * 16


def test_the_same_random_numbers_give_the_same_crop() -> None:
    data = encoded(drawing(0, 0, size=100), "JPEG")
    np.testing.assert_array_equal(training(data, 1, flip=True), training(data, 1, flip=True))
    assert len({training(data, seed, flip=True).tobytes() for seed in range(20)}) == 20


def test_every_other_image_is_mirrored() -> None:
    data = encoded(quarters())
    upper_left = [corners(training(data, seed, area=1.0, flip=True))[0] for seed in range(400)]
    assert set(upper_left) == {RED, GREEN}
    assert upper_left.count(GREEN) == pytest.approx(200, abs=40)  # four deviations
    assert all(corners(training(data, seed, area=1.0))[0] == RED for seed in range(20))


@pytest.mark.slow
def test_a_large_jpeg_decoded_small_is_the_same_picture() -> None:
    # Smooth, so that all ways to scale it down agree.
    x = np.linspace(0, 1, 1600)
    smooth = np.stack([np.outer(x, x), np.outer(1 - x, x), np.outer(x, 1 - x)], axis=2)
    image = Image.fromarray((smooth * 255).astype(np.uint8))
    found = validation_image(encoded(image, "JPEG", quality=95), image_size=32).astype(int)
    expected = validation_image(encoded(image, "PNG"), image_size=32).astype(int)
    assert np.abs(found - expected).max() <= 3


def bomb() -> bytes:
    """A PNG that claims more pixels than are allowed, and is otherwise whole."""
    data = bytearray(encoded(Image.new("L", (8, 8))))
    side = math.isqrt(MAX_PIXELS) + 1
    data[16:24] = struct.pack(">II", side, side)
    data[29:33] = struct.pack(">I", zlib.crc32(bytes(data[12:29])))
    return bytes(data)


NO_IMAGE = r"^no image in one of the formats JPEG, PNG, WEBP$"
"""Without the address that Pillow's own words have: the same image is told in the same words everywhere."""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", NO_IMAGE),
        (b"this is no image", NO_IMAGE),
        (encoded(drawing(0, 0), "JPEG")[:600], "Truncated File"),
        (encoded(drawing(0, 0), "PNG")[:600], "OSError|SyntaxError|truncated"),
        (encoded(drawing(0, 0), "WEBP")[:200], "."),
        (encoded(drawing(0, 0), "GIF"), NO_IMAGE),  # a decoder that is not asked
        (bomb(), r"9460 x 9460 are more than 89,478,485 pixels"),
    ],
)
def test_what_is_no_whole_image_is_unreadable(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableImage, match=reason):
        validation_image(data, image_size=32)
    with pytest.raises(UnreadableImage, match=reason):
        training(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_damaged_bytes_give_an_image_or_are_unreadable(kind: str) -> None:
    whole = encoded(drawing(0, 0), kind)
    random = np.random.default_rng(0)
    num_unreadable = 0
    for _ in range(300):
        data = bytearray(whole)
        for place in random.integers(0, len(data), 4):
            data[place] = int(random.integers(0, 256))
        try:
            assert training(bytes(data)).shape == (16, 16, 3)
        except UnreadableImage:
            num_unreadable += 1
    assert num_unreadable > 0
