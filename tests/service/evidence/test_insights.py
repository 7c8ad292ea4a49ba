"""Insights of a job are read from JSON as they were written."""

from __future__ import annotations

import json

from service.domain import Direction
from service.evidence.insights import (
    MIN_TRIALS,
    ChoiceInsight,
    DivergedBeyond,
    EarlyLate,
    Importance,
    JobInsights,
    ParameterInsight,
    ParameterMap,
    SafeRange,
    SideInsights,
    Trend,
    insights_from_json,
)
from service.evidence.prices import Basis, CheaperSetting, RelativeChange

LR = ParameterInsight(
    name="lr",
    kind="float",
    num_trials=30,
    scale="log",
    low=1e-4,
    high=1e-1,
    importance=Importance(share=0.8, low=0.7, high=0.9, is_beyond_chance=True),
    correlation=0.5,
    trend=Trend.BETWEEN,
    turns_at=0.003,
    safe_range=SafeRange(0.001, 0.01, 6, 0.31, diverged_above=DivergedBeyond(0.03, 5, 4)),
)
FAMILY = ParameterInsight(
    name="grafting",
    kind="categorical",
    num_trials=30,
    choices=[ChoiceInsight(None, 10, 0, 0.4, 0.32), ChoiceInsight("adam", 20, 4, 0.6, 0.3)],
)
PERIOD = CheaperSetting(
    parameter="precondition_frequency",
    best_value=10,
    value=50,
    num_trials=9,
    objective=RelativeChange(0.002, -0.001, 0.006, 30),
    basis=Basis.ESTIMATED,
    step_seconds=RelativeChange(-0.12, -0.15, -0.09, 26),
    step_operations=-0.31,
    state_bytes=2_810_976,
    best_state_bytes=2_810_976,
)
DTYPE = CheaperSetting(
    parameter="state_dtype",
    best_value="float32",
    value="bfloat16",
    num_trials=0,
    step_operations=-0.05,
    state_bytes=2**20,
    best_state_bytes=2**21,
)
SEARCH = SideInsights(
    side="search",
    num_completed=20,
    num_pruned=6,
    num_diverged=4,
    num_left_out=1,
    num_sampled=30,
    parameters=[LR, FAMILY],
    maps=[ParameterMap(0, 1, [1e-4, 1e-1], [None, "adam"], [[0.1, None], [0.9, 0.2]])],
    early_late_correlation=EarlyLate(share=0.15, num_trials=20, correlation=0.7, low=0.5, high=0.85),
    priced_trial=17,
    prices=[PERIOD, DTYPE],
)
INSIGHTS = JobInsights("validation_loss", Direction.MINIMIZE, num_ended=31, sides=[SEARCH])


def test_insights_come_back_from_json_as_they_were() -> None:
    assert insights_from_json(json.loads(json.dumps(INSIGHTS.to_json()))) == INSIGHTS


def test_insights_from_before_settings_were_priced_are_read_without_prices() -> None:
    stored = json.loads(json.dumps(INSIGHTS.to_json()))
    for name in ("prices", "priced_trial"):
        del stored["sides"][0][name]
    [side] = insights_from_json(stored).sides
    assert (side.prices, side.priced_trial, side.parameters) == ([], None, SEARCH.parameters)


def test_a_side_counts_the_trials_that_were_compared() -> None:
    assert (SEARCH.num_trials, SEARCH.has_few_trials) == (30, False)
    few = SideInsights("adamw", MIN_TRIALS - 1, 0, 0, 0, MIN_TRIALS - 1, [])
    assert few.has_few_trials


def test_a_parameter_under_conditions_says_which_trials_had_it() -> None:
    assert LR.label == "lr"
    conditional = ParameterInsight("lr", "float", 3, active_when=[{"family": ["soap", "shampoo"]}, {"mode": [True]}])
    assert conditional.label == "lr (family soap, shampoo; mode True)"
