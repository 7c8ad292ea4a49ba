"""Logs that are made up: the same for the same seed, with categories as skewed as real ones and clicks that follow."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from trainers.workloads.clicks.generator import ClickTruth, click_lines, main, write_click_log
from trainers.workloads.clicks.parser import NUM_CATEGORIES, NUM_COUNTS, parse


@pytest.mark.slow
def test_a_seed_makes_one_log_of_which_a_shorter_one_is_the_beginning(tmp_path: Path) -> None:
    text = b"".join(click_lines(12_000, seed=1))
    assert text.count(b"\n") == 12_000
    assert text.startswith(b"".join(click_lines(500, seed=1)))
    assert not text.startswith(b"".join(click_lines(10, seed=2)))
    for name in ("clicks.tsv", "clicks.tsv.gz", "again.gz"):
        write_click_log(tmp_path / name, 500, seed=1)
    assert (tmp_path / "clicks.tsv").read_bytes() == b"".join(click_lines(500, seed=1))
    assert gzip.decompress((tmp_path / "again.gz").read_bytes()) == (tmp_path / "clicks.tsv").read_bytes()
    assert (tmp_path / "again.gz").read_bytes() == (tmp_path / "clicks.tsv.gz").read_bytes()


def test_categories_follow_a_zipf_law_and_some_are_missing() -> None:
    examples = parse(b"".join(click_lines(10_000, seed=0))).examples
    assert (examples["categories"] == 0).mean() == pytest.approx(0.05, abs=0.005)
    assert (examples["counts"] == 0).mean() > 0.15
    _, frequencies = np.unique(examples["categories"][:, -1], return_counts=True)
    ranked = np.sort(frequencies)[::-1][1:]  # without what is missing, or the most frequent
    # Frequency goes with rank to the power -1.1: from the second to the twentieth it falls by 10^1.1 = 12.6.
    assert ranked[1] / ranked[19] == pytest.approx(10**1.1, rel=0.5)
    assert len(frequencies) > 1000


def test_clicks_follow_from_features() -> None:
    truth = ClickTruth(seed=0)
    generator = np.random.default_rng(0)
    counts = generator.integers(-1, 50, size=(2000, NUM_COUNTS))
    categories = generator.integers(-1, 4, size=(2000, NUM_CATEGORIES))
    probabilities = truth.click_probabilities(counts, categories)
    assert ((probabilities > 0) & (probabilities < 1)).all()
    assert probabilities.std() > 0.1
    np.testing.assert_array_equal(probabilities, ClickTruth(seed=0).click_probabilities(counts, categories))
    assert not np.array_equal(probabilities, ClickTruth(seed=1).click_probabilities(counts, categories))
    # Some of it is in pairs: a model of sums would add what one category and another change.
    one, other = truth.pairs[0]
    corners = categories[:1].repeat(4, axis=0)
    corners[:, one], corners[:, other] = [0, 0, 1, 1], [0, 1, 0, 1]
    logits = truth.click_probabilities(counts[:1].repeat(4, axis=0), corners)
    logits = np.log(logits / (1 - logits))
    assert abs(logits[0] + logits[3] - logits[1] - logits[2]) > 0.01


def test_the_command_writes_a_log_and_overwrites_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(tmp_path / "clicks.tsv"), "--examples", "20", "--seed", "5"]
    assert main(arguments) == 0
    assert (tmp_path / "clicks.tsv").read_bytes() == b"".join(click_lines(20, seed=5))
    assert main(arguments) == 2
    assert "File exists" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path / "other"), "--examples", "0"])
    assert "--examples must be >= 1" in capsys.readouterr().err
