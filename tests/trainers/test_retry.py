"""Retrying: what is tried again, for how long, and with which pauses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainers.retry import LONGEST_PAUSE_SECONDS, retry


class Flaky:
    """Fails so many times, and then gives its number of calls."""

    def __init__(self, num_failures: int, error: type[Exception] = ConnectionError) -> None:
        self.num_failures, self.error = num_failures, error
        self.num_calls = 0
        self.pauses: list[float] = []
        self.told: list[tuple[str, float]] = []

    def __call__(self) -> int:
        self.num_calls += 1
        if self.num_calls <= self.num_failures:
            raise self.error(str(self.num_calls))
        return self.num_calls

    def retried(self, *, give_up_seconds: float = 1e6, may_wait: Callable[[], bool] = lambda: True) -> int:
        return retry(
            self,
            is_temporary=lambda error: isinstance(error, ConnectionError),
            give_up_seconds=give_up_seconds,
            first_pause_seconds=1.0,
            may_wait=may_wait,
            tell=lambda error, pause: self.told.append((str(error), pause)),
            sleep=self.pauses.append,
        )


def test_pauses_double_up_to_the_longest_and_each_is_told() -> None:
    flaky = Flaky(5)
    assert flaky.retried() == 6
    assert flaky.pauses == [1.0, 2.0, 4.0, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    assert flaky.told == [(str(number), pause) for number, pause in enumerate(flaky.pauses, start=1)]


def test_an_error_that_is_not_temporary_is_raised_at_once() -> None:
    flaky = Flaky(1, ValueError)
    with pytest.raises(ValueError, match="1"):
        flaky.retried()
    assert (flaky.num_calls, flaky.pauses) == (1, [])


def test_it_gives_up_when_the_next_try_would_be_too_late() -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError, match="1"):
        flaky.retried(give_up_seconds=0.5)
    assert flaky.pauses == []


def test_nobody_waits_who_may_not() -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError, match="3"):
        flaky.retried(may_wait=lambda: flaky.num_calls < 3)
    assert flaky.pauses == [1.0, 2.0]
