"""Texts with labels: a user's table (CSV, TSV, Parquet), or pieces of Python's own standard library.

The latter asks from which package a piece of source comes: real data that every Python has, no download.
"""

from __future__ import annotations

import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainers.workloads.huggingface.tables import labelled_rows
from trainers.workloads.language.stdlib_text import VALIDATION_PERIOD

PACKAGES = ("asyncio", "email", "http", "importlib", "logging", "multiprocessing", "unittest", "urllib", "xml")
"""Packages that every Python from 3.11 on has and that are large enough to learn from."""

NUM_WORDS = 1024
"""Vocabulary of `WordTokenizer`: enough to tell the packages apart, and small beside any model."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\sA-Za-z0-9]")
"""Parts of identifiers, numbers, and every other sign by itself; white space counts for nothing."""


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Some texts and the class of each."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    """Indices into the names of the classes."""


@dataclass(frozen=True, slots=True)
class LabelledCorpus:
    """A classification task."""

    train: LabelledTexts
    validation: LabelledTexts
    class_names: tuple[str, ...]


class WordTokenizer:
    """Numbers the words that are most frequent in some texts; one number stands for all others."""

    num_tokens = NUM_WORDS
    end_of_text: int | None = 0
    identity = "words"

    def __init__(self, texts: Sequence[str]) -> None:
        counts = Counter(chain.from_iterable(map(_WORD.findall, texts)))
        # Sorted, because words that are equally frequent come in the order of the texts.
        words = sorted(counts, key=lambda word: (-counts[word], word))[: NUM_WORDS - 2]
        self._numbers = {word: number for number, word in enumerate(words, start=2)}

    def encode(self, text: bytes) -> NDArray[np.uint32]:
        """The numbers of the words: (n,)."""
        return np.array(list(map(self._numbers.get, _WORD.findall(text.decode()), repeat(1))), dtype=np.uint32)


@cache
def stdlib_packages(length: int) -> LabelledCorpus:
    """Pieces of `length` characters of the source of `PACKAGES`, as many of each, and the package of each piece.

    Pieces do not overlap; those of a package are spread over all its files, and one in ten is held out. Guessing gives
    an accuracy of 1/9.

    Raises:
        ValueError: this Python comes without the source of its library, or the packages have too few such pieces.
    """
    directory = Path(sysconfig.get_paths()["stdlib"])
    of_package = [list(_pieces(directory / name, length)) for name in PACKAGES]
    num_each = min(map(len, of_package))
    if num_each < VALIDATION_PERIOD:
        raise ValueError(
            f"{directory} has {num_each} pieces of {length} characters of the package that has fewest; a smaller "
            "context_length gives more, and some slim distributions of Python leave the source out"
        )
    spread = [[pieces[index * len(pieces) // num_each] for index in range(num_each)] for pieces in of_package]
    rows = [(index, text, label) for label, pieces in enumerate(spread) for index, text in enumerate(pieces)]
    held_out = [(text, label) for index, text, label in rows if index % VALIDATION_PERIOD == 0]
    rest = [(text, label) for index, text, label in rows if index % VALIDATION_PERIOD != 0]
    return LabelledCorpus(_labelled(rest), _labelled(held_out), PACKAGES)


@cache
def stdlib_words(length: int) -> WordTokenizer:
    """The words of the training texts of `stdlib_packages`."""
    return WordTokenizer(stdlib_packages(length).train.texts)


def read_corpus(
    path: str, *, validation_path: str | None = None, text_column: str = "text", label_column: str = "label"
) -> LabelledCorpus:
    """The texts of a table, or of all tables of a directory; the classes are the labels there are, sorted.

    Without a `validation_path`, one text in ten is held out, chosen by the text itself: equal texts are on one side.
    Each class keeps a text to train on.

    Raises:
        ValueError: no such files or columns, a text or label is missing or no text, fewer than two classes, or a label
            that occurs in validation only.
    """
    rows = list(labelled_rows("path", path, text_column, label_column))
    if validation_path is None:
        texts = _held_out_texts(rows)
        held_out = [row for row in rows if row[0] in texts]
        rows = [row for row in rows if row[0] not in texts]
    else:
        held_out = list(labelled_rows("validation_path", validation_path, text_column, label_column))
    names = tuple(sorted({label for _, label in rows}))
    if len(names) < 2:
        raise ValueError(
            f"label_column {label_column!r} must have at least two labels, got {', '.join(names) or 'none'}"
        )
    if not rows or not held_out:
        way_out = "; give validation_path" if validation_path is None else ""
        raise ValueError(f"path {path!r} gives {len(rows)} texts to train on and {len(held_out)} held out{way_out}")
    numbers = {name: number for number, name in enumerate(names)}
    unknown = sorted({label for _, label in held_out} - numbers.keys())
    if unknown:
        raise ValueError(
            f"label_column {label_column!r}: {unknown[0]!r} is held out, but not among the training labels"
        )
    train, validation = (_labelled([(text, numbers[label]) for text, label in part]) for part in (rows, held_out))
    return LabelledCorpus(train, validation, names)


def _held_out_texts(rows: Sequence[tuple[str, str]]) -> set[str]:
    """One text in ten of the rows, but for the first of each class that would have none to train on."""
    held_out = {text for text, _ in rows if zlib.crc32(text.encode()) % VALIDATION_PERIOD == 0}
    trained = {label for text, label in rows if text not in held_out}
    for text, label in rows:
        if label not in trained:
            trained.add(label)
            held_out.discard(text)
    return held_out


def _labelled(rows: Sequence[tuple[str, int]]) -> LabelledTexts:
    return LabelledTexts(tuple(text for text, _ in rows), tuple(label for _, label in rows))


def _pieces(package: Path, length: int) -> Iterator[str]:
    # Sorted, because the order of a directory is the file system's.
    for file in sorted(package.rglob("*.py")):
        if not {"test", "tests"} & set(file.relative_to(package).parts):
            text = file.read_text(encoding="utf-8")
            yield from (text[start : start + length] for start in range(0, len(text) - length + 1, length))
