"""The steps that are measured, and the time that the stopwatch counts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.trainers.trials import small_trial
from trainers.config import TrialConfig
from trainers.stopwatch import Stopwatch, next_measurement


def steps(config: TrialConfig, *, num_train_examples: int) -> list[int]:
    """All steps that are measured whatever the clock says."""
    found = [0]
    while found[-1] < config.num_steps:
        found.append(next_measurement(found[-1], config, num_train_examples=num_train_examples))
    return found[1:]


def config(**fields: Any) -> TrialConfig:
    return small_trial(**{"evaluate_every": None, "num_steps": 40, "batch_size": 48, **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"evaluate_every": 15}, [15, 30, 40]),
        ({"evaluate_every_examples": 480}, [10, 20, 30, 40]),
        ({"evaluate_every_examples": 600}, [13, 25, 38, 40]),
        ({"evaluate_every_examples": 7, "num_steps": 3}, [1, 2, 3]),
        ({"evaluate_every_epochs": 1.0}, [10, 20, 30, 40]),  # of 480 examples
        ({"evaluate_every_epochs": 0.25}, [3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28, 30, 33, 35, 38, 40]),
        ({"evaluate_every_epochs": 0.001, "num_steps": 3}, [1, 2, 3]),
        ({"evaluate_every_epochs": 100.0}, [40]),
        ({"evaluate_every_seconds": 1.0}, [40]),
    ],
)
def test_measurements_fall_on_steps_examples_and_epochs(fields: dict[str, Any], expected: list[int]) -> None:
    assert steps(config(**fields), num_train_examples=480) == expected


def test_tenths_of_epochs_are_never_a_step_late() -> None:
    # 0.1 has no exact binary form: 3 * 0.1 * 480 is a little more than 144.
    found = steps(config(evaluate_every_epochs=0.1, batch_size=1, num_steps=480), num_train_examples=480)
    assert found == list(range(48, 481, 48))


def test_measurements_resume_on_the_same_steps() -> None:
    trial = config(evaluate_every_epochs=0.3)
    whole = steps(trial, num_train_examples=480)
    for index, step in enumerate(whole[:-1]):
        assert next_measurement(step, trial, num_train_examples=480) == whole[index + 1]


def test_the_optimizers_time_is_a_part_of_the_whole() -> None:
    stopwatch = Stopwatch("cpu")
    time.sleep(0.02)
    for _ in range(2):
        with stopwatch.optimizer():
            time.sleep(0.01)
    elapsed, optimizer_seconds = stopwatch.stop()
    assert 0.02 <= optimizer_seconds <= elapsed - 0.02
