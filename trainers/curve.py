"""What a trial's curve so far says: best values, means of the last ones, and when a target was reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.config import InvalidConfig, TargetConfig
from trainers.description import Direction, direction_of, split_summary

NUM_LAST = 5
"""Measurements that `mean_of_last_<metric>` averages, as soon as there are so many."""


class Curve:
    """Sums up measurements as they come; its state is plain values.

    A target that has not been reached gives censored values: above what the whole trial takes, up to twice that much,
    by the share of the way from the first measurement that the best one so far has left. So trials that miss the target
    rank behind all that reach it, and the nearer the better. (A constant penalty of twice the budget, PAR2, is usual
    where algorithms are configured for time; it would leave a search blind among trials that miss.)
    """

    def __init__(
        self,
        *,
        summaries: tuple[str, ...],
        target: TargetConfig | None,
        directions: Mapping[str, Direction],
        num_steps: int,
    ) -> None:
        self._summaries = {name: split_summary(name) for name in summaries}
        self._target = target
        self._directions = directions
        self._num_steps = num_steps
        self._best: dict[str, float] = {}
        self._last: dict[str, list[float]] = {}
        self._reached: tuple[int, float] | None = None
        self._first: float | None = None

    def add(self, *, step: int, seconds: float, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics that sum up the curve, this measurement included.

        Raises:
            InvalidConfig: a summary or the target names a metric that the measurement lacks.
        """
        found: dict[str, float] = {}
        for name, (kind, metric) in self._summaries.items():
            value = _value(metrics, metric, field="summaries")
            if kind == "best":
                found[name] = self._better(metric, value)
            else:
                self._last[metric] = [*self._last.get(metric, []), value][-NUM_LAST:]
                found[name] = sum(self._last[metric]) / len(self._last[metric])
        if self._target is not None:
            found.update(self._to_target(self._target, step, seconds, metrics))
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": dict(self._best),
            "last": {metric: list(values) for metric, values in self._last.items()},
            "reached": None if self._reached is None else list(self._reached),
            "first": self._first,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._best = dict(state["best"])
        self._last = {metric: list(values) for metric, values in state["last"].items()}
        self._reached = None if state["reached"] is None else (int(state["reached"][0]), float(state["reached"][1]))
        self._first = state["first"]

    def _better(self, metric: str, value: float, direction: Direction | None = None) -> float:
        direction = direction or self._directions.get(metric) or direction_of(metric)
        choose = min if direction == "minimize" else max
        self._best[metric] = choose(self._best.get(metric, value), value)
        return self._best[metric]

    def _to_target(
        self, target: TargetConfig, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> dict[str, float]:
        value = _value(metrics, target.metric, field="target.metric")
        self._first = value if self._first is None else self._first
        best = self._better(target.metric, value, target.direction)
        sign = 1 if target.direction == "minimize" else -1
        left = sign * (best - target.value)
        if left <= 0 and self._reached is None:
            self._reached = step, seconds
        if self._reached is not None:
            steps, duration = float(self._reached[0]), self._reached[1]
        else:
            share_left = left / (sign * (self._first - target.value))
            steps = self._num_steps * (1 + share_left)
            duration = seconds / step * steps
        return {
            "steps_to_target": steps,
            "seconds_to_target": duration,
            "target_reached": float(self._reached is not None),
        }


def _value(metrics: Mapping[str, float], metric: str, *, field: str) -> float:
    if metric not in metrics:
        raise InvalidConfig(field, f"no metric {metric!r} is measured (there are: {', '.join(sorted(metrics))})")
    return metrics[metric]
