"""The handwritten digits of scikit-learn, read and split as scikit-learn does it, without importing it.

Its import takes as long as torch's, in each rank that is started.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np

from trainers.installation.extras import needs

Integers: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]


def read_digits() -> tuple[np.ndarray[tuple[int, int], np.dtype[np.float64]], Integers]:
    """The images (1797, 64), with rows of the image one after the other, and their labels (1797,).

    Raises:
        ValueError: scikit-learn is not installed.
    """
    found = find_spec("sklearn")
    if found is None:
        raise ValueError(f"the handwritten digits: {needs('scikit-learn', extra='digits')}")
    assert found.submodule_search_locations, "it is a package"
    file = Path(found.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    if file.is_file():
        table = np.loadtxt(file, delimiter=",")
        return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images, labels.astype(np.int64)


def stratified_split(labels: Integers, num_validation: int, *, seed: int) -> tuple[Integers, Integers]:
    """Indices of the training and of the validation examples, each class shared as exactly as whole numbers allow.

    They are those of `sklearn.model_selection.train_test_split(..., stratify=labels, random_state=seed)`.
    """
    random = np.random.RandomState(seed)
    counts = np.bincount(labels)
    shares = counts / len(labels) * (len(labels) - num_validation)
    num_train = np.floor(shares).astype(int)
    missing = len(labels) - num_validation - num_train.sum()
    for remainder in np.unique(shares - num_train)[::-1]:
        classes = np.flatnonzero(shares - np.floor(shares) == remainder)
        if missing > 0:
            rounded_up = random.choice(classes, size=min(len(classes), missing), replace=False)
            num_train[rounded_up] += 1
            missing -= len(rounded_up)
    train, validation = [], []
    for label, count in enumerate(num_train):
        shuffled = random.permutation(np.flatnonzero(labels == label))
        train.append(shuffled[:count])
        validation.append(shuffled[count:])
    return random.permutation(np.concatenate(train)), random.permutation(np.concatenate(validation))
