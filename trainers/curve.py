"""A trial's curve so far: best values, means of the last ones, and the step at which a target was reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.config import InvalidConfig, TargetConfig
from trainers.workload.description import LOOP_METRICS, Direction, split_summary

CENSORED_SECONDS = 1e7
"""`seconds_to_target` from here on, four months, say that the target was missed. Seconds have no bound of their own,
and a trial's pace times its steps would let a fast trial that misses beat a slow one that does not."""

NUM_LAST = 5
"""Measurements that `mean_of_last_<metric>` averages, as soon as there are so many."""


class Curve:
    """Sums up measurements as they come; its state is plain values.

    A target that has not been reached gives censored values: from the trial's number of steps up to twice that, and
    from `CENSORED_SECONDS` up to twice that, by how much of the way from the first measurement to the target the best
    one so far has left. So trials that miss the target rank behind all that reach it, however fast they are; among
    them, those that came nearer rank first. (A constant penalty of twice the budget, PAR2, is usual where algorithms
    are configured for time; it would leave a search blind among trials that miss.)

    Raises:
        InvalidConfig: a summary, or a target without a direction, is of a metric that nobody declared.
    """

    def __init__(
        self,
        *,
        summaries: tuple[str, ...],
        target: TargetConfig | None,
        directions: Mapping[str, Direction],
        num_steps: int,
    ) -> None:
        self._summaries: dict[str, tuple[str, str]] = {}
        self._directions: dict[str, Direction] = {}
        for name in summaries:
            kind, metric = split_summary(name)
            self._summaries[name] = kind, metric
            if kind == "best":
                self._directions[metric] = _direction(metric, directions, field="summaries")
        self._target = target
        if target is not None:
            declared = target.direction or _direction(target.metric, directions, field="target.metric")
            self._target_direction: Direction = declared
        self._num_steps = num_steps
        self._best: dict[str, float] = {}
        self._last: dict[str, list[float]] = {}
        self._reached: tuple[int, float] | None = None
        self._first: float | None = None
        self._nearest: float | None = None

    def add(self, *, step: int, seconds: float, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics that sum up the curve, this measurement included.

        Raises:
            InvalidConfig: a summary or the target names a metric that the measurement lacks.
        """
        found: dict[str, float] = {}
        for name, (kind, metric) in self._summaries.items():
            value = _value(metrics, metric, field="summaries")
            if kind == "best":
                found[name] = self._best[metric] = _better(self._best.get(metric), value, self._directions[metric])
            else:
                self._last[metric] = [*self._last.get(metric, []), value][-NUM_LAST:]
                found[name] = sum(self._last[metric]) / len(self._last[metric])
        if self._target is not None:
            found.update(self._to_target(self._target, step, seconds, metrics))
        return found

    def look_at(self, *, step: int, seconds: float, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics that `add` would give; the curve stays as it is.

        Raises:
            InvalidConfig: as `add`.
        """
        before = self.state_dict()
        found = self.add(step=step, seconds=seconds, metrics=metrics)
        self.load_state_dict(before)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": dict(self._best),
            "last": {metric: list(values) for metric, values in self._last.items()},
            "reached": None if self._reached is None else list(self._reached),
            "first": self._first,
            "nearest": self._nearest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._best = dict(state["best"])
        self._last = {metric: list(values) for metric, values in state["last"].items()}
        self._reached = None if state["reached"] is None else (int(state["reached"][0]), float(state["reached"][1]))
        self._first, self._nearest = state["first"], state["nearest"]

    def _to_target(
        self, target: TargetConfig, step: int, seconds: float, metrics: Mapping[str, float]
    ) -> dict[str, float]:
        value = _value(metrics, target.metric, field="target.metric")
        self._first = value if self._first is None else self._first
        self._nearest = _better(self._nearest, value, self._target_direction)
        sign = 1 if self._target_direction == "minimize" else -1
        left = sign * (self._nearest - target.value)
        if left <= 0 and self._reached is None:
            self._reached = step, seconds
        if self._reached is not None:
            steps, duration = float(self._reached[0]), self._reached[1]
        else:
            share_left = left / (sign * (self._first - target.value))
            steps, duration = self._num_steps * (1 + share_left), CENSORED_SECONDS * (1 + share_left)
        return {
            "steps_to_target": steps,
            "seconds_to_target": duration,
            "target_reached": float(self._reached is not None),
        }


def _better(best: float | None, value: float, direction: Direction) -> float:
    return value if best is None else (min if direction == "minimize" else max)(best, value)


def _direction(metric: str, directions: Mapping[str, Direction], *, field: str) -> Direction:
    known = {**LOOP_METRICS, **directions}
    if metric not in known:
        raise InvalidConfig(field, f"no direction of {metric!r} is known (known: {', '.join(sorted(known))})")
    return known[metric]


def _value(metrics: Mapping[str, float], metric: str, *, field: str) -> float:
    if metric not in metrics:
        raise InvalidConfig(field, f"no metric {metric!r} is measured (there are: {', '.join(sorted(metrics))})")
    return metrics[metric]
