"""Figures as plain data."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from service.api.figures import (
    MAX_CURVES,
    MAX_POINTS,
    Axis,
    Figure,
    PlotTrial,
    Point,
    axis_type,
    best_so_far,
    choose_curves,
    learning_curves,
    log_ticks,
    phase_labels,
    side_labels,
    thin,
    trade_off,
)
from service.api.figures.axes import value_axis
from service.api.figures.trial_curve import curve_figure
from service.domain import Direction, FailureReason, Phase, TrialState
from service.specification.job import JobSpecification
from service.store.repositories.of_trials.measurements import CurvePoint
from service.use_cases.trials.trial_curves import TrialCurve

LABELS: dict[str, str] = {Phase.SEARCH: "Shampoo", Phase.BASELINE: "AdamW"}


def _completed(number: int, value: float, phase: Phase = Phase.SEARCH, *, after: float | None = None) -> PlotTrial:
    finished_after = after if after is not None else 10.0 * (number + 1)
    return PlotTrial(number, phase, TrialState.COMPLETED, value=value, finished_after=finished_after)


def _lines(figure: Figure) -> dict[str, tuple[list[float], list[float]]]:
    """(x, y) of each phase's line by the phase."""
    return {t["meta"]["role"]: (t["x"], t["y"]) for t in figure["data"] if t["mode"] == "lines"}


def _best_so_far(trials: list[PlotTrial], direction: Direction = Direction.MINIMIZE, axis: Axis = "trials") -> Figure:
    return best_so_far(trials, metric="loss", direction=direction, labels=LABELS, axis=axis)


def _learning_curves(trials: list[PlotTrial]) -> Figure:
    return learning_curves(trials, metric="loss", direction=Direction.MINIMIZE, labels=LABELS)


def test_best_so_far_falls_where_a_trial_is_better_and_runs_to_the_last_trial() -> None:
    trials = [_completed(0, 0.5), _completed(1, 0.7), _completed(2, 0.3), _completed(3, 0.4)]
    assert _lines(_best_so_far(trials)) == {"search": ([1, 3, 4], [0.5, 0.3, 0.3])}


def test_best_so_far_rises_for_a_metric_to_maximize() -> None:
    trials = [_completed(0, 0.5), _completed(1, 0.7), _completed(2, 0.3)]
    assert _lines(_best_so_far(trials, Direction.MAXIMIZE)) == {"search": ([1, 2, 3], [0.5, 0.7, 0.7])}


def test_each_phase_counts_its_own_trials_in_the_order_they_ended() -> None:
    trials = [
        _completed(0, 0.5, after=9.0),
        _completed(1, 0.6, Phase.BASELINE, after=5.0),
        _completed(2, 0.7, after=7.0),
        _completed(3, 0.4, Phase.BASELINE, after=8.0),
    ]
    expected = {"search": ([1, 2, 2], [0.7, 0.5, 0.5]), "baseline": ([1, 2, 2], [0.6, 0.4, 0.4])}
    assert _lines(_best_so_far(trials)) == expected


def test_over_time_every_line_runs_to_the_last_end() -> None:
    trials = [_completed(0, 0.5, after=4.0), _completed(1, 0.6, Phase.BASELINE, after=9.0)]
    figure = _best_so_far(trials, axis="seconds")
    assert _lines(figure) == {"search": ([4, 9], [0.5, 0.5]), "baseline": ([9, 9], [0.6, 0.6])}
    assert figure["layout"]["xaxis"]["title"]["text"] == "seconds since the job started"


def test_a_pruned_trial_spends_budget_but_is_no_best_value() -> None:
    pruned = PlotTrial(1, Phase.SEARCH, TrialState.PRUNED, value=0.1, finished_after=15.0)
    assert _lines(_best_so_far([_completed(0, 0.5), pruned])) == {"search": ([1, 2], [0.5, 0.5])}


def test_a_job_without_trials_has_empty_figures() -> None:
    assert _best_so_far([])["data"] == []
    assert _learning_curves([])["data"] == []


def test_a_curve_holds_its_points_and_says_what_it_is() -> None:
    trial = PlotTrial(
        7,
        Phase.BASELINE,
        TrialState.RUNNING,
        parameters={"lr": 0.0012345, "nesterov": True},
        points=[(10, 2.0), (20, 1.0)],
    )
    (trace,) = _learning_curves([trial])["data"]
    assert (trace["x"], trace["y"], trace["name"]) == ([10, 20], [2.0, 1.0], "AdamW")
    assert trace["meta"] == {"role": "baseline", "number": 7}
    said = "<b>#7</b> AdamW, running<br>lr = 0.00123<br>nesterov = True<br>step %{x}: %{y:.4g}<extra></extra>"
    assert trace["hovertemplate"] == said


def test_a_diverged_trial_ends_in_a_cross_at_its_last_finite_value() -> None:
    points = [(10, 2.0), (20, 9.0), (30, None), (40, math.nan)]
    trial = PlotTrial(3, Phase.SEARCH, TrialState.FAILED, FailureReason.DIVERGED, points=points)
    line, cross = _learning_curves([trial])["data"]
    assert line["y"] == [2.0, 9.0, None, None]
    assert (cross["x"], cross["y"], cross["marker"]["symbol"]) == ([20], [9.0], "x")
    assert cross["meta"] == line["meta"] == {"role": "diverged", "number": 3}
    # One label for the point that both have.
    assert cross["hoverinfo"] == "skip"
    assert line["text"] == ["", "; then it diverged", "", ""]
    assert line["hovertemplate"].endswith("<br>step %{x}: %{y:.4g}%{text}<extra></extra>")


def test_a_diverged_trial_without_a_finite_value_has_no_cross() -> None:
    trial = PlotTrial(3, Phase.SEARCH, TrialState.FAILED, FailureReason.DIVERGED, points=[(10, None)])
    (line,) = _learning_curves([trial])["data"]
    assert line["y"] == [None]


def test_a_single_measurement_is_seen_as_a_dot() -> None:
    (trace,) = _learning_curves([PlotTrial(0, Phase.SEARCH, TrialState.RUNNING, points=[(10, 2.0)])])["data"]
    assert trace["mode"] == "lines+markers"


def test_the_legend_names_each_group_once() -> None:
    states = [TrialState.COMPLETED, TrialState.COMPLETED, TrialState.PRUNED, TrialState.CANCELLED]
    trials = [PlotTrial(n, Phase.SEARCH, state, points=[(1, 1.0), (2, 0.9)]) for n, state in enumerate(states)]
    shown = [trace["name"] for trace in _learning_curves(trials)["data"] if trace["showlegend"]]
    assert shown == ["Shampoo", "ended early"]


def test_what_users_wrote_never_becomes_markup() -> None:
    trial = PlotTrial(
        0, Phase.SEARCH, TrialState.RUNNING, parameters={"<b>p": "<a href='x'>y</a>"}, points=[(1, 1.0), (2, 1.0)]
    )
    figure = learning_curves(
        [trial], metric="<i>loss", direction=Direction.MINIMIZE, labels={Phase.SEARCH: "<sup>s", Phase.BASELINE: "b"}
    )
    text = json.dumps(figure)
    for tag in ("<a", "<i", "<sup", "<b>p"):
        assert tag not in text


def test_figures_are_strict_json() -> None:
    trials = [_completed(0, 0.5), PlotTrial(1, Phase.SEARCH, TrialState.COMPLETED, value=math.inf, finished_after=3.0)]
    json.dumps(_best_so_far(trials), allow_nan=False)
    curve = PlotTrial(2, Phase.SEARCH, TrialState.RUNNING, points=[(1, math.nan), (2, math.inf), (3, 1.0)])
    json.dumps(_learning_curves([curve]), allow_nan=False)


def test_a_long_curve_is_thinned_to_the_limit_and_keeps_ends_and_spikes() -> None:
    points: list[Point] = [(step, 1.0 + step / 1e6) for step in range(10_000)]
    points[4321] = (4321, 99.0)
    points[8765] = (8765, 0.001)
    kept = thin(points)
    assert len(kept) <= MAX_POINTS
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert {points[4321], points[8765]} <= set(kept)
    assert [x for x, _ in kept] == sorted({x for x, _ in kept})


def test_a_gap_survives_thinning() -> None:
    points = [(step, None if 2000 <= step < 5000 else 1.0) for step in range(10_000)]
    assert None in {y for _, y in thin(points)}


def test_a_short_curve_is_kept_whole() -> None:
    points = [(step, float(step)) for step in range(MAX_POINTS)]
    assert thin(points) == points


def test_of_many_curves_the_best_and_an_even_choice_are_drawn() -> None:
    trials = [_completed(number, float((number * 7919) % 1000)) for number in range(1000)]
    chosen = choose_curves(trials, direction=Direction.MINIMIZE)
    assert len(chosen) == MAX_CURVES
    assert len({trial.number for trial in chosen}) == MAX_CURVES
    assert {float(value) for value in range(MAX_CURVES // 2)} <= {trial.value for trial in chosen}
    assert [trial.number for trial in chosen] == sorted(trial.number for trial in chosen)


def test_a_running_trial_is_not_taken_for_a_best_one() -> None:
    running = PlotTrial(9, Phase.SEARCH, TrialState.RUNNING, value=-1.0)
    trials = [*(_completed(number, float(number)) for number in range(9)), running]
    assert [trial.number for trial in choose_curves(trials, direction=Direction.MINIMIZE, limit=2)] == [0, 1]


def test_only_positive_values_far_apart_get_a_logarithmic_axis() -> None:
    assert axis_type([0.1, 2.0]) == "log"
    assert axis_type([0.5, 2.0]) == "linear"
    assert axis_type([-1.0, 200.0]) == "linear"
    assert axis_type([0.0, 200.0]) == "linear"
    assert axis_type([]) == "linear"


@pytest.mark.parametrize("values", [[0.25], [0.25002345, 0.25002346], [-3.0, -3.0]])
def test_values_that_are_told_alike_are_not_spread_over_the_whole_axis(values: list[float]) -> None:
    low, high = value_axis(values)["autorangeoptions"]["include"]
    assert low == pytest.approx(values[0] - abs(values[0]) / 20, rel=1e-3)
    assert high == pytest.approx(values[0] + abs(values[0]) / 20, rel=1e-3)


@pytest.mark.parametrize("values", [[], [0.0], [0.25, 0.2504], [0.1, 2.0]])
def test_other_values_fill_the_axis(values: list[float]) -> None:
    assert "autorangeoptions" not in value_axis(values)


def test_a_logarithmic_axis_names_whole_numbers_at_its_ticks() -> None:
    assert log_ticks(0.13, 2.2) == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    assert log_ticks(1e-7, 3.0) == [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0]
    ticks = log_ticks(1e-300, 1e300)
    assert len(ticks) <= 12
    assert ticks[0] <= 1e-300


def test_a_trade_off_has_a_point_for_each_completed_trial_and_rings_the_front() -> None:
    trials = [
        _completed(0, 0.5),
        _completed(1, 0.7),
        _completed(2, 0.6, Phase.BASELINE),
        PlotTrial(3, Phase.SEARCH, TrialState.PRUNED, value=0.1),
        _completed(4, 0.9, Phase.CONFIRMATION),
        _completed(5, 0.4),
    ]
    values = {0: (2e9, 0.5), 1: (1e7, 0.7), 2: (3e9, 0.6), 3: (1.0, 0.1), 4: (1.0, 0.9), 5: (math.inf, 0.4)}
    figure = trade_off(trials, values, [0, 1], metrics=("optimizer_state_bytes", "loss"), labels=LABELS)
    points = {trace["meta"]["role"]: (trace["x"], trace["y"]) for trace in figure["data"]}
    assert points == {
        "search": ([2e9, 1e7], [0.5, 0.7]),
        "baseline": ([3e9], [0.6]),
        "front": ([2e9, 1e7], [0.5, 0.7]),
    }
    assert figure["data"][0]["customdata"] == [0, 1]
    assert figure["layout"]["xaxis"]["title"]["text"] == "optimizer_state_bytes"
    assert (figure["layout"]["xaxis"]["type"], figure["layout"]["yaxis"]["type"]) == ("log", "linear")
    json.dumps(figure, allow_nan=False)


def test_phases_are_called_by_the_optimizer_they_tune() -> None:
    def labels(**fields: object) -> dict[Phase, str]:
        return phase_labels(JobSpecification.model_validate({"workload": {"name": "digits-mlp"}, **fields}))

    own_space = {"optimizer": "sgd", "parameters": []}
    assert labels(search_space="soap", baseline={"search_space": own_space}) == {
        Phase.SEARCH: "Shampoo",
        Phase.BASELINE: "SGD",
        Phase.CONFIRMATION: "Confirmation",
    }
    assert labels(baseline=None)[Phase.BASELINE] == "Baseline"
    assert labels(baselines=[{}, {"search_space": "muon"}])[Phase.BASELINE] == "the best of AdamW and Muon"


def test_each_of_several_baselines_has_a_line_of_its_own() -> None:
    baselines = [
        dataclasses.replace(_completed(number, value, Phase.BASELINE), side=side)
        for number, side, value in ((0, "adamw", 0.5), (1, "muon", 0.4), (2, "adamw", 0.3))
    ]
    specification = {"workload": {"name": "digits-mlp"}, "baselines": [{}, {"search_space": "muon"}]}
    labels = side_labels(JobSpecification.model_validate(specification))
    figure = best_so_far(baselines, metric="loss", direction=Direction.MINIMIZE, labels=labels)
    lines = [trace for trace in figure["data"] if trace["mode"] == "lines"]
    assert [(trace["name"], trace["y"]) for trace in lines] == [("AdamW", [0.5, 0.3, 0.3]), ("Muon", [0.4, 0.4])]
    assert len({trace["line"]["color"] for trace in lines}) == 2


@pytest.mark.parametrize(("best_until", "side"), [(30, "left"), (40, "left"), (200, "right")])
def test_the_words_beside_the_cross_of_a_diverged_trial_have_room(best_until: int, side: str) -> None:
    own, best = ([CurvePoint(step, step / 10, step / 100, 1.0) for step in (10, last)] for last in (30, best_until))
    curve = TrialCurve(metric="validation_loss", points=own, best_number=1, best_points=best, band=None)
    figure = curve_figure(curve, number=0, phase=Phase.SEARCH, has_diverged=True, x="step", scale="auto")
    assert figure["data"][-1]["textposition"] == f"top {side}"
    assert figure["data"][-1]["cliponaxis"] is False
