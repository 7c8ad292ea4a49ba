"""Errors of pyarrow on Parquet files: which of them are about what is in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers.damaged import damage_data
from trainers.data.parquet import whole_parquet

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")


def read(path: Path) -> Any:
    with whole_parquet(path, extra="text", purpose="this test"), parquet.ParquetFile(path) as stream:
        return stream.read()


def test_a_file_that_is_damaged_or_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pyarrow.table({"text": ["some text"] * 100})
    parquet.write_table(table, path)
    assert read(path) == table
    with pytest.raises(ValueError, match=r"^/.*rows.parquet is not a whole Parquet file: "):
        read(damage_data(path))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"^/.*rows.parquet is not a whole Parquet file: "):
        read(path)


def test_errors_of_the_system_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nowhere.parquet")
    with pytest.raises(MemoryError), whole_parquet(tmp_path, extra="text", purpose="this test"):
        raise pyarrow.ArrowMemoryError("no memory")
