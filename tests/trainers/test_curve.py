"""Best values, means of the last ones, and times to a target."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainers.config import InvalidConfig, TargetConfig
from trainers.curve import CENSORED_SECONDS, NUM_LAST, Curve
from trainers.workload.description import Direction

DIRECTIONS: dict[str, Direction] = {"loss": "minimize", "accuracy": "maximize"}


def curve(*summaries: str, target: TargetConfig | None = None) -> Curve:
    return Curve(summaries=summaries, target=target, directions=DIRECTIONS, num_steps=100)


def reports(of: Curve, **metrics: list[float]) -> list[dict[str, float]]:
    """The curve's metrics after each measurement, every 10 steps of 0.5 seconds."""
    rows = [dict(zip(metrics, values, strict=True)) for values in zip(*metrics.values(), strict=True)]
    return [of.add(step=10 * k, seconds=5.0 * k, metrics=row) for k, row in enumerate(rows, start=1)]


def test_the_best_value_is_so_in_the_metrics_own_direction() -> None:
    found = reports(
        curve("best_loss", "best_accuracy", "best_step_seconds", "best_examples_per_second"),
        loss=[3.0, 1.0, 2.0],
        accuracy=[0.5, 0.9, 0.7],
        step_seconds=[2.0, 1.0, 3.0],
        examples_per_second=[2.0, 3.0, 1.0],
    )
    assert found[-1] == {
        "best_loss": 1.0,
        "best_accuracy": 0.9,
        "best_step_seconds": 1.0,
        "best_examples_per_second": 3.0,
    }


def test_the_mean_is_of_the_last_ones() -> None:
    values = [float(k) for k in range(8)]
    found = reports(curve("mean_of_last_loss"), loss=values)
    assert [row["mean_of_last_loss"] for row in found][:3] == [0.0, 0.5, 1.0]
    assert found[-1]["mean_of_last_loss"] == sum(values[-NUM_LAST:]) / NUM_LAST


def test_a_target_counts_from_when_it_was_first_reached() -> None:
    found = reports(curve(target=TargetConfig("loss", 1.0)), loss=[3.0, 1.0, 2.0, 0.5])
    assert found[1:] == [{"steps_to_target": 20.0, "seconds_to_target": 10.0, "target_reached": 1.0}] * 3
    assert found[0]["target_reached"] == 0.0


@pytest.mark.parametrize(
    ("metric", "direction", "value", "values"),
    [("loss", "minimize", 1.0, [3.0, 2.0, 2.5]), ("accuracy", "maximize", 0.9, [0.5, 0.7, 0.6])],
)
def test_a_missed_target_is_censored_by_how_far_it_was(
    metric: str, direction: Direction, value: float, values: list[float]
) -> None:
    found = reports(curve(target=TargetConfig(metric, value, direction)), **{metric: values})
    # Half of the way is left: half as much again as the whole trial's 100 steps.
    assert found[0] == {"steps_to_target": 200.0, "seconds_to_target": 2 * CENSORED_SECONDS, "target_reached": 0.0}
    assert found[1]["steps_to_target"] == pytest.approx(150.0)
    assert found[1]["seconds_to_target"] == pytest.approx(1.5 * CENSORED_SECONDS)
    assert found[2] == pytest.approx(found[1])


def test_every_missed_target_ranks_behind_every_reached_one() -> None:
    missed = reports(curve(target=TargetConfig("loss", 1.0)), loss=[3.0] * 9 + [1.0001])[-1]
    reached = reports(curve(target=TargetConfig("loss", 1.0)), loss=[3.0] * 9 + [1.0])[-1]
    assert missed["steps_to_target"] > 100.0 == reached["steps_to_target"]
    slow = curve(target=TargetConfig("loss", 1.0)).add(step=100, seconds=1e6, metrics={"loss": 0.9})
    assert missed["seconds_to_target"] > slow["seconds_to_target"] == 1e6


def test_without_a_direction_a_target_has_its_metrics_own() -> None:
    found = reports(curve(target=TargetConfig("accuracy", 0.9)), accuracy=[0.1, 0.95])
    assert [row["target_reached"] for row in found] == [0.0, 1.0]


def test_a_target_in_another_direction_leaves_the_best_value_alone() -> None:
    found = reports(curve("best_loss", target=TargetConfig("loss", 5.0, "maximize")), loss=[3.0, 1.0, 2.0])
    assert found[-1]["best_loss"] == 1.0


def test_a_curve_goes_on_from_its_state() -> None:
    def make() -> Curve:
        return curve("best_loss", "mean_of_last_loss", target=TargetConfig("loss", 1.0))

    whole = reports(make(), loss=[4.0, 2.0, 3.0, 0.9, 2.0])
    for cut in range(1, 5):
        first, second = make(), make()
        reports(first, loss=[4.0, 2.0, 3.0, 0.9, 2.0][:cut])
        state: dict[str, Any] = json.loads(json.dumps(first.state_dict()))
        second.load_state_dict(state)
        rest = [4.0, 2.0, 3.0, 0.9, 2.0][cut:]
        found = [
            second.add(step=10 * k, seconds=5.0 * k, metrics={"loss": loss}) for k, loss in enumerate(rest, cut + 1)
        ]
        assert found == whole[cut:]


def test_a_metric_without_a_direction_is_refused_at_once() -> None:
    with pytest.raises(InvalidConfig, match=r"^summaries: no direction of 'perplexity' is known \(known: accuracy, ex"):
        curve("best_perplexity")
    with pytest.raises(InvalidConfig, match=r"^target\.metric: no direction of 'perplexity' is known"):
        curve(target=TargetConfig("perplexity", 1.0))


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (curve("mean_of_last_perplexity"), "summaries"),
        (curve(target=TargetConfig("perplexity", 1.0, "minimize")), "target.metric"),
    ],
)
def test_a_metric_that_is_not_measured_is_refused_with_those_that_are(made: Curve, field: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"^{field}: no metric 'perplexity' is measured \(there are: loss\)"):
        reports(made, loss=[1.0])
