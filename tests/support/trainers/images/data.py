"""Small images to train on, drawn with a seed: discs and squares, in files or in columns."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image, ImageDraw

CLASSES = ("disc", "square")


def drawing(label: int, seed: int, *, size: int = 48) -> Image.Image:
    """A disc (label 0) or a square (1) on noise, anywhere; discs are reddish and squares bluish."""
    random = np.random.default_rng([label, seed])
    image = Image.fromarray(random.integers(0, 120, (size, size, 3), dtype=np.uint8))
    radius = int(random.integers(size // 5, size // 3))
    x, y = (int(value) for value in random.integers(radius, size - radius, 2))
    colour = [int(value) for value in random.integers(60, 120, 3)]
    colour[0 if label == 0 else 2] = 255
    box = (x - radius, y - radius, x + radius, y + radius)
    draw = ImageDraw.Draw(image)
    (draw.ellipse if label == 0 else draw.rectangle)(box, fill=tuple(colour))
    return image


def encoded(image: Image.Image, kind: str = "PNG", **settings: Any) -> bytes:
    """The bytes of the image's file."""
    buffer = BytesIO()
    image.save(buffer, kind, **settings)
    return buffer.getvalue()


def write_tree(
    root: Path, *, num_per_class: int, first_seed: int = 0, kinds: Sequence[str] = ("JPEG", "PNG"), size: int = 48
) -> Path:
    """Writes `root/<class>/<number>.<kind>`, with the kinds in turn."""
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for index in range(num_per_class):
            kind = kinds[index % len(kinds)]
            path = root / name / f"{index:04}.{kind.lower()}"
            path.write_bytes(encoded(drawing(label, first_seed + index, size=size), kind))
    return root


def write_split_tree(root: Path, *, num_train: int = 40, num_validation: int = 12, size: int = 48) -> Path:
    """Writes `root/train` and `root/validation`; the numbers are per class."""
    write_tree(root / "train", num_per_class=num_train, size=size)
    write_tree(root / "validation", num_per_class=num_validation, first_seed=10_000, size=size)
    return root


def rows(num_per_class: int, *, first_seed: int = 0, size: int = 48) -> tuple[list[bytes], list[int]]:
    """PNGs and labels, with the classes in turn."""
    labels = [index % len(CLASSES) for index in range(num_per_class * len(CLASSES))]
    images = [
        encoded(drawing(label, first_seed + index // len(CLASSES), size=size)) for index, label in enumerate(labels)
    ]
    return images, labels


def table(num_per_class: int, *, first_seed: int = 0, as_structures: bool = False, names: bool = False) -> pa.Table:
    """Columns `image` (bytes, or structures as `datasets` writes them) and `label` (integers, or class names)."""
    images, labels = rows(num_per_class, first_seed=first_seed)
    column = (
        pa.array(
            [{"bytes": image, "path": f"{index}.png"} for index, image in enumerate(images)],
            type=pa.struct({"bytes": pa.binary(), "path": pa.string()}),
        )
        if as_structures
        else pa.array(images, type=pa.binary())
    )
    return pa.table({"image": column, "label": [CLASSES[label] for label in labels] if names else labels})


def write_parquet(path: Path, content: pa.Table, *, row_group_size: int = 7) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pa.parquet.write_table(content, path, row_group_size=row_group_size)
    return path


def write_arrow(path: Path, content: pa.Table, *, as_stream: bool, compression: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    writer = (pa.ipc.new_stream if as_stream else pa.ipc.new_file)(str(path), content.schema, options=options)
    with writer:
        writer.write_table(content, max_chunksize=7)
    return path
