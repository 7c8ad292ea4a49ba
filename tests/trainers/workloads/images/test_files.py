"""Images as they are found and split, and the messages where they are not."""

from __future__ import annotations

import errno
import os
import pickle
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.trainers.images.data import (
    CLASSES,
    drawing,
    encoded,
    rows,
    table,
    write_arrow,
    write_parquet,
    write_split_tree,
    write_tree,
)
from trainers.workloads.images import columns as image_columns
from trainers.workloads.images import reading
from trainers.workloads.images.files import FoundImages, Images, find_images
from trainers.workloads.images.unreadable import UnreadableImage


def find(path: Path, **options: Any) -> FoundImages:
    return find_images(
        str(path), **{"validation_share": None, "image_column": "image", "label_column": "label", **options}
    )


def contents(images: Images) -> Counter[tuple[bytes, int]]:
    return Counter((images.encoded(index), int(images.labels[index])) for index in range(len(images)))


def expected_rows(num_per_class: int, first_seed: int = 0) -> Counter[tuple[bytes, int]]:
    return Counter(zip(*rows(num_per_class, first_seed=first_seed), strict=True))


@pytest.mark.parametrize("name", ["validation", "val", "valid"])
def test_a_tree_with_splits(tmp_path: Path, name: str) -> None:
    write_split_tree(tmp_path, num_train=6, num_validation=3)
    (tmp_path / "validation").rename(tmp_path / name)
    (tmp_path / "test" / "unknown").mkdir(parents=True)
    found = find(tmp_path)
    assert found.classes == CLASSES
    assert (len(found.train), len(found.validation)) == (12, 6)
    assert found.train.labels.tolist() == [0] * 6 + [1] * 6
    assert found.train.name(6) == str(tmp_path / "train" / "square" / "0000.jpeg")
    assert found.train.encoded(7) == (tmp_path / "train" / "square" / "0001.png").read_bytes()
    assert found.validation.name(5) == str(tmp_path / name / "square" / "0002.jpeg")
    assert found.left_aside == f"of {tmp_path} are not read: test/"
    (tmp_path / "test" / "unknown").rmdir()
    (tmp_path / "test").rmdir()
    assert find(tmp_path).left_aside is None


def test_what_lies_beside_the_splits_is_named(tmp_path: Path) -> None:
    write_tree(tmp_path / "classes", num_per_class=3)
    assert find(tmp_path / "classes", validation_share=0.4).left_aside is None
    for name in ("train-0", "val", "test-0", "test-1"):
        write_parquet(tmp_path / "columns" / f"{name}.parquet", table(3))
    aside = find(tmp_path / "columns").left_aside
    assert aside == f"of {tmp_path / 'columns'} are not read: test-0.parquet, test-1.parquet"


def test_a_validation_split_may_lack_classes(tmp_path: Path) -> None:
    write_split_tree(tmp_path, num_train=2, num_validation=2)
    for file in (tmp_path / "validation" / "disc").iterdir():
        file.unlink()
    (tmp_path / "validation" / "disc").rmdir()
    assert find(tmp_path).validation.labels.tolist() == [1, 1]


@pytest.mark.parametrize("below", ["", "train"])
@pytest.mark.parametrize("share", [None, 0.25])
def test_a_share_of_each_class_is_held_out(tmp_path: Path, below: str, share: float | None) -> None:
    write_tree(tmp_path / below if below else tmp_path / "images", num_per_class=40)
    found = find(tmp_path if below else tmp_path / "images", validation_share=share)
    num_held_out = 4 if share is None else 10
    assert Counter(found.validation.labels.tolist()) == {0: num_held_out, 1: num_held_out}
    names = [images.name(index) for images in (found.train, found.validation) for index in range(len(images))]
    assert len(set(names)) == 80
    again = find(tmp_path if below else tmp_path / "images", validation_share=share)
    assert [again.validation.name(index) for index in range(8)] == [found.validation.name(i) for i in range(8)]
    # Not just the first ones.
    assert found.validation.name(0) != found.train.name(0).replace("0001", "0000")
    assert found.validation.labels.tolist() == sorted(found.validation.labels.tolist())


def test_a_small_class_keeps_an_image_to_train_on(tmp_path: Path) -> None:
    write_tree(tmp_path / "images", num_per_class=2)
    (tmp_path / "images" / "disc" / "0001.png").unlink()
    found = find(tmp_path / "images", validation_share=0.9)
    assert found.train.labels.tolist() == [0, 1]
    assert found.validation.labels.tolist() == [1]


def test_only_images_are_read(tmp_path: Path) -> None:
    write_tree(tmp_path / "images", num_per_class=4)
    disc = tmp_path / "images" / "disc"
    (disc / "._0000.jpeg").write_bytes(b"of another system")
    (disc / "notes.txt").write_text("")
    (disc / "nested.png").mkdir()
    (disc / "UPPER.JPG").write_bytes(encoded(drawing(0, 0), "JPEG"))
    (tmp_path / "images" / ".cache").mkdir()
    (tmp_path / "images" / ".cache" / "a.png").write_bytes(b"")
    found = find(tmp_path / "images", validation_share=0.25)
    assert len(found.train) + len(found.validation) == 9


def test_links_that_lead_nowhere_or_to_themselves_are_passed_over(tmp_path: Path) -> None:
    write_tree(tmp_path / "images", num_per_class=4)
    whole = find(tmp_path / "images", validation_share=0.25)
    (tmp_path / "images" / "disc" / "dangling.png").symlink_to("missing.png")
    (tmp_path / "images" / "disc" / "circle.png").symlink_to("circle.png")
    (tmp_path / "images" / "circle").symlink_to("circle")
    found = find(tmp_path / "images", validation_share=0.25)
    assert found.classes == whole.classes
    assert contents(found.train) == contents(whole.train)
    assert contents(found.validation) == contents(whole.validation)


def test_names_that_are_no_utf_8(tmp_path: Path) -> None:
    write_tree(tmp_path / "images", num_per_class=4)
    odd = os.fsencode(tmp_path / "images" / "disc") + b"/caf\xe9 \xf0.png"
    with open(odd, "wb") as file:  # noqa: PTH123  # a path of bytes
        file.write(encoded(drawing(0, 0)))
    found = find(tmp_path / "images", validation_share=0.25)
    images = [images for images in (found.train, found.validation) for index in range(len(images))]
    assert len(images) == 9
    assert b"caf\xe9" in b"".join(
        os.fsencode(i.name(n)) for i in (found.train, found.validation) for n in range(len(i))
    )
    assert sum(contents(found.train).values()) == len(found.train)


def test_new_files_are_seen_in_the_same_process(tmp_path: Path) -> None:
    write_split_tree(tmp_path, num_train=3, num_validation=3)
    first = find(tmp_path)
    assert find(tmp_path) is first
    (tmp_path / "train" / "disc" / "new.png").write_bytes(encoded(drawing(0, 99)))
    assert len(find(tmp_path).train) == len(first.train) + 1


@pytest.mark.parametrize("as_structures", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "arrow-file", "arrow-stream", "arrow-file-compressed"])
def test_columns_with_splits(tmp_path: Path, kind: str, as_structures: bool) -> None:
    def write(name: str, content: pa.Table) -> None:
        if kind == "parquet":
            write_parquet(tmp_path / f"{name}.parquet", content)
        else:
            compression = "zstd" if kind.endswith("compressed") else None
            write_arrow(tmp_path / f"{name}.arrow", content, as_stream="stream" in kind, compression=compression)

    parts = [table(10, first_seed=seed, as_structures=as_structures) for seed in (0, 100)]
    write("data/train-00000-of-00002", parts[0])
    write("data/train-00001-of-00002", parts[1])
    write("data/validation-00000-of-00001", table(5, first_seed=200, as_structures=as_structures))
    write("data/test-00000-of-00001", table(3, first_seed=300))
    found = find(tmp_path)
    assert found.classes == ("0", "1")
    assert contents(found.train) == expected_rows(10) + expected_rows(10, 100)
    assert contents(found.validation) == expected_rows(5, 200)
    assert found.train.name(27).endswith(f"train-00001-of-00002.{kind.split('-')[0]}, row 7")
    sent = pickle.loads(pickle.dumps(found.train))
    assert contents(sent) == contents(found.train)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_one_file_is_split_by_rows(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"birds.{suffix}"
    content = table(20, names=True)
    write_parquet(path, content) if suffix == "parquet" else write_arrow(path, content, as_stream=True)
    found = find(path)
    assert found.classes == CLASSES
    assert contents(found.train) + contents(found.validation) == expected_rows(20)
    assert Counter(found.validation.labels.tolist()) == {0: 2, 1: 2}


def test_class_names_in_dictionaries(tmp_path: Path) -> None:
    content = table(4, names=True)
    column = content.column("label").combine_chunks().dictionary_encode()
    write_parquet(tmp_path / "data.parquet", content.set_column(1, "label", column))
    assert find(tmp_path, validation_share=0.5).classes == CLASSES


def test_other_columns_by_name(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data.parquet", table(4).rename_columns(["photo", "species"]))
    found = find(tmp_path, image_column="photo", label_column="species", validation_share=0.25)
    assert contents(found.train) + contents(found.validation) == expected_rows(4)


def test_few_row_groups_are_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parquet(tmp_path / "data.parquet", table(40), row_group_size=2)
    images = find(tmp_path).train
    columns: Any = images._images  # type: ignore[attr-defined]
    monkeypatch.setattr(image_columns, "MAX_KEPT_BYTES", 20_000)
    for _ in range(2):
        for index in range(len(images)):
            images.encoded(index)
            assert columns._kept_bytes == sum(column.nbytes for column in columns._kept.values())
            assert columns._kept_bytes <= 20_000
    assert 1 <= len(columns._kept) < 10


def test_large_row_groups_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    content = table(20)
    write_parquet(tmp_path / "small.parquet", content)
    find(tmp_path)
    assert caplog.records == []
    monkeypatch.setattr(image_columns, "MAX_KEPT_BYTES", content.nbytes // 2)
    write_parquet(tmp_path / "other.parquet", content)
    find(tmp_path)
    assert "each with all of its row group of 0.0 MB on average" in caplog.records[0].getMessage()


def test_arrow_is_mapped_and_not_read(tmp_path: Path) -> None:
    write_arrow(tmp_path / "data.arrow", table(200), as_stream=True)
    before = pa.total_allocated_bytes()
    images = find(tmp_path).train
    for index in range(len(images)):
        images.encoded(index)
    assert pa.total_allocated_bytes() - before < 100_000 < (tmp_path / "data.arrow").stat().st_size


def test_a_row_without_bytes_is_unreadable(tmp_path: Path) -> None:
    content = table(4, as_structures=True)
    images = content.column("image").to_pylist()
    images[0]["bytes"] = images[1] = None
    content = content.set_column(0, "image", pa.array(images, type=content.schema.field("image").type))
    write_parquet(tmp_path / "train.parquet", content)
    write_parquet(tmp_path / "val.parquet", content)
    found = find(tmp_path).train
    for index in (0, 1):
        with pytest.raises(UnreadableImage, match="no bytes in that row"):
            found.encoded(index)
    assert found.encoded(2) == rows(4)[0][2]


def test_a_damaged_row_group_is_unreadable(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "train.parquet", table(20))
    write_parquet(tmp_path / "val.parquet", table(5))
    found = find(tmp_path).train
    data = bytearray(path.read_bytes())
    data[4:60] = bytes(56)  # the header of the first page
    path.write_bytes(bytes(data))
    with pytest.raises(UnreadableImage, match="a part of the file cannot be read"):
        found.encoded(0)
    assert found.encoded(30) == rows(20)[0][30]


def test_too_many_open_files_say_nothing_about_an_image(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "train.parquet", table(20))
    write_parquet(tmp_path / "val.parquet", table(5))
    found = find(tmp_path).train
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for read in (lambda: reading.encoded(found, 0), lambda: image_columns.read_columns([path], "image", "label")):
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, before[1]))
        try:
            with pytest.raises(OSError, match="Too many open files") as caught:
                read()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert caught.value.errno == errno.EMFILE
    assert reading.encoded(found, 0) == rows(20)[0][0]


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        find(path, **options)
    return str(caught.value)


def test_no_such_path(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing") == f"path {str(tmp_path / 'nothing')!r} does not exist"


def test_nothing_of_use_at_the_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_text("")
    (tmp_path / "c.csv").write_text("")
    message = refused(tmp_path)
    assert message.startswith(f"path {str(tmp_path)!r} has neither directories of classes with images (*.jpg, ")
    assert message.endswith("found: a/, c.csv")


def test_an_empty_class_is_named(tmp_path: Path) -> None:
    write_tree(tmp_path / "train", num_per_class=3)
    (tmp_path / "train" / "empty" / "deeper").mkdir(parents=True)
    assert refused(tmp_path).startswith(f"{tmp_path / 'train' / 'empty'} has no image named *.jpg, ")
    assert refused(tmp_path).endswith("found: deeper/")


def test_one_class_is_too_few(tmp_path: Path) -> None:
    write_tree(tmp_path, num_per_class=3)
    for file in (tmp_path / "square").iterdir():
        file.unlink()
    (tmp_path / "square").rmdir()
    assert refused(tmp_path) == f"{tmp_path} must have at least two classes, found: disc"
    write_parquet(tmp_path / "x" / "data.parquet", table(3).slice(0, 1))
    assert refused(tmp_path / "x") == f"column 'label' of {tmp_path / 'x'} must have at least two classes, found: 0"


def test_validation_without_training_images(tmp_path: Path) -> None:
    write_tree(tmp_path / "val", num_per_class=3)
    assert refused(tmp_path) == f"path {str(tmp_path)!r} has 'val', but no 'train' beside it; found: val/"
    write_parquet(tmp_path / "x" / "val.parquet", table(3))
    assert "it is not clear whether to train on them: val.parquet" in refused(tmp_path / "x")


def test_classes_that_only_validation_has(tmp_path: Path) -> None:
    write_split_tree(tmp_path / "tree", num_train=2, num_validation=2)
    (tmp_path / "tree" / "validation" / "disc").rename(tmp_path / "tree" / "validation" / "ring")
    assert refused(tmp_path / "tree").endswith("train has not: ring")
    write_parquet(tmp_path / "x" / "train.parquet", table(3))
    content = table(3)
    write_parquet(tmp_path / "x" / "val.parquet", content.set_column(1, "label", pa.array([0, 1, 7, 0, 1, 9])))
    assert refused(tmp_path / "x").endswith("that the training data have not: 7, 9")


def test_an_empty_validation_split(tmp_path: Path) -> None:
    write_tree(tmp_path / "train", num_per_class=3)
    (tmp_path / "validation").mkdir()
    assert refused(tmp_path) == f"{tmp_path / 'validation'} has no image in a directory of a class; found: nothing"


def test_a_share_without_effect(tmp_path: Path) -> None:
    write_split_tree(tmp_path, num_train=2, num_validation=2)
    assert "validation_share has no effect where" in refused(tmp_path, validation_share=0.5)


def test_a_share_that_leaves_none(tmp_path: Path) -> None:
    write_tree(tmp_path, num_per_class=3)
    assert "validation_share 0.1 of 6 images in 2 classes leaves none to validate on" in refused(tmp_path)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_files_of_another_kind(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(b"this is not one")
    assert refused(tmp_path).startswith(f"{path} is not a whole {suffix.capitalize()} file: ")


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "data.parquet", table(3))
    assert refused(tmp_path, image_column="photo") == (
        f"{path} has no column 'photo' (image_column); its columns are image (binary), label (int64)"
    )
    assert "has no column 'species' (label_column)" in refused(tmp_path, label_column="species")


def test_columns_of_other_types(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "data.parquet", table(3))
    assert refused(tmp_path, image_column="label") == (
        f"column 'label' of {path} must hold bytes of image files, or structures with a field 'bytes', found int64"
    )
    assert refused(tmp_path, label_column="image") == (
        f"column 'image' of {path} must hold integers or strings, found binary"
    )


@pytest.mark.parametrize("name", ["image", "label"])
def test_two_columns_of_the_name(tmp_path: Path, name: str) -> None:
    content = table(3)
    path = write_parquet(tmp_path / "data.parquet", content.append_column(name, content.column(name)))
    assert refused(tmp_path).startswith(f"{path} has 2 columns '{name}' ({name}_column): image (binary), ")


def test_labels_that_are_no_utf_8(tmp_path: Path) -> None:
    labels = pa.array([b"disc", b"caf\xe9"] * 3).view("string")
    path = write_parquet(tmp_path / "data.parquet", table(3).set_column(1, "label", labels))
    assert refused(tmp_path).startswith(f"column 'label' of {path} has a label that is no UTF-8: ")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, None, 0, 1, 0], "has no value in row 2"),
        ([0, 1, 1, 0, -1, 0], "must not hold negative labels, got -1 in row 4"),
    ],
)
def test_rows_without_a_label(tmp_path: Path, labels: list[int | None], message: str) -> None:
    path = write_parquet(tmp_path / "data.parquet", table(3).set_column(1, "label", pa.array(labels)))
    assert refused(tmp_path).startswith(f"column 'label' of {path} {message}")


def test_files_without_rows(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "data.parquet", table(3).slice(0, 0))
    assert refused(tmp_path) == f"there are no rows in {path}"
