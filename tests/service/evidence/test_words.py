"""Numbers as people read them; sentences are tested where evidence is made."""

from __future__ import annotations

import math

import pytest

from service.evidence.in_words.luck import luck_words
from service.evidence.in_words.wording import (
    counted,
    device_hours,
    device_time,
    duration,
    joined,
    measured_words,
    number,
    share,
    signed_share,
    time_left,
    times,
)


def test_a_row_of_words_has_its_conjunction_before_the_last_one() -> None:
    assert joined([3]) == "3"
    assert joined([3, 5]) == "3 and 5"
    assert joined(iter(["a", "b", "c"]), "or") == "a, b or c"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.101, "0.1010"), (0.08138, "0.08138"), (1, "1.000"), (12345, "12345"), (2.5e-7, "2.500e-07"), (1234, "1234")],
)
def test_values_show_four_significant_digits(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_is_a_dash(value: float | None) -> None:
    assert number(value) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (0.0421, "42 ms"),
        (0.0996, "0.1 s"),
        (9.96, "10 s"),
        (59.7, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3840, "1 h 04 min"),
        (180_000, "2 d 02 h"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "a moment"), (0.9, "a moment"), (4.2, "about 4 s"), (59.7, "about 1 min 00 s"), (4000, "about 1 h 06 min")],
)
def test_the_time_left_is_no_more_exact_than_an_estimate(seconds: float, text: str) -> None:
    assert time_left(seconds) == text


def test_shares_ratios_and_device_hours_are_rounded_in_one_way() -> None:
    assert (share(-0.2149), signed_share(-0.2149), signed_share(0.1)) == ("21.5%", "-21.5%", "+10.0%")
    assert (signed_share(-13.13), signed_share(10.01), signed_share(-10.0)) == (
        "below -1,000%",
        "above +1,000%",
        "-1000.0%",
    )
    assert [signed_share(value) for value in (-0.0004, 0.00004, -1e-9, 0.0)] == ["-0.04%", "+0.004%", "0.0%", "0.0%"]
    assert (times(200 / 110), times(1.0)) == ("1.8×", "1×")
    assert device_hours(0.123456, 2.0) == "0.123 of 2 device-hours"
    assert (device_time(12.345), device_time(0.01)) == ("12.3 device-hours", "36 s of one device")


def test_what_is_counted_is_one_thing_or_several() -> None:
    assert [counted(count, "trial") for count in (0, 1, 2, 1200)] == ["0 trials", "1 trial", "2 trials", "1,200 trials"]


@pytest.mark.parametrize(
    ("interval", "told"),
    [
        ((-0.07, 0.214), "it lies between -7.0% and +21.4%."),
        ((-18.249, 11.429), "there are too few trials to say: the next search may as well find the opposite."),
        ((-18.249, 1.0), "there are too few trials to say: the next search may as well find the opposite."),
        ((-0.3, 1.5), "it lies between -30.0% and far better (above +100.0%)."),
        ((-1.001, 0.2), "it lies between far worse (below -100.0%) and +20.0%."),
        ((-1.0, 1.0), "it lies between -100.0% and +100.0%."),
        ((1.5, 4.0), "it lies between +150.0% and +400.0%."),  # an accuracy can be five times the baseline's
        ((-4.0, -1.5), "it lies between -400.0% and -150.0%."),
        ((-13.13, -0.05), "it lies between below -1,000% and -5.0%."),
    ],
)
def test_an_interval_that_says_nothing_is_told_in_words(interval: tuple[float, float], told: str) -> None:
    assert luck_words(*interval) == f"With the luck of a search of this size, which that does not cover, {told}"


def test_values_have_the_unit_of_their_metric() -> None:
    assert measured_words("peak_memory_bytes", 2**20 * 412) == "412 MiB"
    assert measured_words("step_seconds", 0.0124) == "12.4 ms"
    assert measured_words("seconds_to_target_seconds", 90.0) == "1 min 30 s"
    assert measured_words("optimizer_num_skipped", 3.0) == "3"
    assert measured_words("validation_loss", None) == "not finite"
    assert measured_words("optimizer_residual_max", 0.0) == "0"
