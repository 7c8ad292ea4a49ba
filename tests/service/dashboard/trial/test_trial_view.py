"""A trial's page as plain values."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from search_spaces import preset
from service.dashboard.job.view import AdvicePlace
from service.dashboard.trial.metrics import MetricGroup, group_of, spark_lines, tile_groups
from service.dashboard.trial.view import advice_places, cost_rows, edge_words, parameter_rows, prediction_rows
from service.domain import FailureReason
from service.store.packing import pack
from service.store.repositories.of_trials.measurements import StoredMeasurement
from service.use_cases.estimating.memory_estimates import PredictedMemory

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def measured(step: int, **metrics: float | None) -> StoredMeasurement:
    return StoredMeasurement(step, step / 10, step / 100, list(metrics), pack(metrics.values()), NOW)


def test_parameters_stand_beside_the_best_and_the_default_with_their_place_in_the_range() -> None:
    space = preset("adamw")
    defaults = space.defaults()
    lowest = next(parameter for parameter in space.parameters if parameter.name == "lr").low  # type: ignore[union-attr]
    own = {**defaults, "lr": lowest}
    rows = {row.name: row for row in parameter_rows(own, defaults, space)}
    lr = rows["lr"]
    assert (lr.value, lr.best, lr.default) == (lowest, defaults["lr"], defaults["lr"])
    assert (lr.differs_from_best, lr.differs_from_default) == (True, True)
    assert lr.position == 0.0
    assert lr.best_position == lr.default_position
    assert lr.at_edge == "lower"
    assert "logarithmic" in lr.range_words
    assert edge_words(list(rows.values())) == [
        f"lr = {lowest:.3g} is at the lower end of {lr.range_words}; the best trial has {defaults['lr']:.3g}."
    ]
    assert not lr.is_beyond
    beyond = parameter_rows({**defaults, "lr": 1e30}, None, space)
    assert edge_words(beyond) == [f"lr = 1e+30 is beyond the upper end of {lr.range_words}."]
    others = [row for name, row in rows.items() if name != "lr"]
    assert not any(row.differs_from_best or row.differs_from_default for row in others)


def test_a_parameter_of_the_best_alone_is_not_in_use_here_and_without_a_space_nothing_is_known_of_ranges() -> None:
    (lr, momentum) = parameter_rows({"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, None)
    assert (lr.is_missing, lr.differs_from_best, lr.in_space, lr.position) == (False, False, False, None)
    assert (momentum.is_missing, momentum.differs_from_best, momentum.best) == (True, True, 0.9)


def test_advice_on_a_failed_trial_leads_to_where_it_is_followed() -> None:
    form = AdvicePlace("Edit and clone the job", "/jobs/new?clone=job_1")
    alike = AdvicePlace("Failed trials", "/jobs/job_1?state=failed#trials-section")
    printed = AdvicePlace("What it printed", "#output-section")
    for reason in FailureReason:
        found = advice_places(reason, "job_1", may_clone=True)
        of_code = reason in (FailureReason.ERROR, FailureReason.LOST, FailureReason.STORE_FAILED)
        assert found == ([printed] if of_code else [alike, form])
        assert form not in advice_places(reason, "job_1", may_clone=False)
    assert advice_places(None, "job_1", may_clone=True) == []


def test_metrics_are_grouped_with_the_objectives_first_and_the_optimizers_own_apart() -> None:
    rows = [
        measured(step, train_loss=1 / step, validation_loss=2 / step, optimizer_condition_max=10.0, step_seconds=0.01)
        for step in (10, 20, 30)
    ]
    groups = tile_groups(rows, ["validation_loss"])
    assert [(group.group, [tile.name for tile in group.tiles]) for group in groups] == [
        (MetricGroup.QUALITY, ["validation_loss", "train_loss"]),
        (MetricGroup.OPTIMIZER, ["optimizer_condition_max"]),
        (MetricGroup.COST, ["step_seconds"]),
    ]
    assert groups[1].tiles[0].title == "condition max"
    assert groups[1].tiles[0].sentence
    assert group_of("optimizer_state_bytes") is MetricGroup.COST
    assert tile_groups([], ["validation_loss"]) == []


def test_a_small_chart_has_a_gap_where_a_value_is_not_finite() -> None:
    lines = spark_lines([(0, 1.0), (10, 2.0), (20, math.nan), (30, None), (40, 1.0)], is_log=False)
    assert lines == ["0.0,31.0 30.0,1.0", "120.0,31.0 120.0,31.0"]
    assert spark_lines([(0, None)], is_log=False) == []
    assert spark_lines([(5, 3.0)], is_log=False) == ["60.0,16.0 60.0,16.0"]
    assert spark_lines([(0, 1.0), (1, 10.0), (2, 100.0)], is_log=True) == ["0.0,31.0 60.0,16.0 120.0,1.0"]


def test_what_it_took_stands_beside_what_is_usual() -> None:
    own = {"step_seconds": 0.02, "peak_memory_bytes": 2**30, "optimizer_state_bytes": None}
    usual: list[dict[str, Any]] = [
        {"step_seconds": 0.01},
        {"step_seconds": 0.03, "peak_memory_bytes": None},
        {"step_seconds": 0.012},
    ]
    rows = cost_rows(own, usual, [], memory_limit=2.0 * 2**30)
    assert [(row.title, row.own, row.typical, row.baseline, row.limit) for row in rows] == [
        ("A step", "20 ms", "12 ms", "–", ""),
        ("Memory of a rank, at most", "1,024 MiB", "–", "–", "2,048 MiB"),
    ]
    assert cost_rows({}, usual, usual, memory_limit=None) == []


def test_a_prediction_says_what_it_leaves_out_and_why_there_is_none() -> None:
    whole = PredictedMemory(kept_bytes=3 * 2**20, activation_bytes=2**20)
    memory, step = prediction_rows(whole, None, step_seconds=0.02, peak_bytes=500 * 2**20)
    assert (memory.predicted, memory.measured) == ("4 MiB", "500 MiB")
    assert "weights, gradients and optimizer 3 MiB; activations of a step 1 MiB; libraries" in memory.basis
    assert (step.predicted, step.measured, step.earlier_job) == ("–", "20 ms", None)
    assert "no earlier job" in step.basis
    refused = PredictedMemory(problem="torch is not installed here")
    memory, _ = prediction_rows(refused, None, step_seconds=None, peak_bytes=None)
    assert (memory.predicted, memory.measured, memory.basis) == ("–", "–", "torch is not installed here")
