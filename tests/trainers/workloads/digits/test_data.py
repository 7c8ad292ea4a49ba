from __future__ import annotations

from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest

from trainers.workloads.digits import data
from trainers.workloads.digits.data import read_digits, stratified_split


def test_the_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits  # a second that every process of a run would pay

    for ours, theirs in zip(read_digits(), load_digits(return_X_y=True), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_a_scikit_learn_that_keeps_them_elsewhere_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = ModuleSpec("sklearn", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(data, "find_spec", lambda _: spec)
    images, labels = read_digits()
    assert images.shape == (1797, 64)
    assert labels.dtype == np.int64


@pytest.mark.parametrize("num_validation", [100, 360, 899])
def test_the_split_is_that_of_scikit_learn(num_validation: int) -> None:
    from sklearn.model_selection import train_test_split  # a second that every process of a run would pay

    _, labels = read_digits()
    for seed in range(10):
        expected = train_test_split(
            np.arange(len(labels)), test_size=num_validation, random_state=seed, stratify=labels
        )
        for ours, theirs in zip(stratified_split(labels, num_validation, seed=seed), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
