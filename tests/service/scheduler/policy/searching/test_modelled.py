"""The trials of an `auto` search as its model knows them."""

from __future__ import annotations

import numpy as np
import pytest

from service.scheduler.policy.searching.modelled import (
    EXPECTED_ERROR,
    NUM_EXPECTED,
    ModelledTrial,
    branch_errors,
)

OFTEN, SELDOM, NEVER = (0.1,), (0.5,), (0.9,)
"""Branches, by how many of their trials are finished."""


def trial(branch: tuple[float, ...]) -> ModelledTrial:
    return ModelledTrial(0, {}, np.array(branch), branch, 1)


def test_ends_are_as_uncertain_as_the_errors_in_their_branch_and_widely_where_none_is_finished() -> None:
    finished = [trial(OFTEN)] * 40 + [trial(SELDOM)]
    trials = [trial(branch) for branch in (NEVER, SELDOM, OFTEN)]
    never, seldom, often = branch_errors(trials, finished, lambda: np.full(41, 0.1))
    assert never == pytest.approx(EXPECTED_ERROR)
    assert EXPECTED_ERROR > seldom > 2 * often > 0.2
    wrong = branch_errors(trials, finished, lambda: np.r_[np.full(40, 0.1), 2.0])
    assert wrong[1] > 1.5 * EXPECTED_ERROR
    np.testing.assert_array_equal(wrong[[0, 2]], [never, often])


def test_the_model_is_believed_until_some_trials_are_finished_and_where_there_is_one_branch() -> None:
    finished = [trial(OFTEN)] * (NUM_EXPECTED - 1)
    assert branch_errors([trial(OFTEN), trial(NEVER)], finished, lambda: np.ones(len(finished))).tolist() == [0.0, 0.0]
    assert branch_errors([trial(OFTEN)] * 9, [trial(OFTEN)] * 8, lambda: np.ones(8)).tolist() == [0.0] * 9
