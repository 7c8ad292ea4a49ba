"""Trials whose consumer is slow, or wants nothing more of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import small_trial, without_clock
from trainers.config import Measurement
from trainers.loop import train
from trainers.ranks.consumer import GivenUp
from trainers.ranks.context import RankContext, process_group_context, single_process_context


class Impatient:
    """Gives up when it is asked for the n-th time in a step, or at the n-th checkpoint."""

    def __init__(self, *, steps: int | None = None, checkpoints: int | None = None) -> None:
        self._steps = steps
        self._checkpoints = checkpoints

    def has_given_up(self) -> bool:
        if self._steps is not None:
            self._steps -= 1
        return self._steps is not None and self._steps <= 0

    def wait(self) -> bool:
        if self._checkpoints is not None:
            self._checkpoints -= 1
        return self._checkpoints is None or self._checkpoints > 0


def steps_until_given_up(context: RankContext) -> list[int]:
    """The steps that are measured before the consumer gives up."""
    steps: list[int] = []
    try:
        steps.extend(measurement.step for measurement in train(small_trial(), context))
    except GivenUp:
        return steps
    raise AssertionError(f"not given up: {steps}")


def give_up_on_the_last_rank(num_steps: int, directory: Path) -> list[int]:
    context = process_group_context(checkpoint_directory=directory)
    is_last = context.rank == context.world_size - 1
    return steps_until_given_up(replace(context, consumer=Impatient(steps=num_steps if is_last else None)))


def test_what_one_rank_hears_ends_the_trial_on_all_in_the_same_step(two_ranks: WarmRanks, tmp_path: Path) -> None:
    assert two_ranks.run(give_up_on_the_last_rank, 27, tmp_path) == [[10, 20], [10, 20]]
    # The group is in step, and what was measured is on disk.
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-00000010", "step-00000020"]


@pytest.mark.parametrize("consumer", [lambda: Impatient(steps=25), lambda: Impatient(checkpoints=3)])
def test_a_trial_that_was_given_up_goes_on_as_if_it_had_not_been(
    consumer: Callable[[], Impatient], tmp_path: Path
) -> None:
    context = single_process_context(checkpoint_directory=tmp_path)
    assert steps_until_given_up(replace(context, consumer=consumer())) == [10, 20]
    resumed = list(train(small_trial(), context))
    whole: list[Measurement] = list(train(small_trial(), single_process_context()))
    assert without_clock(resumed) == without_clock(whole[1:])


@pytest.mark.parametrize("every", [{"evaluate_every": 10}, {"evaluate_every": None, "evaluate_every_seconds": 1e6}])
def test_a_patient_consumer_changes_nothing(every: dict[str, Any]) -> None:
    context = single_process_context()
    heard = list(train(small_trial(**every), replace(context, consumer=Impatient())))
    assert without_clock(heard) == without_clock(list(train(small_trial(**every), context)))
