"""Language models and classifiers of text on architectures of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainers.data.prepared import cache_directory as chosen_cache_directory
from trainers.workloads.huggingface.adapters import Adapters
from trainers.workloads.huggingface.architecture import Architecture, Weights
from trainers.workloads.huggingface.labelled_text import (
    LabelledTexts,
    read_corpus,
    stdlib_packages,
    stdlib_words,
)
from trainers.workloads.huggingface.tasks import NUM_EXAMPLES_AT_ONCE, Batch, ExamplesInMemory, WorkloadInMemory
from trainers.workloads.language.corpus import CorpusSource
from trainers.workloads.language.corpus import read_corpus as read_tokens
from trainers.workloads.language.stdlib_text import END_OF_FILE, stdlib_text
from trainers.workloads.language.text_lm import NUM_LOGITS_AT_ONCE, sequences
from trainers.workloads.language.tokenizer import BYTE, NUM_BYTES, TextTokenizer, text_tokenizer
from trainers.workloads.options import integer, without_effect
from trainers.workloads.options import text as string

DEFAULT_CONTEXT_LENGTH = 64
"""Tokens that a model sees at once, where nobody says: as text-lm's size tiny, for a CPU."""
CHARACTERS_PER_TOKEN = 4
"""Characters of source for each token, roughly, where tokens are words or parts of them."""

SMALL_LANGUAGE_MODEL: tuple[str, Mapping[str, Any]] = (
    "gpt2",
    {
        "n_layer": 2,
        "n_head": 4,
        "n_embd": 64,
        "n_positions": DEFAULT_CONTEXT_LENGTH,
        # GPT-2's is for its width of 768, and so is its dropout for a model that sees its text more than once.
        "initializer_range": 0.07,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
)
SMALL_CLASSIFIER: tuple[str, Mapping[str, Any]] = (
    "bert",
    {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "max_position_embeddings": DEFAULT_CONTEXT_LENGTH,
        "initializer_range": 0.07,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    },
)
"""The classifier that is trained when no architecture is named."""


class CausalLM(WorkloadInMemory):
    """Predicts each next token: of a user's text, or of Python's standard library.

    An example is a sequence of `context_length` + 1 tokens, the last of which is the next one's first.
    """

    def __init__(
        self,
        *,
        architecture: str | None,
        config: Mapping[str, Any],
        model_path: str | None,
        weights: Weights,
        path: str | None,
        validation_path: str | None,
        text_column: str | None,
        cache_directory: str | None,
        tokenizer: str | None,
        context_length: int | None,
        adapters: Adapters | None,
        precondition_embeddings: bool,
        label_smoothing: float,
        max_validation_examples: int | None,
    ) -> None:
        if architecture is None and model_path is None:
            architecture, config = _small(SMALL_LANGUAGE_MODEL, config)
        chosen = _named_tokenizer(tokenizer, model_path) or BYTE
        if path is None:
            for name, value in (("validation_path", validation_path), ("text_column", text_column)):
                without_effect(name, value, "without path")
            without_effect("cache_directory", cache_directory, "without path")
            train, validation, num_tokens = _stdlib_tokens(chosen)
        else:
            corpus = read_tokens(
                CorpusSource(
                    path=string("path", path),
                    validation_path=validation_path,
                    text_column="text" if text_column is None else string("text_column", text_column),
                    tokenizer=chosen,
                ),
                cache_directory=chosen_cache_directory(cache_directory),
            )
            train, validation, num_tokens = corpus.train_tokens, corpus.validation_tokens, corpus.num_tokens

        def inputs(found: Any) -> dict[str, Tensor]:
            return {"input_ids": torch.zeros(2, _context_length(found, context_length), dtype=torch.long)}

        built = Architecture(
            task="causal-lm",
            architecture=architecture,
            config=config,
            model_path=model_path,
            weights=weights,
            required={},
            inputs=inputs,
            num_tokens=num_tokens,
        )
        self.context_length = _context_length(built.config, context_length)
        super().__init__(
            built,
            train=Sequences(sequences(train, self.context_length, side="training")),
            validation=Sequences(sequences(validation, self.context_length, side="validation")),
            label_smoothing=label_smoothing,
            max_validation_examples=max_validation_examples,
            num_examples_at_once=max(1, NUM_LOGITS_AT_ONCE // (self.context_length * num_tokens)),
            adapters=adapters,
            precondition_embeddings=precondition_embeddings,
        )

    @property
    def tokens_per_example(self) -> int:
        return self.context_length

    def logits_and_targets(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits and following tokens of (tokens (b, `context_length` + 1) int32,)."""
        tokens = batch[0].long()  # on the device: half as many bytes on the way there
        return model(input_ids=tokens[:, :-1]).logits.flatten(0, 1), tokens[:, 1:].flatten()


class SequenceClassification(WorkloadInMemory):
    """Classifies texts: a user's, or pieces of Python's standard library by their package.

    A text is cut after `context_length` tokens; shorter ones are filled up with a token that the model does not see.
    """

    def __init__(
        self,
        *,
        architecture: str | None,
        config: Mapping[str, Any],
        model_path: str | None,
        weights: Weights,
        path: str | None,
        validation_path: str | None,
        text_column: str | None,
        label_column: str | None,
        tokenizer: str | None,
        context_length: int | None,
        adapters: Adapters | None,
        precondition_embeddings: bool,
        label_smoothing: float,
        max_validation_examples: int | None,
    ) -> None:
        if architecture is None and model_path is None:
            architecture, config = _small(SMALL_CLASSIFIER, config)
        chosen = _named_tokenizer(tokenizer, model_path)
        columns = {"text_column": text_column, "label_column": label_column}
        if path is None:
            for name, value in {"validation_path": validation_path, **columns}.items():
                without_effect(name, value, "without path")
            length = DEFAULT_CONTEXT_LENGTH if context_length is None else _length(context_length)
            # A model of fewer positions reads the beginnings of these.
            num_characters = length if chosen == BYTE else length * CHARACTERS_PER_TOKEN
            corpus, reader = stdlib_packages(num_characters), _stdlib_reader(chosen, num_characters)
        else:
            given = {name: string(name, value) for name, value in columns.items() if value is not None}
            corpus = read_corpus(string("path", path), validation_path=validation_path, **given)
            reader = text_tokenizer(chosen or BYTE)

        def inputs(found: Any) -> dict[str, Tensor]:
            tokens = torch.zeros(2, _context_length(found, context_length), dtype=torch.long)
            return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}

        padding = 0 if reader.end_of_text is None else reader.end_of_text
        built = Architecture(
            task="sequence-classification",
            architecture=architecture,
            config=config,
            model_path=model_path,
            weights=weights,
            required={"num_labels": len(corpus.class_names)},
            # Decoders look for the last token in front of it.
            where_open={"pad_token_id": padding},
            inputs=inputs,
            num_tokens=reader.num_tokens,
        )
        if built.config.is_encoder_decoder:
            raise ValueError(
                f"architecture {built.config.model_type} classifies by a token of its own tokenizer's, which texts "
                "here do not have: choose an encoder or a decoder alone"
            )
        self.class_names = corpus.class_names
        self.context_length = _context_length(built.config, context_length)
        padding = built.config.pad_token_id
        if path is None:
            train, validation = _stdlib_examples(chosen, num_characters, self.context_length, padding)
        else:
            train, validation = (
                _padded(side, reader, self.context_length, padding) for side in (corpus.train, corpus.validation)
            )
        super().__init__(
            built,
            train=train,
            validation=validation,
            label_smoothing=label_smoothing,
            max_validation_examples=max_validation_examples,
            num_examples_at_once=NUM_EXAMPLES_AT_ONCE,
            adapters=adapters,
            precondition_embeddings=precondition_embeddings,
        )

    @property
    def tokens_per_example(self) -> int:
        return self.context_length

    def logits_and_targets(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits and labels of (tokens (b, `context_length`) int32, lengths (b,) int64, labels (b,) int64)."""
        tokens, lengths, labels = batch
        mask = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        return model(input_ids=tokens.long(), attention_mask=mask.long()).logits, labels


class Sequences:
    """A data set of sequences (n, t), which may lie on disk."""

    def __init__(self, tokens: NDArray[Any]) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, indices: Tensor, /) -> Batch:
        # A copy, because tensors cannot share memory that must not be written.
        return (torch.from_numpy(self._tokens[indices.numpy()].astype(np.int32)),)


def _small(model: tuple[str, Mapping[str, Any]], config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if not isinstance(config, Mapping):
        raise ValueError(f"config must be an object, got {config!r}")
    return model[0], {**model[1], **config}


def _length(context_length: object) -> int:
    return integer("context_length", context_length, minimum=2)


def _context_length(config: Any, context_length: int | None) -> int:
    """The option, or by default 64 tokens, if the model has so many positions.

    Raises:
        ValueError: the model has fewer positions than the option says.
    """
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:  # some models have no limit, and say so with -1
        return DEFAULT_CONTEXT_LENGTH if context_length is None else _length(context_length)
    if context_length is None:
        return min(DEFAULT_CONTEXT_LENGTH, positions)
    if _length(context_length) > positions:
        raise ValueError(f"context_length must be at most the {positions} positions of the model, got {context_length}")
    return _length(context_length)


def _named_tokenizer(tokenizer: str | None, model_path: str | None) -> str | None:
    """The tokenizer as `text_tokenizer` takes it: the option, or the model's own; None: the task's default."""
    if tokenizer is not None:
        return tokenizer
    own = Path(model_path).expanduser() / "tokenizer.json" if isinstance(model_path, str) else None
    return str(own) if own is not None and own.is_file() else None


@cache
def _stdlib_tokens(tokenizer: str) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Python's standard library in tokens, to train and held out, and the size of the vocabulary.

    Bytes do without the token that ends a document: a byte that occurs in no source does it.
    """
    text = stdlib_text()
    sides = (text.train_text.numpy(), text.validation_text.numpy())
    if tokenizer == BYTE:
        return *sides, NUM_BYTES
    reader = text_tokenizer(tokenizer)
    end = [] if reader.end_of_text is None else [np.array([reader.end_of_text], dtype=np.uint32)]
    train, validation = (
        np.concatenate([part for file in side.tobytes().split(END_OF_FILE) for part in (reader.encode(file), *end)])
        for side in sides
    )
    return train, validation, reader.num_tokens


def _stdlib_reader(tokenizer: str | None, num_characters: int) -> TextTokenizer:
    return stdlib_words(num_characters) if tokenizer is None else text_tokenizer(tokenizer)


@cache  # the trials of a process share them
def _stdlib_examples(
    tokenizer: str | None, num_characters: int, length: int, padding: int
) -> tuple[ExamplesInMemory, ExamplesInMemory]:
    """Pieces of Python's standard library as `_padded` gives them, to train and held out."""
    corpus, reader = stdlib_packages(num_characters), _stdlib_reader(tokenizer, num_characters)
    return _padded(corpus.train, reader, length, padding), _padded(corpus.validation, reader, length, padding)


def _padded(texts: LabelledTexts, reader: TextTokenizer, length: int, padding: int) -> ExamplesInMemory:
    """Tokens (n, length) int32, how many of them are text (n,) int64, labels (n,) int64."""
    tokens = np.full((len(texts.texts), length), padding, dtype=np.int32)
    lengths = np.zeros(len(texts.texts), dtype=np.int64)
    for index, text in enumerate(texts.texts):
        encoded = reader.encode(text.encode())[:length]
        tokens[index, : len(encoded)] = encoded
        lengths[index] = max(len(encoded), 1)  # of an empty text, the model sees one token that says nothing
    return ExamplesInMemory(torch.from_numpy(tokens), torch.from_numpy(lengths), torch.tensor(texts.labels))
