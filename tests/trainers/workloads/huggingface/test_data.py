"""The data of the workload `huggingface`: a user's text, tables and images, and the pieces of the standard library."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import promises
from tests.support.trainers.ranks import WarmRanks
from tests.trainers.workloads.huggingface.test_huggingface import BERT, GPT2, NAME, RESNET, VIT, options
from trainers.config import InvalidConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.batches import train_batches
from trainers.workload.protocol import CountsEvents
from trainers.workloads.huggingface.labelled_text import PACKAGES, WordTokenizer, read_corpus, stdlib_packages
from trainers.workloads.registry import load

ROWS = [
    (f"review {number}: {word}\nsecond line", label)
    for number in range(60)
    for word, label in (("great", "good"), ("awful", "bad"))
]


def written(
    path: Path, rows: list[tuple[str, str]], *, delimiter: str = ",", names: tuple[str, str] = ("text", "label")
) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(names)
        writer.writerows(rows)
    return path


def table(path: Path, rows: Sequence[tuple[str | None, object]]) -> Path:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]}), path)
    return path


def test_tables_of_each_format_give_the_same_task(tmp_path: Path) -> None:
    expected = read_corpus(str(written(tmp_path / "a.csv", ROWS)))
    assert read_corpus(str(written(tmp_path / "b.tsv", ROWS, delimiter="\t"))) == expected
    assert read_corpus(str(table(tmp_path / "c.parquet", ROWS))) == expected
    assert expected.class_names == ("bad", "good")
    sides = (expected.train, expected.validation)
    found = sorted(
        (text, expected.class_names[label])
        for side in sides
        for text, label in zip(side.texts, side.labels, strict=True)
    )
    assert found == sorted(ROWS)
    assert not set(expected.train.texts) & set(expected.validation.texts)
    assert 3 <= len(expected.validation.texts) <= 24  # one in ten of 120, drawn


def test_labels_may_be_numbers_and_columns_have_any_name(tmp_path: Path) -> None:
    numbered = [(text, int(label == "good")) for text, label in ROWS]
    assert read_corpus(str(table(tmp_path / "a.parquet", numbered))).class_names == ("0", "1")
    path = written(tmp_path / "b.csv", ROWS, names=("body", "stars"))
    assert read_corpus(str(path), text_column="body", label_column="stars").class_names == ("bad", "good")


def test_a_validation_table_is_held_out_whole(tmp_path: Path) -> None:
    corpus = read_corpus(
        str(written(tmp_path / "train.csv", ROWS)), validation_path=str(written(tmp_path / "test.csv", ROWS[:7]))
    )
    assert (len(corpus.train.texts), len(corpus.validation.texts)) == (120, 7)


def test_a_class_keeps_a_text_to_train_on(tmp_path: Path) -> None:
    as_before = read_corpus(str(written(tmp_path / "a.csv", ROWS)))
    texts = as_before.validation.texts
    # The only text of its class, and the two of another: each of them would be held out.
    labels = {texts[0]: "one", texts[1]: "two", texts[2]: "two"}
    corpus = read_corpus(str(written(tmp_path / "b.csv", [(text, labels.get(text, label)) for text, label in ROWS])))
    assert corpus.validation.texts == texts[2:]
    assert len(corpus.train.texts) == len(as_before.train.texts) + 2
    assert corpus.class_names[corpus.validation.labels[0]] == "two"
    with pytest.raises(ValueError, match=r"gives 2 texts to train on and 0 held out; give validation_path"):
        read_corpus(str(written(tmp_path / "c.csv", [(texts[0], "one"), (texts[1], "two")])))


@pytest.mark.parametrize(
    ("rows", "names", "message"),
    [
        ([("a", "x"), ("b", "x")] * 40, ("text", "label"), "label_column 'label' must have at least two labels, got x"),
        (ROWS, ("body", "label"), "text_column must be one of body, label in .*, got 'text'"),
        (ROWS, ("text", "stars"), "label_column must be one of text, stars in .*, got 'label'"),
        ([], ("text", "label"), "label_column 'label' must have at least two labels, got none"),
        (ROWS[:2], ("text", "label"), r"gives \d texts to train on and \d held out"),
    ],
)
def test_a_wrong_table_is_refused(
    tmp_path: Path, rows: list[tuple[str, str]], names: tuple[str, str], message: str
) -> None:
    path = written(tmp_path / "rows.csv", rows, names=names)
    with pytest.raises(InvalidConfig, match=message):
        load(NAME, {**BERT, "path": str(path)})


def test_other_wrong_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"row 1 has no label"):
        read_corpus(str(table(tmp_path / "a.parquet", [("a", "x"), ("b", None)])))
    with pytest.raises(ValueError, match=r"row 1 has no text"):
        read_corpus(str(table(tmp_path / "b.parquet", [("a", "x"), (None, "y")])))
    train, validation = written(tmp_path / "t.csv", ROWS), written(tmp_path / "v.csv", [("a", "ugly")])
    with pytest.raises(ValueError, match=r"'ugly' is held out, but not among the training labels"):
        read_corpus(str(train), validation_path=str(validation))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"broken.parquet is not a whole Parquet file"):
        read_corpus(str(tmp_path / "broken.parquet"))
    (tmp_path / "ragged.csv").write_text("text,label\na,b,c\n")
    with pytest.raises(ValueError, match=r"ragged.csv cannot be read as a table"):
        read_corpus(str(tmp_path / "ragged.csv"))
    (tmp_path / "rows.xlsx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"rows.xlsx must be named \*.csv, \*.tsv, \*.parquet"):
        read_corpus(str(tmp_path / "rows.xlsx"))


def test_a_tokenizer_without_its_unknown_token_is_named(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"review": 0}, unk_token="[UNK]"))
    words.save(str(tmp_path / "words.json"))
    path = written(tmp_path / "rows.csv", ROWS)
    with pytest.raises(InvalidConfig, match=r"tokenizer '.*words.json' cannot encode the text: .*UNK"):
        load(NAME, {**BERT, "path": str(path), "tokenizer": str(tmp_path / "words.json")})


@pytest.mark.slow
def test_short_texts_are_filled_up_with_what_the_model_does_not_see(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", ROWS)
    workload: Any = load(NAME, {**BERT, "path": str(path), "context_length": 24})
    assert workload.class_names == ("bad", "good")
    torch.manual_seed(0)
    model = workload.build_model().eval()
    tokens, lengths, labels = next(train_batches(workload, batch_size=8, seed=0, rank=0, world_size=1, start_step=0))
    assert (tokens.shape, tokens.dtype) == ((8, 24), torch.int32)
    texts = [bytes(row[:length].tolist()).decode() for row, length in zip(tokens, lengths, strict=True)]
    assert all(text.startswith("review ") and len(text) == 24 for text in texts)  # cut
    assert [("great" in text, "awful" in text) for text in texts] == [(label == 1, label == 0) for label in labels]
    lengths -= 4
    garbled = tokens.clone()
    garbled[:, 20:] = 7
    with torch.no_grad():
        one, other = (workload.logits_and_targets(model, (part, lengths, labels))[0] for part in (tokens, garbled))
    assert torch.equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "gpt2"])
def test_a_users_table_is_learnt(tmp_path: Path, architecture: str) -> None:
    path = written(tmp_path / "rows.csv", ROWS)
    chosen: dict[str, Any] = {"bert": BERT, "gpt2": {**GPT2, "task": "sequence-classification"}}[architecture]
    config = promises.trial(NAME, {**chosen, "path": str(path), "context_length": 24}, num_steps=60, evaluate_every=60)
    (measurement,) = train(config, single_process_context())
    # The words differ in all but one letter; what comes in front of them is a number.
    assert measurement.metrics["validation_loss"] < 0.2
    assert measurement.metrics["validation_accuracy"] > 0.9


def test_pieces_of_packages_are_balanced_and_apart() -> None:
    corpus = stdlib_packages(256)
    assert corpus.class_names == PACKAGES
    for side in (corpus.train, corpus.validation):
        counts = np.bincount(side.labels)
        assert counts.min() == counts.max()
        assert {len(text) for text in side.texts} == {256}
    shares = len(corpus.validation.texts) / (len(corpus.validation.texts) + len(corpus.train.texts))
    assert shares == pytest.approx(0.1, abs=0.01)
    # Where texts occur twice in the library (licenses), pieces of them rarely fall together.
    assert len(set(corpus.train.texts) & set(corpus.validation.texts)) < 3
    with pytest.raises(InvalidConfig, match="pieces of 400000 characters of the package that has fewest"):
        load(
            NAME,
            {
                "task": "sequence-classification",
                "context_length": 100_000,
                "config": {"max_position_embeddings": 100_000},
            },
        )


def test_words_are_numbered_by_frequency() -> None:
    tokenizer = WordTokenizer(["self.loopTime = 12", "self.loop()", "self"])
    assert tokenizer.encode(b"self loop Time nowhere").tolist() == [
        2,
        *tokenizer.encode(b"loop"),
        *tokenizer.encode(b"Time"),
        1,
    ]
    assert tokenizer.encode(b"loopTime 12").tolist() == tokenizer.encode(b"loop Time12").tolist()
    assert tokenizer.encode(b" \n\t").tolist() == []


def test_a_users_text_is_read_as_by_text_lm(tmp_path: Path, two_ranks: WarmRanks) -> None:
    for number in range(10):
        (tmp_path / f"{number}.txt").write_text(f"All work and no play makes {number} a dull number.\n" * 40)
    chosen = options("gpt2", path=str(tmp_path), cache_directory=str(tmp_path / ".cache"))
    own = load("text-lm", {"path": str(tmp_path), "cache_directory": str(tmp_path / ".cache"), "context_length": 32})
    workload = load(NAME, chosen)
    arguments = {"batch_size": 16, "seed": 3, "rank": 1, "world_size": 2, "start_step": 5}
    assert workload.num_train_examples == own.num_train_examples
    (batch,) = next(train_batches(workload, **arguments))
    assert torch.equal(batch, next(train_batches(own, **arguments)))
    promises.assert_one_rank_equals_two(NAME, chosen, two_ranks)


@pytest.mark.slow
def test_digits_are_enlarged_to_the_side_the_model_takes() -> None:
    def shape_of_images(chosen: dict[str, Any]) -> tuple[int, ...]:
        workload = load(NAME, chosen)
        model = workload.build_model()
        shapes: list[tuple[int, ...]] = []

        def note(_module: Any, _arguments: Any, named: dict[str, torch.Tensor]) -> None:
            shapes.append(tuple(named["pixel_values"].shape))

        model.register_forward_pre_hook(note, with_kwargs=True)
        workload.loss(model, next(train_batches(workload, batch_size=2, seed=0, rank=0, world_size=1, start_step=0)))
        (shape,) = shapes
        return shape

    without_size = {name: value for name, value in VIT["config"].items() if name != "image_size"}
    assert shape_of_images(VIT) == (2, 1, 16, 16)
    assert shape_of_images({**VIT, "config": without_size, "image_size": 24}) == (2, 1, 24, 24)
    assert shape_of_images({**RESNET, "config": {**RESNET["config"], "num_channels": 3}}) == (2, 3, 32, 32)


@pytest.mark.slow
def test_a_users_images_are_read_as_by_image_folder(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(0)
    for side, num_images in (("train", 16), ("validation", 4)):
        for name, brightness in (("dark", 40), ("light", 200)):
            directory = tmp_path / side / name
            directory.mkdir(parents=True)
            for number in range(num_images):
                pixels = (brightness + generator.integers(-30, 30, size=(20, 20, 3))).astype(np.uint8)
                image.fromarray(pixels).save(directory / f"{number}.png")
    config = {**RESNET["config"], "num_channels": 3}
    chosen = {**RESNET, "config": config, "path": str(tmp_path), "image_size": 16, "num_workers": 0}
    workload = load(NAME, chosen)
    assert isinstance(workload, CountsEvents)
    assert workload.num_train_examples == 32
    images, labels = next(train_batches(workload, batch_size=4, seed=0, rank=0, world_size=1, start_step=0))
    assert (images.shape, labels.shape) == ((4, 16, 16, 3), (4,))
    trial = promises.trial(NAME, chosen, num_steps=30, evaluate_every=30, batch_size=8)
    (measurement,) = train(trial, single_process_context())
    assert measurement.metrics["validation_accuracy"] == 1.0
    assert measurement.metrics["num_unreadable_images"] == 0
    with pytest.raises(InvalidConfig, match=r"config.num_channels must be 3, as the images of a path have, got 1"):
        load(NAME, {**chosen, "config": RESNET["config"]})
    with pytest.raises(InvalidConfig, match="max_validation_examples has no effect on images of a path, got 5"):
        load(NAME, {**chosen, "max_validation_examples": 5})
