"""Lines of Criteo's format to examples, held to a plain loop over fields."""

from __future__ import annotations

import numpy as np
import pytest

from trainers.workloads.clicks.generator import click_lines
from trainers.workloads.clicks.parser import EXAMPLE, NUM_CATEGORIES, NUM_COUNTS, category_numbers, parse


def line(label: str = "1", counts: str = "5", categories: str = "ab12cd34") -> str:
    return "\t".join([label, *[counts] * NUM_COUNTS, *[categories] * NUM_CATEGORIES])


def test_a_log_is_read_as_a_loop_reads_it() -> None:
    text = b"".join(click_lines(500, seed=3))
    block = parse(text)
    assert len(block.malformed_lines) == 0
    assert block.examples.dtype == EXAMPLE
    rows = [row.split("\t") for row in text.decode().splitlines()]
    assert len(block.examples) == len(rows) == 500
    for example, row in zip(block.examples, rows, strict=True):
        assert example["label"] == int(row[0])
        counts = [np.log1p(int(field)) if field else 0 for field in row[1 : 1 + NUM_COUNTS]]
        np.testing.assert_allclose(example["counts"], counts, rtol=1e-7)  # rounded to float32
        values = np.array([int(field or "0", 16) for field in row[1 + NUM_COUNTS :]], dtype=np.uint64)
        missing = np.array([field == "" for field in row[1 + NUM_COUNTS :]])
        assert (example["categories"] == np.where(missing, 0, category_numbers(values))).all()


@pytest.mark.parametrize(
    ("field", "count"), [("0", 0), ("-3", 0), ("", 0), ("7", 7), ("0012", 12), ("9" * 18, 10**18 - 1)]
)
def test_counts_are_taken_as_logarithms_and_none_below_zero(field: str, count: int) -> None:
    (example,) = parse(line(counts=field).encode()).examples
    np.testing.assert_allclose(example["counts"], np.log1p(count), rtol=1e-7)


def test_categories_are_numbers_of_their_own_and_zero_only_where_missing() -> None:
    fields = ["", "0", "1", "a", "A", "00a", "f" * 16]
    examples = parse("\n".join(line(categories=field) for field in fields).encode()).examples
    numbers = examples["categories"][:, 0].tolist()
    assert numbers[0] == 0
    assert 0 not in numbers[1:]
    assert numbers[3] == numbers[4] == numbers[5]
    assert len(set(numbers)) == 5
    many = category_numbers(np.arange(200_000, dtype=np.uint64))
    assert many.min() >= 1
    # Of 200,000 values, 5 pairs are to be expected to share a number, with a deviation of 2.2.
    assert len(np.unique(many)) >= 200_000 - 20
    # Their remainders fill a table evenly: 200 in each row, with a deviation of 14.
    assert 130 < np.bincount(many % 1000, minlength=1000).min() < np.bincount(many % 1000).max() < 270


@pytest.mark.parametrize(
    "malformed",
    [
        "1",
        line() + "\t",
        line()[:-9],
        line(label=""),
        line(label="2"),
        line(label="-1"),
        line(label="x"),
        line(counts="1.5"),
        line(counts="-"),
        line(counts="1 "),
        line(counts="--1"),
        line(counts="1" * 19),
        line(categories="g"),
        line(categories="-1"),
        line(categories="0x1f"),
        line(categories="1" * 17),
        line().replace("\t", " "),
        "中文",
    ],
)
def test_malformed_lines_are_passed_over_and_named(malformed: str) -> None:
    text = "\n".join([line("0"), malformed, line("1"), "", malformed, line("0")])
    block = parse(text.encode())
    assert block.malformed_lines.tolist() == [1, 4]
    assert block.examples["label"].tolist() == [0, 1, 0]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n\n", "\r\n\r\n"])
def test_line_ends_of_any_system_are_read(end: str) -> None:
    block = parse("\r\n".join([line("0"), line("1", "", ""), line("1")]).encode() + end.encode())
    assert block.examples["label"].tolist() == [0, 1, 1]
    assert len(block.malformed_lines) == 0


def test_no_text_is_no_lines() -> None:
    for text in (b"", b"\n", b"\r\n\n"):
        block = parse(text)
        assert (len(block.examples), len(block.malformed_lines)) == (0, 0)
