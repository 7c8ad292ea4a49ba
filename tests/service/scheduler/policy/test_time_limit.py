"""The pace of trials, on a clock of the test's."""

from __future__ import annotations

from service.scheduler.policy.time_limit import RESERVE, Pace


def test_a_trial_takes_what_its_steps_took_without_the_time_it_was_paused() -> None:
    now = [0.0]
    pace = Pace(100, clock=lambda: now[0])
    assert (pace.seconds_per_trial, pace.is_time_to_close(0.0)) == ({}, False)
    for number, step, at in [(0, 10, 5.0), (1, 10, 6.0), (0, 20, 7.0), (1, 20, 9.0)]:
        now[0] = at
        pace.measured(number, step, optimizer="adamw")
    # 10 steps in 2 s, 10 in 3 s; before its first measurement a trial had to be started.
    assert pace.seconds_per_trial == {"adamw": 25.0}
    pace.stopped(0)
    now[0] = 1000.0
    pace.measured(0, 20, optimizer="adamw")  # the checkpoint's, given again
    now[0] = 1001.0
    pace.measured(0, 30, optimizer="adamw")
    assert pace.seconds_per_trial == {"adamw": 20.0}
    assert pace.is_time_to_close(RESERVE * 20.0 - 1)
    assert not pace.is_time_to_close(RESERVE * 20.0 + 1)


def test_time_is_kept_to_confirm_the_best_and_at_most_half_of_all() -> None:
    now = [0.0]
    pace = Pace(100, num_confirming=4, clock=lambda: now[0])
    assert not pace.is_time_to_close(1000.0)
    pace.measured(0, 10, optimizer="adamw")
    now[0] = 2.0
    pace.measured(0, 20, optimizer="adamw")  # 20 s a trial
    assert pace.is_time_to_close((RESERVE + 4) * 20.0 - 1)
    assert not pace.is_time_to_close((RESERVE + 4) * 20.0 + 1)
    pace.measured(1, 10, optimizer="adamw")  # two trials side by side
    assert not pace.is_time_to_close((RESERVE + 2) * 20.0 + 1)
    short = Pace(100, num_confirming=100, clock=lambda: now[0])
    assert not short.is_time_to_close(200.0)
    short.measured(0, 10, optimizer="adamw")
    now[0] = 4.0
    short.measured(0, 20, optimizer="adamw")
    assert not short.is_time_to_close(RESERVE * 20.0 + 100.0 + 1)
    assert short.is_time_to_close(RESERVE * 20.0 + 100.0 - 1)


def test_time_is_kept_for_the_dearest_sides_trials_and_the_confirmation_takes_a_part_of_each() -> None:
    now = [0.0]
    pace = Pace(100, num_confirming=4, clock=lambda: now[0])
    assert not pace.is_time_to_close(10_000.0)
    pace.measured(0, 10, optimizer="adamw")
    pace.measured(1, 10, optimizer="soap")
    now[0] = 2.0
    pace.measured(0, 20, optimizer="adamw")  # 20 s a trial
    now[0] = 10.0
    pace.measured(1, 20, optimizer="soap")  # 100 s a trial
    kept = RESERVE * 100.0 + 4 * 60.0 / 2
    assert pace.is_time_to_close(kept - 1)
    assert not pace.is_time_to_close(kept + 1)
