"""A corpus on disk, tokenised once into files that are mapped into memory, so that it may be larger than that."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from logging import getLogger
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainers.data.files import DataFile, content_digest, data_files
from trainers.data.prepared import prepared
from trainers.data.processes import run_jobs
from trainers.workloads.language.documents import (
    PARQUET_SUFFIXES,
    PART_BYTES,
    TEXT_SUFFIXES,
    CorpusPart,
    held_out_documents,
    is_parquet,
    parts,
    tail_start,
    text_parts,
)
from trainers.workloads.language.tokenizer import TextTokenizer, text_tokenizer
from trainers.workloads.language.tokens import SIDES, token_job, tokenise, tokens_dtype

logger = getLogger(__name__)

DEFAULT_VALIDATION_SHARE = 0.1
"""A tenth, where the user does not say."""

Tokens: TypeAlias = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSource:
    """The place of a corpus' text, and the ways to split and read it."""

    path: str
    file_pattern: str | None = None
    validation_path: str | None = None
    validation_share: float | None = None
    """Share of the documents that is held out; with one text file, of its bytes. None: 0.1, or nothing where there is a
    `validation_path`."""
    validation_seed: int = 0
    text_column: str = "text"
    tokenizer: str = "byte"


@dataclass(frozen=True, slots=True)
class Corpus:
    """Tokens of training and validation, mapped from files."""

    train_tokens: Tokens = field(repr=False)
    """(n,) uint16, or uint32 with more than 65,536 tokens: the documents one after the other."""
    validation_tokens: Tokens = field(repr=False)
    """(m,)."""
    num_tokens: int
    """Size of the vocabulary."""
    bytes_per_validation_token: float
    """Bytes of the validation text over its tokens, those that end documents included."""


def read_corpus(source: CorpusSource, *, cache_directory: Path) -> Corpus:
    """The corpus, tokenised now unless it is in the cache: keyed by content, tokenizer and split, not by place.

    A document is a text file that is not empty, or a row of Parquet that holds a text. Documents are held out whole. A
    single text file is cut instead: its last lines are for validation.

    Raises:
        ValueError: a path, pattern, column or tokenizer is wrong, text is not UTF-8, or there is too little to split.
    """
    tokenizer = text_tokenizer(source.tokenizer)
    files = text_files("path", source.path, source.file_pattern)
    validation_files = []
    if source.validation_path is not None:
        validation_files = text_files("validation_path", source.validation_path, source.file_pattern)
        _require_apart(files, validation_files)
    has_parquet = any(is_parquet(file.path) for file in [*files, *validation_files])
    split_documents = ["rows with text"] if has_parquet else []  # entries whose split counted other rows are others
    key = {
        "tokenizer": tokenizer.identity,
        "text": content_digest(files, cache_directory=cache_directory),
        "validation": content_digest(validation_files, cache_directory=cache_directory) if validation_files else None,
        "split": None if validation_files else [_share(source), source.validation_seed, *split_documents],
        "column": source.text_column if has_parquet else None,
    }

    def prepare(directory: Path) -> dict[str, Any]:
        num_files, num_bytes = len(files) + len(validation_files), sum(f.num_bytes for f in [*files, *validation_files])
        logger.info("tokenising %d files (%d bytes) of %s into %s", num_files, num_bytes, source.path, directory)
        return _prepare(directory, files, validation_files, source, tokenizer)

    directory, facts = prepared(cache_directory, "text", key, prepare)
    train_tokens, validation_tokens = (_tokens(directory, side, facts) for side in SIDES)
    return Corpus(
        train_tokens=train_tokens,
        validation_tokens=validation_tokens,
        num_tokens=tokenizer.num_tokens,
        bytes_per_validation_token=facts["num_bytes"]["validation"] / max(facts["num_tokens"]["validation"], 1),
    )


def text_files(option: str, path: str, pattern: str | None) -> list[DataFile]:
    """The text and Parquet files at a path, but for empty ones, which are no documents.

    Raises:
        ValueError: there is none.
    """
    files = data_files(option, path, suffixes=(*TEXT_SUFFIXES, *PARQUET_SUFFIXES), pattern=pattern)
    found = [file for file in files if file.num_bytes > 0]
    if not found:
        raise ValueError(f"{option} {path!r} has nothing but empty files")
    return found


def _share(source: CorpusSource) -> float:
    return DEFAULT_VALIDATION_SHARE if source.validation_share is None else source.validation_share


def _require_apart(files: Sequence[DataFile], validation_files: Sequence[DataFile]) -> None:
    """No file is on both sides, e.g. because one path lies within the other."""
    training = {file.path.resolve() for file in files}
    for file in validation_files:
        if file.path.resolve() in training:
            raise ValueError(f"validation_path must not hold files of path, but {file.path} is in both")


def _tokens(directory: Path, side: str, facts: dict[str, Any]) -> Tokens:
    if facts["num_tokens"][side] == 0:
        return np.zeros(0, dtype=facts["dtype"])  # a file without bytes cannot be mapped
    return np.memmap(directory / f"tokens.{side}", dtype=facts["dtype"], mode="r")


def _prepare(
    directory: Path,
    files: Sequence[DataFile],
    validation_files: Sequence[DataFile],
    source: CorpusSource,
    tokenizer: TextTokenizer,
) -> dict[str, Any]:
    """Writes `tokens.train` and `tokens.validation` into the directory."""
    all_parts, held_out = _plan(files, validation_files, source)
    held_out_file = None
    if held_out is not None:
        held_out_file = directory / "held_out.npy"
        np.save(held_out_file, held_out)
    jobs = [
        token_job(
            some_parts,
            tokenizer=source.tokenizer,
            text_column=source.text_column,
            held_out=held_out_file,
            output=directory / f"part-{index}",
        )
        for index, some_parts in enumerate(_in_portions(all_parts))
    ]
    results = run_jobs("trainers.workloads.language.tokens", tokenise, jobs)
    for side in SIDES:
        with (directory / f"tokens.{side}").open("wb") as whole:
            for index in range(len(jobs)):
                part = directory / f"part-{index}.{side}"
                with part.open("rb") as stream:
                    shutil.copyfileobj(stream, whole, 2**20)
                part.unlink()
    if held_out_file is not None:
        held_out_file.unlink()
    sums = {fact: {side: sum(result[fact][side] for result in results) for side in SIDES} for fact in results[0]}
    return {"dtype": tokens_dtype(tokenizer), **sums}


def _plan(
    files: Sequence[DataFile], validation_files: Sequence[DataFile], source: CorpusSource
) -> tuple[list[CorpusPart], NDArray[np.bool_] | None]:
    """The parts of the corpus, and which documents are held out where parts do not say."""
    column = source.text_column
    if validation_files:
        train_parts, _ = parts(files, text_column=column, is_validation=False)
        validation_parts, _ = parts(validation_files, text_column=column, is_validation=True)
        return train_parts + validation_parts, None
    if len(files) == 1 and not is_parquet(files[0].path):
        path, num_bytes = files[0].path, files[0].num_bytes
        cut = tail_start(path, num_bytes, share=_share(source))
        train = text_parts(path, 0, cut, document=0, is_validation=False)
        return [*train, *text_parts(path, cut, num_bytes, document=1, is_validation=True)], None
    mixed, num_documents = parts(files, text_column=column)
    return mixed, held_out_documents(num_documents, share=_share(source), seed=source.validation_seed)


def _in_portions(all_parts: Sequence[CorpusPart]) -> Iterator[list[CorpusPart]]:
    """The parts in order, in portions for one process each: at least one."""
    portion: list[CorpusPart] = []
    num_bytes = 0
    for part in all_parts:
        if portion and num_bytes + part.num_bytes > PART_BYTES:
            yield portion
            portion, num_bytes = [], 0
        portion.append(part)
        num_bytes += part.num_bytes
    yield portion
