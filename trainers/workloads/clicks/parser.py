"""Lines of a Criteo log to numbers: label, 13 counts and 26 categories, separated by tabs; empty where missing.

A whole block of lines is read at once with array operations, which is faster than a loop over the fields of each line
where the block fits the processor's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

NUM_COUNTS = 13
NUM_CATEGORIES = 26
"""Both are columns of Criteo's format."""
NUM_FIELDS = 1 + NUM_COUNTS + NUM_CATEGORIES

EXAMPLE = np.dtype([("counts", "<f4", (NUM_COUNTS,)), ("categories", "<u4", (NUM_CATEGORIES,)), ("label", "u1")])
"""An example as it is kept: log(1 + count), 0 where missing or negative; for each category a number that stands for its
value, 0 where missing; whether there was a click. 157 bytes."""

BLOCK_BYTES = 2**16
"""A good size of what is read at once: with blocks of a megabyte it takes a quarter longer."""

MAX_COUNT_DIGITS = 18
"""Most digits of a count, so that it fits an int64."""
MAX_CATEGORY_DIGITS = 16
"""Most digits of a category, so that it fits a uint64; Criteo's have 8."""

TAB, LINE_END, CARRIAGE_RETURN, MINUS = b"\t\n\r-"

Bytes: TypeAlias = NDArray[np.uint8]
Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ParsedLines:
    """Lines that were read."""

    examples: NDArray[np.void]
    """Lines that are as they should be, in order: (k,) `EXAMPLE`."""
    malformed_lines: Integers
    """The lines that were not, counted from 0: (m,)."""


def parse(text: bytes) -> ParsedLines:
    """The lines of the text; the last need not be ended. Lines without any character are passed over."""
    if text and not text.endswith(b"\n"):
        text += b"\n"
    characters = np.frombuffer(text, dtype=np.uint8)
    separators = np.flatnonzero((characters == TAB) | (characters == LINE_END))
    is_line_end = characters[separators] == LINE_END
    line_ends = np.flatnonzero(is_line_end)  # as positions among the separators
    num_fields = np.diff(line_ends, prepend=-1)
    ends = separators[line_ends]
    begins = np.concatenate(([0], ends[:-1] + 1)) if len(ends) else ends
    is_empty = (ends == begins) | ((ends == begins + 1) & (characters[begins] == CARRIAGE_RETURN))
    has_fields = num_fields == NUM_FIELDS
    complete = np.flatnonzero(has_fields)
    # (lines, 40): where each field ends, and where it begins.
    stops = separators[line_ends[complete, None] + np.arange(1 - NUM_FIELDS, 1)]
    starts = np.empty_like(stops)
    starts[:, 0] = begins[complete]
    starts[:, 1:] = stops[:, :-1] + 1
    stops[:, -1] -= characters[stops[:, -1] - 1] == CARRIAGE_RETURN

    label, is_label, label_is_missing = integers(characters, starts[:, 0], stops[:, 0])
    counts = slice(1, 1 + NUM_COUNTS)
    numbers, are_counts, _ = integers(characters, starts[:, counts], stops[:, counts])
    categories = slice(1 + NUM_COUNTS, NUM_FIELDS)
    values, are_categories, is_missing = hexadecimals(characters, starts[:, categories], stops[:, categories])
    is_well_formed = (
        is_label & ~label_is_missing & ((label == 0) | (label == 1)) & are_counts.all(1) & are_categories.all(1)
    )
    examples = examples_of(
        label[is_well_formed], numbers[is_well_formed], values[is_well_formed], is_missing[is_well_formed]
    )
    has_fields[complete] = is_well_formed
    return ParsedLines(examples, np.flatnonzero(~has_fields & ~is_empty))


def examples_of(
    labels: Integers, counts: Integers, categories: NDArray[np.uint64], is_missing: NDArray[np.bool_]
) -> NDArray[np.void]:
    """Examples (k,) as they are kept, of labels (k,), counts (k, 13), where missing 0, and categories (k, 26)."""
    examples = np.zeros(len(labels), dtype=EXAMPLE)
    examples["label"] = labels
    examples["counts"] = np.log1p(np.maximum(counts, 0))
    examples["categories"] = np.where(is_missing, 0, category_numbers(categories))
    return examples


def category_numbers(values: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """A number in [1, 2^32) for each category value, spread evenly, so that a remainder of it is a good hash."""
    # The finaliser of SplitMix64: a change of any bit changes each bit of the result with probability 1/2.
    mixed = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(2**32 - 1)).astype(np.uint32) + np.uint32(1)


def integers(
    characters: Bytes, starts: Integers, stops: Integers
) -> tuple[Integers, NDArray[np.bool_], NDArray[np.bool_]]:
    """The decimal numbers between starts and stops, whether they are such (or missing), and whether they are missing.

    A missing one is 0.
    """
    is_missing = starts == stops
    is_negative = ~is_missing & (characters[np.minimum(starts, len(characters) - 1)] == MINUS)
    digits_start = starts + is_negative
    is_legal = is_missing | (stops > digits_start)
    values = np.zeros(starts.shape, dtype=np.int64)
    is_legal &= stops - digits_start <= MAX_COUNT_DIGITS
    for place in range(_longest(digits_start, stops, MAX_COUNT_DIGITS)):
        position = digits_start + place
        inside = position < stops
        digit = characters[np.where(inside, position, 0)].astype(np.int64) - ord("0")
        is_legal &= ~inside | ((digit >= 0) & (digit <= 9))
        values = np.where(inside, values * 10 + digit, values)
    return np.where(is_negative, -values, values), is_legal, is_missing


def hexadecimals(
    characters: Bytes, starts: Integers, stops: Integers
) -> tuple[NDArray[np.uint64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Hexadecimal numbers, as `integers`, in small or capital letters, without sign."""
    is_missing = starts == stops
    is_legal = stops - starts <= MAX_CATEGORY_DIGITS
    values = np.zeros(starts.shape, dtype=np.uint64)
    for place in range(_longest(starts, stops, MAX_CATEGORY_DIGITS)):
        position = starts + place
        inside = position < stops
        digit = _HEXADECIMAL_DIGITS[characters[np.where(inside, position, 0)]]
        is_legal &= ~inside | (digit < 16)
        values = np.where(inside, values * np.uint64(16) + digit, values)
    return values, is_legal, is_missing


def _longest(starts: Integers, stops: Integers, limit: int) -> int:
    return min(int((stops - starts).max(initial=0)), limit)


def _hexadecimal_digits() -> NDArray[np.uint64]:
    """The value of each character as a hexadecimal digit; 255 for those that are none."""
    table = np.full(256, 255, dtype=np.uint64)
    for value, character in enumerate(b"0123456789abcdef"):
        table[character] = value
    for value, character in enumerate(b"ABCDEF"):
        table[character] = 10 + value
    return table


_HEXADECIMAL_DIGITS = _hexadecimal_digits()
