"""Click logs to examples on disk: text, compressed or Parquet, by one process or several, malformed lines counted."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers.damaged import damage_data
from trainers.data.files import data_files
from trainers.workloads.clicks import examples
from trainers.workloads.clicks.examples import ClickLog, read_click_log
from trainers.workloads.clicks.generator import click_lines
from trainers.workloads.clicks.parser import NUM_COUNTS, NUM_FIELDS, parse

pytestmark = pytest.mark.processes

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

LINES = b"".join(click_lines(3000, seed=0))


def read(tmp_path: Path, path: Path, *, limit: int = 0) -> ClickLog:
    return read_click_log(
        "path", str(path), file_pattern=None, cache_directory=tmp_path / "cache", max_malformed_lines=limit
    )


def in_three_files(root: Path) -> Path:
    """A log over three days; the second is compressed, and no day ends with a line's end."""
    root.mkdir()
    lines = LINES.splitlines()
    (root / "day_1").write_bytes(b"\n".join(lines[:1200]))
    (root / "day_2.gz").write_bytes(gzip.compress(b"\n".join(lines[1200:2000])))
    (root / "day_10").write_bytes(b"\n".join(lines[2000:]))
    return root


def table(*, label: str, count: str, category: str, names: str = "column {}") -> Any:
    """The log as a table with columns of those types."""
    rows = [line.split("\t") for line in LINES.decode().splitlines()]
    columns: list[Any] = [pyarrow.array([int(row[0]) for row in rows]).cast(label)]
    columns += [
        pyarrow.array([int(row[index]) if row[index] else None for row in rows]).cast(count)
        for index in range(1, 1 + NUM_COUNTS)
    ]
    for index in range(1 + NUM_COUNTS, NUM_FIELDS):
        fields = [row[index] or None for row in rows]
        if category == "int64":
            columns.append(pyarrow.array([None if field is None else int(field, 16) for field in fields]))
        else:
            columns.append(pyarrow.array(fields, type=category))
    return pyarrow.table(columns, names=[names.format(index) for index in range(NUM_FIELDS)])


@pytest.mark.parametrize("in_processes", [False, True])
def test_files_of_a_directory_are_one_log_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_processes: bool
) -> None:
    root = in_three_files(tmp_path / "days")
    if in_processes:
        monkeypatch.setattr(examples, "PART_BYTES", 200_000)
        assert len(list(examples._in_portions(data_files("path", str(root))))) == 4
    log = read(tmp_path, root)
    assert log.examples.tobytes() == parse(LINES).examples.tobytes()
    assert (log.num_malformed_lines, log.first_malformed_line) == (0, "")


@pytest.mark.parametrize(
    ("label", "count", "category"),
    [("int64", "int64", "string"), ("bool", "float64", "large_string"), ("int8", "int32", "int64")],
)
def test_parquet_gives_the_examples_of_the_text(tmp_path: Path, label: str, count: str, category: str) -> None:
    path = tmp_path / "clicks.parquet"
    parquet.write_table(table(label=label, count=count, category=category), path, row_group_size=700)
    assert read(tmp_path, path).examples.tobytes() == parse(LINES).examples.tobytes()


def test_rows_of_parquet_that_are_malformed_are_counted(tmp_path: Path) -> None:
    whole = table(label="int64", count="int64", category="string")
    labels = whole.column(0).to_pylist()
    labels[1000], labels[2000] = None, 7
    categories = whole.column(NUM_FIELDS - 1).to_pylist()
    categories[1500] = "zebra"
    changed = whole.set_column(0, "label", pyarrow.array(labels))
    changed = changed.set_column(NUM_FIELDS - 1, "last", pyarrow.array(categories))
    parquet.write_table(changed, tmp_path / "clicks.parquet", row_group_size=700)
    log = read(tmp_path, tmp_path / "clicks.parquet", limit=3)
    assert (log.num_malformed_lines, log.first_malformed_line) == (3, f"{tmp_path / 'clicks.parquet'}, row 1001")
    expected = np.delete(parse(LINES).examples, [1000, 1500, 2000])
    assert log.examples.tobytes() == expected.tobytes()


@pytest.mark.parametrize("in_processes", [False, True])
def test_malformed_lines_are_passed_over_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_processes: bool
) -> None:
    root = in_three_files(tmp_path / "days")
    lines = (root / "day_10").read_bytes().splitlines()
    lines[900:900] = [b"rubbish", b"1\t2"]
    (root / "day_10").write_bytes(b"\n".join(lines) + b"\n" + b"x" * 300_000)
    if in_processes:
        monkeypatch.setattr(examples, "PART_BYTES", 200_000)
    log = read(tmp_path, root, limit=3)
    assert log.examples.tobytes() == parse(LINES).examples.tobytes()
    assert (log.num_malformed_lines, log.first_malformed_line) == (3, f"{root / 'day_10'}, line 901")
    # The limit holds for what is in the cache, too, and for what is not.
    for cache in (tmp_path, tmp_path / "other"):
        with pytest.raises(
            ValueError, match=r"max_malformed_lines is 2, but path has at least 3, .*day_10, line 901: "
        ):
            read(cache, root, limit=2)


def test_a_log_is_parsed_once(tmp_path: Path) -> None:
    (tmp_path / "clicks.tsv").write_bytes(LINES)
    for _ in range(2):
        read(tmp_path, tmp_path / "clicks.tsv")
    (entry,) = (tmp_path / "cache").glob("clicks-*/examples")
    assert entry.stat().st_size == 3000 * 157
    with entry.open("r+b") as stream:
        stream.truncate(1570)
    assert len(read(tmp_path, tmp_path / "clicks.tsv").examples) == 3000


def test_files_that_are_no_logs_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(ValueError, match=r"path has no examples: 1 empty file, the first of them .*empty.tsv"):
        read(tmp_path, tmp_path / "empty.tsv")
    (tmp_path / "prose.tsv").write_text("no log\nat all\n")
    with pytest.raises(ValueError, match=r"every line is malformed, the first of them .*prose.tsv, line 1: a line is"):
        read(tmp_path, tmp_path / "prose.tsv", limit=5)
    packed = gzip.compress(LINES)
    for content in (packed[:-1000], b"plain", packed[:500] + b"\xff" * 500 + packed[1000:]):
        (tmp_path / "clicks.gz").write_bytes(content)
        with pytest.raises(ValueError, match=r"clicks.gz is not a whole gzip file: "):
            read(tmp_path, tmp_path / "clicks.gz", limit=10**6)
    (tmp_path / "clicks.parquet").write_bytes(LINES[:1000])
    with pytest.raises(ValueError, match=r"clicks.parquet is not a whole Parquet file: "):
        read(tmp_path, tmp_path / "clicks.parquet")
    whole = table(label="int64", count="int64", category="string")
    parquet.write_table(whole.drop_columns(["column 3"]), tmp_path / "clicks.parquet")
    with pytest.raises(ValueError, match=r"must have 40 columns .*, but has 39"):
        read(tmp_path, tmp_path / "clicks.parquet")
    words = pyarrow.array(["word"] * 3000)
    parquet.write_table(whole.set_column(3, "count", words), tmp_path / "clicks.parquet")
    with pytest.raises(ValueError, match=r"must have numbers in column 4 \(count\), but has string"):
        read(tmp_path, tmp_path / "clicks.parquet")


@pytest.mark.parametrize("in_processes", [False, True])
def test_damaged_data_of_parquet_are_refused_with_the_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_processes: bool
) -> None:
    path = tmp_path / "clicks.parquet"
    parquet.write_table(table(label="int64", count="int64", category="string"), path, row_group_size=700)
    if in_processes:
        monkeypatch.setattr(examples, "PART_BYTES", 1)
    with pytest.raises(ValueError, match=r"clicks.parquet is not a whole Parquet file: "):
        read(tmp_path, damage_data(path))
    assert not list((tmp_path / "cache").glob("*clicks-*/*"))
