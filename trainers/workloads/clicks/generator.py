"""Writes click logs in Criteo's format whose clicks follow from the features: data for tests, and for trying things.

    python -m trainers.workloads.clicks.generator clicks.tsv --examples 100000 --seed 0

Categories follow Zipf laws, as those of real logs do; counts are log-normal; some of both are missing. A click is drawn
with the probability that a logistic model gives it: of counts, of an effect for each category value, and of products of
pairs of categories' hidden vectors, which only a model with interactions can learn.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from trainers.installation.extras import needing

with needing("clicks", is_command=__name__ == "__main__"):
    import numpy as np
    from numpy.typing import NDArray

    from trainers.workloads.clicks.parser import NUM_CATEGORIES, NUM_COUNTS

NUM_AT_ONCE = 10_000
"""Lines that are drawn at once, which bounds memory. Each portion has its own seed: another number, another log."""
VOCABULARY_SIZES = tuple(int(size) for size in np.geomspace(4, 20_000, NUM_CATEGORIES))
"""Sizes of the tables: from a few values to many, most of which are rare."""
ZIPF_EXPONENT = 1.1
"""Exponent of the frequencies of categories: a few are frequent and most are rare, as in real logs."""
MISSING_COUNT_SHARE = 0.2
MISSING_CATEGORY_SHARE = 0.05
"""Both are shares of fields that are empty, as some of every real log are; by judgement."""
CLICK_LOGIT = -1.3
"""Gives about a quarter of clicks, as in Criteo's smaller log."""
COUNT_DEVIATION, CATEGORY_DEVIATION, PAIR_DEVIATION = 0.8, 1.5, 1.0
"""Standard deviations of what counts, categories and pairs each add to the logit."""
NUM_PAIRS = 8
HIDDEN_WIDTH = 4
"""Both are of the model that decides on clicks: products of features, so that a linear model does not learn all of
it."""


class ClickTruth:
    """The logistic model that clicks follow: the same for the same seed."""

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng([seed, 0])
        self.count_weights = generator.normal(size=NUM_COUNTS) * COUNT_DEVIATION / np.sqrt(NUM_COUNTS)
        self.category_effects = [
            generator.normal(size=size) * CATEGORY_DEVIATION / np.sqrt(NUM_CATEGORIES) for size in VOCABULARY_SIZES
        ]
        self.hidden = [generator.normal(size=(size, HIDDEN_WIDTH)) for size in VOCABULARY_SIZES]
        self.pairs = generator.permutation(NUM_CATEGORIES)[: 2 * NUM_PAIRS].reshape(NUM_PAIRS, 2)

    def click_probabilities(self, counts: NDArray[np.int64], categories: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probabilities (k,) of clicks, from counts (k, 13) and categories (k, 26); -1 is missing, and adds nothing."""
        logits = CLICK_LOGIT + np.where(counts < 0, 0, np.log1p(np.maximum(counts, 0)) - 2) @ self.count_weights
        for table in range(NUM_CATEGORIES):
            logits += np.where(categories[:, table] < 0, 0, self.category_effects[table][categories[:, table]])
        for one, other in self.pairs:
            is_there = (categories[:, one] >= 0) & (categories[:, other] >= 0)
            product = (self.hidden[one][categories[:, one]] * self.hidden[other][categories[:, other]]).sum(1)
            logits += np.where(is_there, product * PAIR_DEVIATION / np.sqrt(NUM_PAIRS * HIDDEN_WIDTH), 0)
        return cast("NDArray[np.float64]", 1 / (1 + np.exp(-logits)))


def click_lines(num_examples: int, *, seed: int) -> Iterator[bytes]:
    """The lines of a log, 10,000 at a time."""
    truth = ClickTruth(seed)
    for start in range(0, num_examples, NUM_AT_ONCE):
        number = min(NUM_AT_ONCE, num_examples - start)
        # Of its own for each portion, so that a longer log begins as a shorter one.
        generator = np.random.default_rng([seed, 1, start])
        counts = np.floor(generator.lognormal(2, 1.2, size=(NUM_AT_ONCE, NUM_COUNTS))).astype(np.int64)
        categories = np.stack([_zipf(generator, size) for size in VOCABULARY_SIZES], axis=1)
        counts[generator.random(counts.shape) < MISSING_COUNT_SHARE] = -1
        categories[generator.random(categories.shape) < MISSING_CATEGORY_SHARE] = -1
        labels = generator.random(NUM_AT_ONCE) < truth.click_probabilities(counts, categories)
        yield _lines(labels[:number], counts[:number], categories[:number])


def write_click_log(path: Path, num_examples: int, *, seed: int) -> None:
    """Writes a log of so many lines, compressed where the path ends in `.gz`.

    Raises:
        FileExistsError: there is something at the path.
    """
    # No name and time of writing in the header: the same arguments give the same bytes.
    with path.open("xb") as plain:
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0) if path.suffix == ".gz" else None
        stream = cast("IO[bytes]", packed or plain)
        for lines in click_lines(num_examples, seed=seed):
            stream.write(lines)
        if packed is not None:
            packed.close()


def _zipf(generator: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Values below `size`, value k in proportion to 1 / (k + 1)^1.1: (10000,)."""
    cumulative = np.cumsum(np.arange(1, size + 1) ** -ZIPF_EXPONENT)
    values: NDArray[np.int64] = np.searchsorted(cumulative, generator.random(NUM_AT_ONCE) * cumulative[-1])
    return values


def _lines(labels: NDArray[np.bool_], counts: NDArray[np.int64], categories: NDArray[np.int64]) -> bytes:
    """Values of categories are hashed to eight hexadecimal digits, so that they look as in Criteo's logs."""
    hashes = (categories * NUM_CATEGORIES + np.arange(NUM_CATEGORIES) + 1) * 2_654_435_761 % 2**32  # an odd factor
    rows = []
    for label, row_counts, row_categories, row_hashes in zip(
        labels.tolist(), counts.tolist(), categories.tolist(), hashes.tolist(), strict=True
    ):
        fields = ["1" if label else "0", *("" if count < 0 else str(count) for count in row_counts)]
        fields += [
            "" if value < 0 else f"{number:08x}" for value, number in zip(row_categories, row_hashes, strict=True)
        ]
        rows.append("\t".join(fields) + "\n")
    return "".join(rows).encode()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives the exit status: 0, or 2 if the path is taken or cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.workloads.clicks.generator",
        description="Writes a click log in Criteo's format whose clicks follow from the features.",
    )
    parser.add_argument("path", type=Path, help="file to write; compressed if it ends in .gz")
    parser.add_argument("--examples", type=int, default=100_000, help="lines to write (default: 100000)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of features, clicks and what they follow (default: 0)"
    )
    options = parser.parse_args(arguments)
    if options.examples < 1 or options.seed < 0:
        parser.error(f"--examples must be >= 1 and --seed >= 0, got {options.examples} and {options.seed}")
    try:
        write_click_log(options.path, options.examples, seed=options.seed)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
