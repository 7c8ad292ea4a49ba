"""Text to tokens on disk: nothing lost, nothing on both sides, the same however it is cut and by how many processes."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.trainers.damaged import damage_data
from trainers.workloads.language import corpus as text_corpus
from trainers.workloads.language import documents
from trainers.workloads.language.corpus import Corpus, CorpusSource, read_corpus
from trainers.workloads.language.documents import held_out_documents
from trainers.workloads.language.tokenizer import NUM_BYTES, FileTokenizer, text_tokenizer

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")
tokenizers: Any = pytest.importorskip("tokenizers")

WORDS = ["so", "we", "beat", "on,", "boats", "against", "the", "current,", "–", "naïve", "中文"]


def document(number: int) -> str:
    """Some lines, with the number in each word, so that text tells where it is from."""
    draw = random.Random(number)
    return "".join(
        " ".join(f"{draw.choice(WORDS)}_{number}" for _ in range(draw.randint(1, 9))) + draw.choice(["\n", "\n\n  "])
        for _ in range(draw.randint(1, 12))
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory of 40 text files, one of them empty."""
    root = tmp_path / "text"
    root.mkdir()
    for number in range(40):
        (root / f"{number}.txt").write_text(document(number) if number != 7 else "")
    return root


def read(tmp_path: Path, path: Path, **fields: Any) -> Corpus:
    return read_corpus(CorpusSource(path=str(path), **fields), cache_directory=tmp_path / "cache")


def byte_documents(tokens: Any) -> list[str]:
    """The documents between end-of-text tokens, as text."""
    ends = np.flatnonzero(tokens == NUM_BYTES)
    assert ends[-1] == len(tokens) - 1
    return [bytes(part[part != NUM_BYTES].astype(np.uint8)).decode() for part in np.split(tokens, ends + 1)[:-1]]


def write_tokenizer(path: Path, texts: list[str]) -> Path:
    """A byte-level BPE with an end-of-text token, as GPT-2's, of 400 tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return path


def test_files_are_documents_that_end_and_are_on_one_side(directory: Path, tmp_path: Path) -> None:
    corpus = read(tmp_path, directory, validation_share=0.25)
    assert corpus.train_tokens.dtype == np.uint16
    assert corpus.num_tokens == 257
    train, validation = byte_documents(corpus.train_tokens), byte_documents(corpus.validation_tokens)
    assert sorted(train + validation) == sorted(document(number) for number in range(40) if number != 7)
    assert len(validation) == 10
    num_bytes = sum(len(text.encode()) for text in validation)
    assert corpus.bytes_per_validation_token == num_bytes / (num_bytes + len(validation))


def test_another_seed_holds_out_other_documents(directory: Path, tmp_path: Path) -> None:
    held_out = [
        set(byte_documents(read(tmp_path, directory, validation_seed=seed).validation_tokens)) for seed in (0, 0, 1)
    ]
    assert held_out[0] == held_out[1] != held_out[2]


@pytest.mark.parametrize(("share", "number"), [(1e-9, 1), (0.5, 4), (1 - 1e-9, 6)])
def test_both_sides_have_a_document(share: float, number: int) -> None:
    assert held_out_documents(7, share=share, seed=3).sum() == number


def test_a_single_text_file_is_cut_at_a_line(tmp_path: Path) -> None:
    text = "".join(document(number) for number in range(30))
    (tmp_path / "all.txt").write_text(text)
    corpus = read(tmp_path, tmp_path / "all.txt", validation_share=0.2)
    (train,), (validation,) = byte_documents(corpus.train_tokens), byte_documents(corpus.validation_tokens)
    assert train + validation == text
    assert train.endswith("\n")
    assert len(validation.encode()) == pytest.approx(0.2 * len(text.encode()), abs=200)  # a line or two


def test_the_only_text_file_that_is_not_empty_is_cut(tmp_path: Path) -> None:
    whole = tmp_path / "text" / "whole.txt"
    whole.parent.mkdir()
    whole.write_text("".join(document(number) for number in range(30)))
    alone = read(tmp_path, whole)
    (tmp_path / "text" / "empty.txt").touch()
    beside = read(tmp_path, tmp_path / "text")
    assert np.array_equal(beside.train_tokens, alone.train_tokens)
    assert np.array_equal(beside.validation_tokens, alone.validation_tokens)
    whole.write_text("")
    with pytest.raises(ValueError, match=r"^path '.*text' has nothing but empty files$"):
        read(tmp_path, tmp_path / "text")


def test_a_text_file_of_one_line_is_cut_at_a_character(tmp_path: Path) -> None:
    for length in range(2, 30):
        (tmp_path / "line.txt").write_text("中" * length)
        corpus = read(tmp_path, tmp_path / "line.txt", validation_share=0.5)
        sides = byte_documents(corpus.train_tokens) + byte_documents(corpus.validation_tokens)
        assert "".join(sides) == "中" * length
        assert min(map(len, sides)) >= length // 2 - 1


def test_rows_of_parquet_are_documents(tmp_path: Path) -> None:
    texts = [document(number) for number in range(100)]
    root = tmp_path / "rows"
    root.mkdir()
    files: list[list[str | None]] = [[*texts[:60]], [*texts[60:], None, ""]]
    for index, rows in enumerate(files):
        table = pyarrow.table({"id": list(range(len(rows))), "body": rows})
        parquet.write_table(table, root / f"{index}.parquet", row_group_size=7)
    corpus = read(tmp_path, root, text_column="body")
    train, validation = byte_documents(corpus.train_tokens), byte_documents(corpus.validation_tokens)
    assert sorted(train + validation) == sorted(texts)
    assert len(validation) == 10
    assert [text for text in texts if text in set(train)] == train  # in their order
    with pytest.raises(ValueError, match=r"text_column must be one of id, body in .*0.parquet, got 'text'"):
        read(tmp_path, root)
    with pytest.raises(ValueError, match=r"text_column must hold strings, but 'id' in .* holds int64"):
        read(tmp_path, root, text_column="id")
    twice = pyarrow.table([["a"], ["b"]], names=["body", "body"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match=r"text_column 'body' is the name of 2 columns in .*twice.parquet"):
        read(tmp_path, tmp_path / "twice.parquet", text_column="body")


@pytest.mark.parametrize("write_statistics", [True, False])
def test_rows_without_text_are_no_documents(
    write_statistics: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.workloads.language.documents.PART_BYTES", 1000)  # several parts
    texts = [document(number) for number in range(40)]
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "alone.parquet", row_group_size=6)
    rows = [row for text in texts for row in ("", text, None)]
    path = tmp_path / "beside.parquet"
    parquet.write_table(pyarrow.table({"text": rows}), path, row_group_size=6, write_statistics=write_statistics)
    alone, beside = read(tmp_path, tmp_path / "alone.parquet"), read(tmp_path, path)
    assert np.array_equal(beside.train_tokens, alone.train_tokens)
    assert np.array_equal(beside.validation_tokens, alone.validation_tokens)
    parquet.write_table(pyarrow.table({"text": ["", "one text", None]}), path)
    with pytest.raises(ValueError, match=r"^1 document cannot be split in two"):
        read(tmp_path, path)


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view"])
def test_strings_of_parquet_need_not_be_utf_8_where_tokens_are_bytes(tmp_path: Path, kind: str) -> None:
    texts = pyarrow.array([b"fine", b"caf\xe9"]).cast("large_binary" if kind == "large_string" else "binary")
    column = texts.view("large_string" if kind == "large_string" else "string").cast(kind, safe=False)
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": column}), path)
    corpus = read(tmp_path, path)
    found = np.concatenate([corpus.train_tokens, corpus.validation_tokens]).tolist()
    assert sorted(found) == sorted([*b"fine", NUM_BYTES, *b"caf\xe9", NUM_BYTES])
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", ["abc"])
    with pytest.raises(ValueError, match=r"rows.parquet is not UTF-8 at row 1: "):
        read(tmp_path, path, tokenizer=str(tokenizer))


def test_damaged_data_of_parquet_are_refused_with_the_files_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": [document(number) for number in range(40)]}), path)
    with pytest.raises(ValueError, match=r"rows.parquet is not a whole Parquet file: "):
        read(tmp_path, damage_data(path))
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"rows.parquet is not a whole Parquet file: "):
        read(tmp_path, path)


def test_validation_files_of_their_own(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("other\n")
    corpus = read(tmp_path, directory, validation_path=str(tmp_path / "other.txt"))
    assert byte_documents(corpus.validation_tokens) == ["other\n"]
    assert len(byte_documents(corpus.train_tokens)) == 39
    with pytest.raises(ValueError, match=r"validation_path must not hold files of path, but .*3.txt is in both"):
        read(tmp_path, directory, validation_path=str(directory / "3.txt"))


@pytest.mark.processes
def test_however_it_is_cut_the_tokens_are_the_same(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet.write_table(
        pyarrow.table({"text": [document(number) for number in range(50, 80)]}),
        directory / "rows.parquet",
        row_group_size=4,
    )
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", [document(number) for number in range(20)])
    num_bytes = sum(file.stat().st_size for file in directory.iterdir())
    assert 20_000 < num_bytes < 40_000
    for name in ("byte", str(tokenizer)):
        whole = read_corpus(
            CorpusSource(path=str(directory), tokenizer=name), cache_directory=tmp_path / f"whole {name == 'byte'}"
        )
        with monkeypatch.context() as patch:
            # Several portions, so in processes of their own; parts of files within them; pieces of parts.
            patch.setattr(text_corpus, "PART_BYTES", 20_000)
            patch.setattr(documents, "CHUNK_BYTES", 400)
            if name == "byte":  # of others, a part's first and last tokens may differ
                patch.setattr(documents, "PART_BYTES", 500)
            cut = read_corpus(
                CorpusSource(path=str(directory), tokenizer=name), cache_directory=tmp_path / f"cut {name == 'byte'}"
            )
        assert cut.train_tokens.tobytes() == whole.train_tokens.tobytes()
        assert cut.validation_tokens.tobytes() == whole.validation_tokens.tobytes()
        assert cut.bytes_per_validation_token == whole.bytes_per_validation_token


def test_a_tokenizer_file_gives_its_tokens_and_ends_documents(directory: Path, tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "tokenizer.json", [document(number) for number in range(20)])
    corpus = read(tmp_path, directory, tokenizer=str(path))
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    assert corpus.num_tokens == tokenizer.get_vocab_size()
    assert len(corpus.train_tokens) < len(read(tmp_path, directory).train_tokens) / 1.5
    end = tokenizer.token_to_id("<|endoftext|>")
    parts = np.split(corpus.train_tokens, np.flatnonzero(corpus.train_tokens == end) + 1)
    assert len(parts.pop()) == 0
    texts = [tokenizer.decode(part[:-1].tolist()) for part in parts]
    assert texts == byte_documents(read(tmp_path, directory).train_tokens)
    num_bytes = sum(map(len, (text.encode() for text in byte_documents(read(tmp_path, directory).validation_tokens))))
    assert corpus.bytes_per_validation_token == num_bytes / len(corpus.validation_tokens)


def test_large_vocabularies_take_four_bytes_a_token(tmp_path: Path) -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{n}": n for n in range(70_000)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "words.json"))
    (tmp_path / "text.txt").write_text("w65536 w69999\nw1 w2\n")
    corpus = read(tmp_path, tmp_path / "text.txt", tokenizer=str(tmp_path / "words.json"), validation_share=0.3)
    # It has no token that ends text.
    assert (corpus.train_tokens.dtype, corpus.train_tokens.tolist()) == (np.dtype(np.uint32), [65536, 69999])
    assert corpus.validation_tokens.tolist() == [1, 2]


def test_text_is_tokenised_once_for_equal_content_tokenizer_and_split(directory: Path, tmp_path: Path) -> None:
    def entries() -> int:
        return len(list((tmp_path / "cache").glob("text-*/manifest.json")))

    read(tmp_path, directory)
    read(tmp_path, directory)
    directory.rename(tmp_path / "moved")
    read(tmp_path, tmp_path / "moved")
    assert entries() == 1
    read(tmp_path, tmp_path / "moved", validation_share=0.2)
    assert entries() == 2
    (tmp_path / "moved" / "3.txt").write_text("changed")
    corpus = read(tmp_path, tmp_path / "moved")
    assert entries() == 3
    assert "changed" in byte_documents(corpus.train_tokens) + byte_documents(corpus.validation_tokens)


@pytest.mark.parametrize("in_processes", [False, True])
def test_text_that_is_not_utf_8_is_refused_with_its_place(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_processes: bool
) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", ["abc"])
    (directory / "9.txt").write_bytes(b"fine\n" * 30 + b"caf\xe9 here\n")
    monkeypatch.setattr(documents, "CHUNK_BYTES", 50)
    if in_processes:
        monkeypatch.setattr(text_corpus, "PART_BYTES", 12_000)
    with pytest.raises(ValueError, match=r"9.txt is not UTF-8 at byte 153: "):
        read(tmp_path, directory, tokenizer=str(tokenizer))
    assert not list((tmp_path / "cache").glob("*text-*/*"))
    read(tmp_path, directory)  # bytes are what they are


@pytest.mark.parametrize(("in_processes", "place"), [(False, 135), pytest.param(True, 0, marks=pytest.mark.processes)])
def test_text_that_a_tokenizer_has_no_tokens_for_is_refused_with_its_place(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_processes: bool, place: int
) -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"fine": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "words.json"))
    for file in directory.iterdir():
        file.write_text("fine\n" * 100)
    (directory / "9.txt").write_text("fine\n" * 30 + "unheard of\n")
    monkeypatch.setattr(documents, "CHUNK_BYTES", 50)
    if in_processes:
        monkeypatch.setattr(text_corpus, "PART_BYTES", 12_000)
    with pytest.raises(
        ValueError, match=rf"9.txt, text from byte {place} on: tokenizer '.*words.json' cannot encode the text: .*UNK"
    ):
        read(tmp_path, directory, tokenizer=str(tmp_path / "words.json"))
    parquet.write_table(pyarrow.table({"text": ["fine", "fine", "unheard"]}), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"rows.parquet, row 2: tokenizer '.*words.json' cannot encode the text: "):
        read(tmp_path, tmp_path / "rows.parquet", tokenizer=str(tmp_path / "words.json"))


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"tokenizer must be byte or the path of a tokenizer.json, got 'gpt2'"):
        text_tokenizer("gpt2")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": 3}))
    with pytest.raises(ValueError, match=r"tokenizer.json' is not a tokenizer file: "):
        text_tokenizer(str(tmp_path / "tokenizer.json"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        ValueError, match=r"needs tokenizers, which is not installed: pip install 'shampoo-tuner\[text\]'"
    ):
        FileTokenizer(tmp_path / "tokenizer.json")
