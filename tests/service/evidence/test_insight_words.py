"""Insights into a parameter read as a person would say them, and say when there is no telling."""

from __future__ import annotations

import dataclasses

import pytest

from service.evidence.in_words.insight_words import (
    early_late_words,
    importance_words,
    objective_words,
    price_words,
    prices_words,
    range_words,
    side_words,
    state_words,
    step_words,
    too_few_words,
    trend_words,
)
from service.evidence.insights import DivergedBeyond, EarlyLate, Importance, ParameterInsight, SafeRange, Trend
from service.evidence.prices import Basis, RelativeChange
from tests.service.evidence.test_insights import DTYPE, FAMILY, LR, PERIOD, SEARCH

BELOW = SafeRange(0.99, 0.999, 5, 1.0, diverged_below=DivergedBeyond(0.9876, 4, 4))
BY_CHANCE = Importance(0.0, 0.0, 0.1, is_beyond_chance=False)


def test_importance_says_how_sure_it_is() -> None:
    assert importance_words(LR.importance) == "80% (70% to 90%)"
    assert importance_words(BY_CHANCE) == "not told from chance"
    assert importance_words(None) == "too few trials to say"


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (LR, "higher is better up to about 0.003, then worse"),
        (
            dataclasses.replace(LR, trend=Trend.HIGHER),
            "higher is better, up to 0.03, where trials diverge",
        ),
        (dataclasses.replace(LR, trend=Trend.HIGHER, safe_range=None), "higher is better"),
        (
            dataclasses.replace(LR, trend=Trend.LOWER, safe_range=BELOW),
            "lower is better, down to 0.988, where trials diverge",
        ),
        (dataclasses.replace(LR, trend=Trend.NONE), "no direction seen"),
        (dataclasses.replace(LR, trend=None), ""),
        (FAMILY, ""),
        (dataclasses.replace(FAMILY, importance=BY_CHANCE), "no choice seen to be better"),
        (dataclasses.replace(FAMILY, importance=LR.importance), "adam did best"),
    ],
)
def test_the_direction_of_a_parameter_in_words(parameter: ParameterInsight, words: str) -> None:
    assert trend_words(parameter) == words


def test_the_safe_range_says_what_the_best_had_and_where_others_diverged() -> None:
    assert range_words(LR) == "the best 6 had 0.001 to 0.01; from 0.03 up, 4 of 5 diverged"
    assert range_words(FAMILY) == ""


def test_what_was_compared_is_counted() -> None:
    assert side_words(SEARCH) == "30 trials (20 completed, 6 pruned, 4 diverged); 1 that ended otherwise say nothing"
    sampled = dataclasses.replace(SEARCH, num_completed=5000, num_sampled=600, num_left_out=0)
    assert side_words(sampled).endswith("of which 600 by chance were looked at")
    assert "1 trial can be compared: from 12 on" in too_few_words(1)


@pytest.mark.parametrize(("correlation", "word"), [(0.1, "hardly"), (0.4, "partly"), (0.8, "well")])
def test_early_values_tell_the_last_ones_more_or_less(correlation: float, word: str) -> None:
    assert f"tell the last ones {word}: rank correlation {correlation:.2f}" in early_late_words(
        EarlyLate(0.15, 20, correlation, 0.0, 0.9)
    )


def test_a_cheaper_setting_says_what_it_loses_and_gains_and_how_that_is_known() -> None:
    assert prices_words(SEARCH) == "Settings that need less time or memory than trial 17's, which has the best config:"
    assert prices_words(dataclasses.replace(SEARCH, prices=[])) == ""
    assert price_words(PERIOD, "validation_loss") == (
        "precondition_frequency 10 → 50: validation_loss +0.2% (-0.1% to +0.6%): no difference to be seen; step -12.0% "
        "(-15.0% to -9.0%); state memory the same; validation_loss estimated from 30 trials, step measured in 26 "
        "trials, memory predicted"
    )
    assert price_words(DTYPE, "validation_loss") == (
        "state_dtype float32 → bfloat16: validation_loss cannot be told: too few trials; step the optimizer's "
        "operations -5.0%; state memory -50.0% (2 MiB → 1 MiB); step and memory predicted"
    )
    assert "as trial 4 has it: " in price_words(dataclasses.replace(DTYPE, like=4), "loss")


def test_a_change_is_told_with_its_interval_and_what_does_not_show_with_what_was_predicted() -> None:
    seen = dataclasses.replace(PERIOD, objective=RelativeChange(0.02, 0.01, 1.5, 3), basis=Basis.MEASURED)
    assert objective_words(seen) == "+2.0% (+1.0% to +150%)"
    hidden = dataclasses.replace(PERIOD, step_seconds=RelativeChange(-0.0001, -0.1, 0.1, 20))
    assert step_words(hidden) == "0.0% (-10.0% to +10.0%), the optimizer's operations -31.0%"
    assert state_words(dataclasses.replace(PERIOD, state_bytes=0, best_state_bytes=0)) == "the same"
