"""The name that was probably meant."""

from __future__ import annotations

import pytest

from search_spaces.nearest import did_you_mean


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("adamW", ": did you mean 'adamw'?"),
        ("shampo", ": did you mean 'shampoo'?"),
        ("Validation_Loss", ": did you mean 'validation_loss'?"),
        ("loss", ": did you mean 'validation_loss'?"),
        ("sha", ": did you mean 'shampoo'?"),
        ("val", ""),
        ("zzz", ""),
        (7, ""),
        (None, ""),
    ],
)
def test_the_nearest_name_is_told_if_one_is_near(name: object, hint: str) -> None:
    assert did_you_mean(name, ["adamw", "shampoo", "validation_loss"]) == hint
