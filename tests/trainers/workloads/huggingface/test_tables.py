"""Tables as users have them: what is read of CSV, TSV and Parquet files, and what is refused with the file's name."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers.damaged import damage_data
from trainers.workloads.huggingface.tables import labelled_rows

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")


NO_UTF_8 = b"caf\xe9"


def rows(path: Path) -> list[tuple[str, str]]:
    return list(labelled_rows("path", str(path), "text", "label"))


def table(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


@pytest.mark.parametrize("empty", ["", '""'])
@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_an_empty_cell_is_a_missing_one(tmp_path: Path, suffix: str, delimiter: str, empty: str) -> None:
    path = tmp_path / f"rows{suffix}"
    with pytest.raises(ValueError, match=rf"path .*rows{suffix}: row 1 has no label"):
        rows(table(path, f"text{delimiter}label\na{delimiter}x\nb{delimiter}{empty}\n"))
    with pytest.raises(ValueError, match=rf"path .*rows{suffix}: row 1 has no text"):
        rows(table(path, f"text{delimiter}label\na{delimiter}x\n{empty}{delimiter}y\n"))


def test_words_that_stand_for_nothing_elsewhere_are_texts_and_labels(tmp_path: Path) -> None:
    found = rows(table(tmp_path / "rows.csv", "text,label\nNA,null\nnan,NULL\n"))
    assert found == [("NA", "null"), ("nan", "NULL")]


def test_an_empty_text_of_parquet_is_one_and_a_null_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": ["a", ""], "label": ["x", "y"]}), path)
    assert rows(path) == [("a", "x"), ("", "y")]
    parquet.write_table(pyarrow.table({"text": ["a", ""], "label": ["x", None]}), path)
    with pytest.raises(ValueError, match=r"rows.parquet: row 1 has no label"):
        rows(path)


def test_damaged_data_of_parquet_are_refused_with_the_files_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": ["a great film"] * 100, "label": ["x", "y"] * 50}), path)
    with pytest.raises(ValueError, match=r"rows.parquet is not a whole Parquet file: "):
        rows(damage_data(path))


def test_two_columns_of_the_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"text_column 'text' is the name of 2 columns in .*rows.csv"):
        rows(table(tmp_path / "rows.csv", "text,label,text\na,x,b\n"))
    twice = pyarrow.table([["a"], ["x"], ["y"]], names=["text", "label", "label"])
    parquet.write_table(twice, tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"label_column 'label' is the name of 2 columns in .*rows.parquet"):
        rows(tmp_path / "rows.parquet")
    assert rows(table(tmp_path / "others.csv", "text,label,id,id\na,x,1,2\n")) == [("a", "x")]


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([["x"], ["y"]], "list<.*>"),
        ([{"name": "x"}, {"name": "y"}], "struct<.*>"),
        ([b"x", NO_UTF_8], "binary"),
        (pyarrow.array([b"x", NO_UTF_8]).view("string"), "string"),
    ],
)
def test_labels_that_are_no_text_are_refused_with_the_column(tmp_path: Path, labels: Any, kind: str) -> None:
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "label": labels}), tmp_path / "rows.parquet")
    with pytest.raises(
        ValueError, match=rf"^label_column 'label' in .*rows.parquet holds {kind}, which cannot be read as text: "
    ):
        rows(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([True, False], ["true", "false"]), ([b"x", b"y"], ["x", "y"]), ([1.5, 2], ["1.5", "2"])],
)
def test_labels_may_be_of_any_type_with_one_text_each(tmp_path: Path, labels: Any, expected: list[str]) -> None:
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "label": labels}), tmp_path / "rows.parquet")
    assert rows(tmp_path / "rows.parquet") == list(zip(["a", "b"], expected, strict=True))


FILMS = [('"Solaris', "long"), ("so slow", "long"), ('"Duel" is short', "short"), ('a "B" film', "short")]


def test_marks_of_a_tsv_without_quoting_are_part_of_the_text(tmp_path: Path) -> None:
    films = [*FILMS, ('Heat"', "long")]
    found = rows(table(tmp_path / "films.tsv", "".join(f"{a}\t{b}\n" for a, b in [("text", "label"), *films])))
    assert found == films


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("texts", [['"Solaris"', '"', 'the "B" film'], ["one\ttab", "two\nlines", 'both\n\t"', '"']])
def test_marks_of_a_quoted_tsv_enclose_cells(tmp_path: Path, texts: list[str], quoting: Any) -> None:
    films = [(text, f"class {number}") for number, text in enumerate(texts)]
    with (tmp_path / "films.tsv").open("w", newline="") as stream:
        csv.writer(stream, delimiter="\t", quoting=quoting).writerows([("text", "label"), *films])
    assert rows(tmp_path / "films.tsv") == films


def test_a_tsv_that_fits_neither_way_is_refused_with_both_reasons(tmp_path: Path) -> None:
    path = table(tmp_path / "films.tsv", 'text\tlabel\n"Solaris\tlong\nDuel\tshort\tmore\n')
    with pytest.raises(
        ValueError,
        match=r"films.tsv cannot be read as a table: .*Expected 2 columns, got 3: .*, and with quoted cells: ",
    ):
        rows(path)


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@pytest.mark.parametrize("text", ['"Solaris" ' * 300_000, "long film " * 300_000], ids=["with marks", "without"])
def test_a_text_may_have_megabytes(tmp_path: Path, suffix: str, text: str) -> None:
    films = [("short", "x"), (text, "y"), ("also short", "x")]
    with (tmp_path / f"films{suffix}").open("w", newline="") as stream:
        csv.writer(stream, delimiter={".csv": ",", ".tsv": "\t"}[suffix]).writerows([("text", "label"), *films])
    assert rows(tmp_path / f"films{suffix}") == films
