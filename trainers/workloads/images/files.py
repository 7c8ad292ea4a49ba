"""Finds labelled images at a path: a tree of class directories, or Parquet and Arrow files. No torch: workers run it.

Only names, labels and places are held in memory; an image's bytes are read when they are asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from trainers.data.entries import kind_of
from trainers.data.files import DataFile, data_files
from trainers.workloads.images.columns import ColumnImages, read_columns

Integers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
COLUMN_SUFFIXES = (".parquet", ".arrow", ".feather")
VALIDATION_NAMES = ("validation", "val", "valid")

SPLIT_SEED = 0
"""Fixed, and not the trial's seed: all trials are compared on the same validation images."""
DEFAULT_VALIDATION_SHARE = 0.1
"""A tenth, where the user does not say."""
NUM_NAMED = 5
"""Files or directories that are left aside and named."""
NUM_FOUND_KEPT = 4
"""Data sets whose names and labels a process keeps, for the next trial on them."""


class Images(Protocol):
    """Labelled images whose bytes are read on demand."""

    @property
    def labels(self) -> Integers:
        """(n,): the class of each image, in [0, number of classes)."""

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """The place of the image, for messages."""

    def encoded(self, index: int) -> bytes:
        """The bytes of the image's file.

        Raises:
            OSError, UnreadableImage: they cannot be read.
        """


@dataclass(frozen=True, slots=True)
class FoundImages:
    """The images at a path, cut in two."""

    train: Images
    validation: Images
    classes: tuple[str, ...]
    """Names of the classes; a label is a place in here."""
    left_aside: str | None = None
    """Remarks on the part of the path that is not read, for a person."""


class StampedFile(NamedTuple):
    """A file as it is now: another one if it changes."""

    path: Path
    num_bytes: int
    changed_nanoseconds: int


class TreeImages:
    """Images in files below a directory."""

    def __init__(self, root: str, names: Sequence[str], labels: Integers) -> None:
        self._root = root
        # Millions of strings would take a hundred bytes each, and be copied into every worker one by one.
        encoded = [os.fsencode(name) for name in names]
        self._names = b"".join(encoded)
        self._ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, index: int) -> str:
        start = int(self._ends[index - 1]) if index > 0 else 0
        return os.path.join(self._root, os.fsdecode(self._names[start : int(self._ends[index])]))  # noqa: PTH118  # faster

    def encoded(self, index: int) -> bytes:
        with open(self.name(index), "rb") as file:  # noqa: PTH123  # faster
            return file.read()


class SomeImages:
    """Some of the images, in a given order."""

    def __init__(self, images: Images, indices: Integers) -> None:
        self._images = images
        self._indices = indices
        self.labels: Integers = images.labels[indices]

    def __len__(self) -> int:
        return len(self._indices)

    def name(self, index: int) -> str:
        return self._images.name(int(self._indices[index]))

    def encoded(self, index: int) -> bytes:
        return self._images.encoded(int(self._indices[index]))


def find_images(path: str, *, validation_share: float | None, image_column: str, label_column: str) -> FoundImages:
    """The images at `path`.

    `path` is one of
    - a directory with `train/<class>/<image>` and `validation/<class>/<image>` (or `val`, `valid`),
    - a directory with `<class>/<image>`, or with `train/<class>/<image>` alone,
    - a Parquet or Arrow file, or a directory with such files in it and below. Files and directories with `train` and
      `validation` (`val`, `valid`) as a part of their names are the two splits, those with `test` are left aside.

    Where there is no validation split, a share of each class is held out (`validation_share`, by default a tenth).
    What lies beside the splits, a `test` say, is not read, and named as left aside.
    Nothing hidden is read, and below the class directories nothing but images.

    Raises:
        ValueError: there are no such images; the message names the path, or file and column, and what was found.
    """
    root = Path(path).expanduser().absolute()
    if not root.exists():
        raise ValueError(f"path {path!r} does not exist")
    train, validation = _split_directories(root)
    if validation is not None and train == root:
        raise ValueError(f"path {path!r} has {validation.name!r}, but no 'train' beside it; found: {_content(root)}")
    if root.is_dir() and (classes := _class_directories(train)):
        train_stamps = _stamps(classes)
        validation_stamps = None
        if validation is not None:
            validation_stamps = _stamps(_class_directories(validation))
        _check_share_has_effect(validation_share, validation is not None, path)
        found = _find_in_trees(str(train), train_stamps, str(validation), validation_stamps, validation_share)
        return _without(found, root, _beside(root, train, validation))
    try:
        files = data_files("path", path, suffixes=COLUMN_SUFFIXES)
    except ValueError:
        raise ValueError(
            f"path {path!r} has neither directories of classes with images (*{', *'.join(SUFFIXES)}) nor files named "
            f"*{', *'.join(COLUMN_SUFFIXES)}; found: {_content(root)}"
        ) from None
    train_files, validation_files = _split_files(files, path)
    _check_share_has_effect(validation_share, bool(validation_files), path)
    found = _find_in_columns(train_files, validation_files, validation_share, image_column, label_column)
    read = {file.path for file in (*train_files, *validation_files)}
    return _without(found, root, [file.name for file in files if file.path not in read])


def _beside(root: Path, train: Path, validation: Path | None) -> list[str]:
    """The directories beside those of the splits, which are not read; none where the classes themselves lie there."""
    if train == root:
        return []
    entries = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    return [f"{name}/" for name in entries if root / name not in (train, validation)]


def _without(found: FoundImages, root: Path, names: Sequence[str]) -> FoundImages:
    """The images, with the names of what is left aside."""
    if not names:
        return found
    more = f" and {len(names) - NUM_NAMED} more" if len(names) > NUM_NAMED else ""
    return replace(found, left_aside=f"of {root} are not read: {', '.join(names[:NUM_NAMED])}{more}")


def _check_share_has_effect(share: float | None, is_split: bool, path: str) -> None:
    if share is not None and is_split:
        raise ValueError(f"validation_share has no effect where {path!r} has a validation split, got {share!r}")


@lru_cache(maxsize=NUM_FOUND_KEPT)
def _find_in_trees(
    train: str,
    train_stamps: tuple[tuple[str, int], ...],
    validation: str,
    validation_stamps: tuple[tuple[str, int], ...] | None,
    validation_share: float | None,
) -> FoundImages:
    """The stamps are part of the key: a process that trains many trials looks again when files came or went."""
    classes = tuple(name for name, _ in train_stamps)
    images = _tree(train, classes, classes)
    for label in np.flatnonzero(np.bincount(images.labels, minlength=len(classes)) == 0):
        directory = Path(train, classes[label])
        wanted = f"*{', *'.join(SUFFIXES)}"
        raise ValueError(f"{directory} has no image named {wanted}; found: {_content(directory)}")
    _check_classes(classes, train)
    if validation_stamps is None:
        return _hold_out(images, validation_share, classes, train)
    validation_classes = [name for name, _ in validation_stamps]
    if unknown := sorted(set(validation_classes) - set(classes)):
        raise ValueError(f"{validation} has classes that {train} has not: {', '.join(unknown[:5])}")
    validation_images = _tree(validation, validation_classes, classes)
    if len(validation_images) == 0:
        raise ValueError(f"{validation} has no image in a directory of a class; found: {_content(Path(validation))}")
    return FoundImages(images, validation_images, classes)


@lru_cache(maxsize=NUM_FOUND_KEPT)
def _find_in_columns(
    train: tuple[StampedFile, ...],
    validation: tuple[StampedFile, ...],
    validation_share: float | None,
    image_column: str,
    label_column: str,
) -> FoundImages:
    chunks, values = read_columns([file.path for file in train], image_column, label_column)
    found = sorted(set(values))
    classes = tuple(str(value) for value in found)
    _check_classes(classes, f"column {label_column!r} of {train[0].path.parent}")
    label_of = {value: label for label, value in enumerate(found)}
    images = ColumnImages(chunks, np.array([label_of[value] for value in values], dtype=np.int64))
    if not validation:
        return _hold_out(images, validation_share, classes, str(train[0].path.parent))
    chunks, values = read_columns([file.path for file in validation], image_column, label_column)
    if unknown := [str(value) for value in set(values) - set(found)]:
        raise ValueError(
            f"column {label_column!r} has values in {validation[0].path.parent} that the training data have not: "
            f"{', '.join(sorted(unknown)[:5])}"
        )
    labels = np.array([label_of[value] for value in values], dtype=np.int64)
    return FoundImages(images, ColumnImages(chunks, labels), classes)


def _check_classes(classes: Sequence[str], where: str) -> None:
    if len(classes) < 2:
        raise ValueError(f"{where} must have at least two classes, found: {', '.join(classes) or 'none'}")


def _hold_out(images: Images, share: float | None, classes: tuple[str, ...], where: str) -> FoundImages:
    """Cuts a share of each class off for validation, drawn with a fixed seed; each class keeps an image to train on."""
    share = DEFAULT_VALIDATION_SHARE if share is None else share
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    held_out = np.zeros(len(images), dtype=bool)
    by_class = order[np.argsort(images.labels[order], kind="stable")]
    counts = np.bincount(images.labels, minlength=len(classes))
    for last, count in zip(np.cumsum(counts), counts, strict=True):
        first = last - count
        held_out[by_class[first : first + min(round(share * count), count - 1)]] = True
    if not held_out.any():
        raise ValueError(
            f"validation_share {share:g} of {len(images)} images in {len(classes)} classes leaves none to validate on "
            f"in {where}"
        )
    return FoundImages(
        SomeImages(images, np.flatnonzero(~held_out)), SomeImages(images, np.flatnonzero(held_out)), classes
    )


def _split_directories(root: Path) -> tuple[Path, Path | None]:
    """The places of the training images, and of the validation images if they are apart."""
    validation = next((root / name for name in VALIDATION_NAMES if (root / name).is_dir()), None)
    return (root / "train" if (root / "train").is_dir() else root), validation


def _class_directories(directory: Path) -> list[os.DirEntry[str]]:
    """The directories in it, sorted, if any of them has images."""
    with os.scandir(directory) as entries:
        found = sorted(
            (entry for entry in entries if not entry.name.startswith(".") and kind_of(entry) == "directory"),
            key=lambda entry: entry.name,
        )
    return found if any(next(_image_names(entry.path), None) for entry in found) else []


def _image_names(directory: str) -> Iterator[str]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.lower().endswith(SUFFIXES) and not entry.name.startswith(".") and kind_of(entry) == "file":
                yield entry.name


def _stamps(entries: Sequence[os.DirEntry[str]]) -> tuple[tuple[str, int], ...]:
    """Name and time of change of each directory: they change when files come or go."""
    return tuple((entry.name, entry.stat().st_mtime_ns) for entry in entries)


def _tree(root: str, directories: Sequence[str], classes: Sequence[str]) -> TreeImages:
    names: list[str] = []
    labels: list[Integers] = []
    label_of = {name: label for label, name in enumerate(classes)}
    for directory in directories:
        found = sorted(_image_names(os.path.join(root, directory)))  # noqa: PTH118  # faster
        names.extend(f"{directory}/{name}" for name in found)
        labels.append(np.full(len(found), label_of[directory], dtype=np.int64))
    return TreeImages(root, names, np.concatenate(labels) if labels else np.empty(0, dtype=np.int64))


def _split_files(files: Sequence[DataFile], path: str) -> tuple[tuple[StampedFile, ...], tuple[StampedFile, ...]]:
    """The files to train on and those to validate on; none of the latter if no name says so."""
    train, validation, others = [], [], []
    for file in files:
        words = set(re.split("[^a-z]+", file.name.lower()))
        if "train" in words:
            train.append(file)
        elif words.intersection(VALIDATION_NAMES):
            validation.append(file)
        elif "test" not in words:
            others.append(file)
    if not train and not validation:
        train, others = others, []
    if others or not train:
        names = ", ".join(file.name for file in files[:8])
        raise ValueError(f"path {path!r} has files of which it is not clear whether to train on them: {names}")
    return tuple(map(_stamped, train)), tuple(map(_stamped, validation))


def _stamped(file: DataFile) -> StampedFile:
    return StampedFile(file.path, file.num_bytes, file.path.stat().st_mtime_ns)


def _content(directory: Path) -> str:
    """The first names in a directory, for a message."""
    if not directory.is_dir():
        return f"a file named {directory.name!r}"
    names = sorted(entry.name + "/" * entry.is_dir() for entry in directory.iterdir())
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return (", ".join(names[:8]) or "nothing") + more
