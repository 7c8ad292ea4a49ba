"""Columns of several files that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trainers.images.data import table, write_parquet
from trainers.workloads.images.columns import read_columns


def test_labels_of_two_types_are_refused_with_the_files(tmp_path: Path) -> None:
    paths = [
        write_parquet(tmp_path / f"{index}.parquet", table(3, names=has_names))
        for index, has_names in enumerate((False, True))
    ]
    with pytest.raises(ValueError, match=r"got integers in some and strings in others of ") as refused:
        read_columns(paths, "image", "label")
    assert str(refused.value).endswith(f"{paths[0]}, {paths[1]}")
