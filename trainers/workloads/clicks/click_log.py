"""Click prediction (DLRM) on a user's logs in Criteo's format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor, nn

from trainers.data.prepared import cache_directory as chosen_cache_directory
from trainers.workload.parameter_groups import groups_by_rule
from trainers.workloads import options as check
from trainers.workloads.clicks.description import PARAMETER_GROUPS
from trainers.workloads.clicks.examples import ClickLog, Examples, read_click_log
from trainers.workloads.clicks.model import DLRM, ClickShape, click_loss
from trainers.workloads.clicks.parser import NUM_CATEGORIES
from trainers.workloads.options import shape_of_size

SHAPES = {
    "tiny": ClickShape(num_buckets=1_000, embedding_width=8, bottom_sizes=(32,), top_sizes=(64, 32)),
    "small": ClickShape(num_buckets=10_000, embedding_width=16, bottom_sizes=(128, 64), top_sizes=(256, 128)),
    # As the paper trains it on Criteo's smaller log (section 5.2), with hashed categories.
    "dlrm-kaggle": ClickShape(
        num_buckets=100_000, embedding_width=16, bottom_sizes=(512, 256, 64), top_sizes=(512, 256)
    ),
}

DEFAULT_VALIDATION_SHARE = 0.1
"""The last tenth, where the user does not say."""
NUM_EXAMPLES_AT_ONCE = 4096
"""Examples at once in evaluation: bounds its memory."""

Batch: TypeAlias = tuple[Tensor, Tensor, Tensor]


class ClickPrediction:
    """Predicts whether there was a click; log loss (binary cross-entropy) in nats per example.

    The log is taken to be in the order of time: its last part is for validation, as a model will be used on what comes
    after its training. Within training, examples are shuffled.
    """

    def __init__(
        self,
        *,
        path: str,
        file_pattern: str | None,
        validation_path: str | None,
        validation_share: float | None,
        num_validation_examples: int | None,
        max_malformed_lines: int,
        cache_directory: str | None,
        size: str,
        num_buckets: int | None,
        embedding_width: int | None,
        bottom_sizes: Sequence[int] | None,
        top_sizes: Sequence[int] | None,
    ) -> None:
        self.shape = click_shape(size, num_buckets, embedding_width, bottom_sizes, top_sizes)
        check.text("path", path)
        if file_pattern is not None:
            check.text("file_pattern", file_pattern)
        if num_validation_examples is not None:
            check.integer("num_validation_examples", num_validation_examples)
        share = DEFAULT_VALIDATION_SHARE
        if validation_share is not None:
            share = check.open_share("validation_share", validation_share)
        limit = check.integer("max_malformed_lines", max_malformed_lines, minimum=0)
        directory = chosen_cache_directory(cache_directory)

        def read(option: str, location: str) -> ClickLog:
            return read_click_log(
                option, location, file_pattern=file_pattern, cache_directory=directory, max_malformed_lines=limit
            )

        log = read("path", path)
        self._num_malformed_lines = log.num_malformed_lines
        if validation_path is not None:
            check.text("validation_path", validation_path)
            check.without_effect("validation_share", validation_share, "beside validation_path")
            validation_log = read("validation_path", validation_path)
            self._num_malformed_lines += validation_log.num_malformed_lines
            self._train, validation = log.examples, validation_log.examples
        else:
            self._train, validation = last_part(log.examples, share=share)
        number = min(num_validation_examples or len(validation), len(validation))
        # Spread over the whole time that is held out.
        self._validation: Examples = validation[np.arange(number) * len(validation) // number]
        self.base_rate_entropy = entropy(float(self._validation["label"].mean()))
        """Log loss of who knows the share of clicks among the validation examples and nothing else."""
        if self.base_rate_entropy == 0:
            raise ValueError(f"validation needs clicks and their absence; all {number} examples have the same label")
        self._counts_here = True

    def build_model(self) -> nn.Module:
        """Counts (b, 13) float32 and rows (b, 26) int64 to logits (b, 1)."""
        return DLRM(self.shape)

    def parameter_groups(self, model: nn.Module) -> Sequence[Mapping[str, Any]]:
        """Groups as the description has them."""
        return groups_by_rule(model, PARAMETER_GROUPS, options={})

    @property
    def num_train_examples(self) -> int:
        return len(self._train)

    def batch(self, indices: Tensor) -> Batch:
        """Counts (b, 13) float32, rows of the tables (b, 26) int64, labels (b,) float32."""
        return self._batch(self._train[indices.numpy()])

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        """Nats per example."""
        counts, rows, labels = cast("Batch", batch)
        return click_loss(model(counts, rows), labels)

    def evaluate(
        self, model: nn.Module, *, rank: int, world_size: int, device: str
    ) -> Mapping[str, tuple[float, float]]:
        """Metrics on every `world_size`-th validation example: `validation_loss` (nats), and
        `validation_normalized_entropy`, the loss over the entropy of the base rate: 1 for a model that knows nothing of
        the features."""
        self._counts_here = rank == 0  # each rank has read the same log, and the loop adds up what they count
        share = self._validation[rank::world_size]
        loss_sum = 0.0
        for start in range(0, len(share), NUM_EXAMPLES_AT_ONCE):
            batch = self._batch(share[start : start + NUM_EXAMPLES_AT_ONCE])
            counts, rows, labels = (part.to(device) for part in batch)
            loss_sum += click_loss(model(counts, rows), labels, reduction="sum").item()
        weight = float(len(share))
        return {
            "validation_loss": (loss_sum, weight),
            "validation_normalized_entropy": (loss_sum / self.base_rate_entropy, weight),
        }

    def counts(self) -> Mapping[str, int]:
        """`num_malformed_lines` of the whole log, told by rank 0 alone."""
        return {"num_malformed_lines": self._num_malformed_lines if self._counts_here else 0}

    def _batch(self, examples: Examples) -> Batch:
        rows = table_rows(examples["categories"], self.shape.num_buckets)
        return (
            torch.from_numpy(np.array(examples["counts"])),
            torch.from_numpy(rows),
            torch.from_numpy(examples["label"].astype(np.float32)),
        )


def click_shape(
    size: object,
    num_buckets: int | None,
    embedding_width: int | None,
    bottom_sizes: Sequence[int] | None,
    top_sizes: Sequence[int] | None,
) -> ClickShape:
    """The shape of that size, except for what is given.

    Raises:
        ValueError: an option is wrong; the message names it.
    """
    shape = shape_of_size(size, SHAPES)
    given: dict[str, Any] = {}
    if num_buckets is not None:
        given["num_buckets"] = check.integer("num_buckets", num_buckets, minimum=2)  # one is for what is missing
    if embedding_width is not None:
        given["embedding_width"] = check.integer("embedding_width", embedding_width)
    if bottom_sizes is not None:
        given["bottom_sizes"] = check.integers("bottom_sizes", bottom_sizes)
    if top_sizes is not None:
        given["top_sizes"] = check.integers("top_sizes", top_sizes)
    return replace(shape, **given)


def last_part(examples: Examples, *, share: float) -> tuple[Examples, Examples]:
    """The examples (n,) but the last share, and these: at least one on each side.

    Raises:
        ValueError: there are fewer than two.
    """
    if len(examples) < 2:
        raise ValueError(f"path has {len(examples)} example, which cannot be split in two; give validation_path")
    number = min(max(1, round(share * len(examples))), len(examples) - 1)
    return examples[:-number], examples[-number:]


def table_rows(categories: np.ndarray[Any, np.dtype[np.uint32]], num_buckets: int) -> np.ndarray[Any, Any]:
    """Rows of the embeddings of categories (b, 26) in the one table of 26 x num_buckets rows: (b, 26) int64.

    The first row of each part is for what is missing; all else is hashed to the others.
    """
    numbers = categories.astype(np.int64)
    buckets = np.where(numbers == 0, 0, 1 + (numbers - 1) % (num_buckets - 1))
    return buckets + np.arange(NUM_CATEGORIES) * num_buckets


def entropy(share: float) -> float:
    """Nats of a coin that shows heads with that probability."""
    return 0.0 if share in (0.0, 1.0) else -share * math.log(share) - (1 - share) * math.log(1 - share)
