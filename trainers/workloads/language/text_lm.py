"""A language model, GPT-like or Llama-like, on a user's own text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from trainers.data.prepared import cache_directory as chosen_cache_directory
from trainers.workload.parameter_groups import groups_by_rule
from trainers.workloads import options as check
from trainers.workloads.language.corpus import Corpus, CorpusSource, Tokens, read_corpus, text_files
from trainers.workloads.language.description import CONTEXT_LENGTHS, PARAMETER_GROUPS
from trainers.workloads.language.documents import is_parquet
from trainers.workloads.language.llama import Llama
from trainers.workloads.language.transformer import GPT, TransformerShape
from trainers.workloads.options import shape_of_size

ARCHITECTURES = ("gpt", "llama")
SHAPES: Mapping[str, Mapping[str, TransformerShape]] = {
    "gpt": {
        "tiny": TransformerShape(num_blocks=2, num_heads=4, width=64, context_length=CONTEXT_LENGTHS["tiny"]),
        "small": TransformerShape(num_blocks=4, num_heads=6, width=192, context_length=CONTEXT_LENGTHS["small"]),
        "gpt2-124m": TransformerShape(
            num_blocks=12, num_heads=12, width=768, context_length=CONTEXT_LENGTHS["gpt2-124m"], is_tied=True
        ),
    },
    "llama": {
        "tiny": TransformerShape(
            num_blocks=2, num_heads=4, num_key_value_heads=2, width=64, context_length=CONTEXT_LENGTHS["tiny"]
        ),
        "small": TransformerShape(
            num_blocks=4, num_heads=6, num_key_value_heads=2, width=192, context_length=CONTEXT_LENGTHS["small"]
        ),
        # 124.6 million parameters with a vocabulary of 32,000 tokens, as Llama's own.
        "llama-124m": TransformerShape(
            num_blocks=12, num_heads=12, num_key_value_heads=4, width=768, context_length=CONTEXT_LENGTHS["llama-124m"]
        ),
    },
}

VOCABULARY_MULTIPLE = 64
"""A tokenizer's vocabulary is rounded up to it with tokens that never occur: GPT-2's 50,257 would leave matrix units
idle (as nanoGPT does)."""

NUM_LOGITS_AT_ONCE = 2**26
"""Logits at once in evaluation: bounds its memory, 256 MiB of float32."""


class TextLM:
    """Predicts each next token of text; cross-entropy loss, in nats per token.

    An example is a sequence of `context_length` + 1 tokens. Its last token is the first of the next example, so that
    each token of the text but the very first is predicted once per epoch. Sequences may cross from one document into
    the next; an end-of-text token lies between, if the tokenizer has one.
    """

    def __init__(
        self,
        *,
        path: str,
        file_pattern: str | None,
        text_column: str | None,
        validation_path: str | None,
        validation_share: float | None,
        validation_seed: int | None,
        num_validation_sequences: int | None,
        tokenizer: str,
        cache_directory: str | None,
        architecture: str,
        size: str,
        num_blocks: int | None,
        num_heads: int | None,
        num_key_value_heads: int | None,
        width: int | None,
        context_length: int | None,
        tie_embeddings: bool | None,
        precondition_embeddings: bool,
    ) -> None:
        self.architecture = check.one_of("architecture", architecture, ARCHITECTURES)
        self._precondition_embeddings = check.boolean("precondition_embeddings", precondition_embeddings)
        overrides: dict[str, Any] = {
            "num_blocks": num_blocks,
            "num_heads": num_heads,
            "num_key_value_heads": num_key_value_heads,
            "width": width,
            "context_length": context_length,
        }
        shape = transformer_shape(self.architecture, size, overrides, tie_embeddings)
        source = _source(path, file_pattern, text_column, validation_path, validation_share, validation_seed, tokenizer)
        if num_validation_sequences is not None:
            check.integer("num_validation_sequences", num_validation_sequences)
        self.corpus: Corpus = read_corpus(source, cache_directory=chosen_cache_directory(cache_directory))
        """The tokens that were read."""
        self.shape = replace(shape, num_tokens=rounded_vocabulary(self.corpus.num_tokens))
        self._train = sequences(self.corpus.train_tokens, shape.context_length, side="training")
        validation = sequences(self.corpus.validation_tokens, shape.context_length, side="validation")
        num_validation = min(num_validation_sequences or len(validation), len(validation))
        # Spread over the whole text, so that every document of some length has its share.
        self._validation = validation[np.arange(num_validation) * len(validation) // num_validation]

    def build_model(self) -> nn.Module:
        """Tokens (b, t) int64, t <= `context_length`, to logits (b, t, vocabulary)."""
        return GPT(self.shape) if self.architecture == "gpt" else Llama(self.shape)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """The transformer's blocks."""
        assert isinstance(model, GPT | Llama)
        return list(model.blocks)

    def parameter_groups(self, model: nn.Module) -> Sequence[Mapping[str, Any]]:
        """Groups as the description has them."""
        options = {"precondition_embeddings": self._precondition_embeddings}
        return groups_by_rule(model, PARAMETER_GROUPS, options=options)

    @property
    def tokens_per_example(self) -> int:
        """The tokens that are predicted: `context_length`."""
        return self.shape.context_length

    @property
    def num_train_examples(self) -> int:
        """The number of sequences."""
        return len(self._train)

    def batch(self, indices: Tensor) -> Tensor:
        """Sequences (b, `context_length` + 1) int32."""
        return _as_tensor(self._train[indices.numpy()])

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """Nats per token."""
        assert isinstance(batch, Tensor)
        tokens = batch.long()  # on the device: half as many bytes on the way there
        logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """Metrics on every `world_size`-th validation sequence: `validation_loss` (nats per token),
        `validation_accuracy` (the share of tokens of which the model is surest) and `validation_bits_per_byte`.

        The last is comparable between tokenizers. Where not all of the validation text is evaluated, a token counts as
        many bytes as it does there on average.
        """
        loss_sum, num_correct, num_tokens = 0.0, 0, 0
        share = self._validation[rank::world_size]
        num_at_once = max(1, NUM_LOGITS_AT_ONCE // (self.shape.context_length * self.shape.num_tokens))
        for start in range(0, len(share), num_at_once):
            tokens = _as_tensor(share[start : start + num_at_once]).to(device).long()
            logits, targets = model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
            loss_sum += functional.cross_entropy(logits.float(), targets, reduction="sum").item()
            num_correct += int((logits.argmax(dim=1) == targets).sum())
            num_tokens += len(targets)
        num_bytes = num_tokens * self.corpus.bytes_per_validation_token
        return {
            "validation_loss": (loss_sum, float(num_tokens)),
            "validation_bits_per_byte": (loss_sum / math.log(2), num_bytes),
            "validation_accuracy": (float(num_correct), float(num_tokens)),
        }


def transformer_shape(
    architecture: str, size: object, overrides: Mapping[str, int | None], tie_embeddings: bool | None
) -> TransformerShape:
    """The shape of that size, except for what is overridden; the vocabulary is not known here.

    Raises:
        ValueError: an option is not an integer >= 1, has no effect, or the heads do not fit the width or each other.
    """
    shape = shape_of_size(size, SHAPES[architecture])
    if architecture != "llama":
        check.without_effect("num_key_value_heads", overrides["num_key_value_heads"], f"with {architecture}")
    given: dict[str, Any] = {name: check.integer(name, value) for name, value in overrides.items() if value is not None}
    if tie_embeddings is not None:
        given["is_tied"] = check.boolean("tie_embeddings", tie_embeddings)
    shape = replace(shape, **given)
    width, heads, key_value_heads = shape.width, shape.num_heads, shape.num_key_value_heads or shape.num_heads
    if width % heads != 0:
        raise ValueError(f"width must be a multiple of num_heads ({heads}), got {width}")
    if architecture == "llama" and width // heads % 2 != 0:
        raise ValueError(f"width must be a multiple of twice num_heads ({heads}) to rotate pairs, got {width}")
    if heads % key_value_heads != 0:
        raise ValueError(f"num_heads must be a multiple of num_key_value_heads ({key_value_heads}), got {heads}")
    return shape


def rounded_vocabulary(num_tokens: int) -> int:
    """The size of the model's vocabulary; that of bytes stays as it is."""
    if num_tokens <= 512:
        return num_tokens
    return -(-num_tokens // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def sequences(tokens: Tokens, context_length: int, *, side: str) -> Tokens:
    """The text (n,) in sequences that share one token with the next: (m, context_length + 1), a view.

    Up to `context_length` tokens at the end are left over.

    Raises:
        ValueError: there is not one sequence; the message names the side.
    """
    if len(tokens) <= context_length:
        raise ValueError(
            f"context_length must be less than the number of {side} tokens ({len(tokens)}), got {context_length}"
        )
    return cast("Tokens", np.lib.stride_tricks.sliding_window_view(tokens, context_length + 1)[::context_length])


def _as_tensor(tokens: NDArray[Any]) -> Tensor:
    """A copy, because tensors cannot share memory that must not be written."""
    return torch.from_numpy(tokens.astype(np.int32))


def _source(
    path: str,
    file_pattern: str | None,
    text_column: str | None,
    validation_path: str | None,
    validation_share: float | None,
    validation_seed: int | None,
    tokenizer: str,
) -> CorpusSource:
    """Checks the options that say what text there is."""
    check.text("path", path)
    check.text("tokenizer", tokenizer)
    if file_pattern is not None:
        check.text("file_pattern", file_pattern)
    files = text_files("path", path, file_pattern)
    if validation_path is not None:
        check.text("validation_path", validation_path)
        check.without_effect("validation_share", validation_share, "beside validation_path")
        check.without_effect("validation_seed", validation_seed, "beside validation_path")
        files += text_files("validation_path", validation_path, file_pattern)
    elif len(files) == 1 and not is_parquet(files[0].path):
        check.without_effect("validation_seed", validation_seed, "with a single text file, whose end is held out")
    if not any(is_parquet(file.path) for file in files):
        check.without_effect("text_column", text_column, "without Parquet files")
    return CorpusSource(
        path=path,
        file_pattern=file_pattern,
        validation_path=validation_path,
        validation_share=None if validation_share is None else check.open_share("validation_share", validation_share),
        validation_seed=0 if validation_seed is None else check.integer("validation_seed", validation_seed, minimum=0),
        text_column="text" if text_column is None else check.text("text_column", text_column),
        tokenizer=tokenizer,
    )
