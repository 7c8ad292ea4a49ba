"""A chart as a drawing that needs no script: lines and ticks in the coordinates of an SVG. Pure functions.

It is made from the same figure that Plotly draws on the job's page, so that both show the same.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.api.figures import Figure

WIDTH, HEIGHT = 720.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 24.0, 10.0, 42.0
"""Margins of the chart. On the right there is room for half of a number below the end of the axis."""
NUM_TICKS = 6
"""Labels of an axis, by judgement."""
DASHES = {"dot": "2 3", "dash": "7 4"}


@dataclass(frozen=True, slots=True)
class DrawnTick:
    """A place on an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line of the chart, or its dots."""

    points: Sequence[tuple[float, float]]
    colour: str
    width: float
    dash: str
    is_dots: bool = False

    @property
    def path(self) -> str:
        """The points as SVG has them."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


@dataclass(frozen=True, slots=True)
class LegendKey:
    """An entry of the legend."""

    name: str
    colour: str
    dash: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart."""

    x_title: str
    y_title: str
    x_ticks: Sequence[DrawnTick]
    y_ticks: Sequence[DrawnTick]
    lines: Sequence[DrawnLine]
    keys: Sequence[LegendKey]


@dataclass(frozen=True, slots=True)
class _Scale:
    """An axis from values to coordinates."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool

    def at(self, value: float) -> float:
        low, high, own = (
            (math.log10(self.low), math.log10(self.high), math.log10(value))
            if self.is_log
            else (self.low, self.high, value)
        )
        share = (own - low) / (high - low) if high > low else 0.5
        return self.begin + share * (self.end - self.begin)


def drawing_of(figure: Figure) -> Drawing | None:
    """The drawing of a figure of lines and dots; None: there is nothing to draw."""
    traces = [(trace, _points(trace)) for trace in figure["data"]]
    drawn = [(trace, points) for trace, points in traces if points]
    if not drawn:
        return None
    layout = figure["layout"]
    xs, ys = [[point[axis] for _, points in drawn for point in points] for axis in (0, 1)]
    is_log = layout["yaxis"].get("type") == "log"
    x_scale = _Scale(min(0.0, *xs), max(xs), LEFT, WIDTH - RIGHT, is_log=False)
    y_scale = _Scale(min(ys), max(ys), HEIGHT - BOTTOM, TOP, is_log=is_log)
    y_values = layout["yaxis"].get("tickvals") if is_log else nice_ticks(y_scale.low, y_scale.high)
    return Drawing(
        x_title=_text(layout["xaxis"]),
        y_title=_text(layout["yaxis"]),
        x_ticks=[DrawnTick(x_scale.at(value), f"{value:g}") for value in nice_ticks(x_scale.low, x_scale.high)],
        y_ticks=[
            DrawnTick(y_scale.at(value), f"{value:g}")
            for value in y_values or []
            if y_scale.low <= value <= y_scale.high
        ],
        lines=[_line(trace, points, x_scale, y_scale) for trace, points in drawn],
        keys=_keys([trace for trace, _ in drawn]),
    )


def nice_ticks(low: float, high: float) -> list[float]:
    """Round values from `low` to `high`, about `NUM_TICKS` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / NUM_TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def _points(trace: dict[str, Any]) -> list[tuple[float, float]]:
    found = [
        (float(x), float(y)) for x, y in zip(trace["x"], trace["y"], strict=True) if x is not None and y is not None
    ]
    return [(x, y) for x, y in found if math.isfinite(x) and math.isfinite(y)]


def _line(trace: dict[str, Any], points: Sequence[tuple[float, float]], x_scale: _Scale, y_scale: _Scale) -> DrawnLine:
    placed = [(x_scale.at(x), y_scale.at(y)) for x, y in points]
    line = trace.get("line", {})
    if trace["mode"] == "markers" or len(points) == 1:
        return DrawnLine(placed, trace.get("marker", line)["color"], 1.5, "", is_dots=True)
    if line.get("shape") == "hv":  # the value holds until the next one
        placed = [
            corner
            for (x, y), (then, _) in zip(placed, [*placed[1:], placed[-1]], strict=True)
            for corner in ((x, y), (then, y))
        ]
    return DrawnLine(placed, line["color"], line.get("width", 1.5), DASHES.get(line.get("dash", ""), ""))


def _keys(traces: Sequence[dict[str, Any]]) -> list[LegendKey]:
    found: dict[str, LegendKey] = {}
    for trace in traces:
        if trace.get("showlegend", True):
            line = trace.get("line", trace.get("marker", {}))
            name = _plain(trace["name"])
            found.setdefault(name, LegendKey(name, line["color"], DASHES.get(line.get("dash", ""), "")))
    return list(found.values())


def _text(axis: dict[str, Any]) -> str:
    return _plain(axis["title"]["text"])


def _plain(text: str) -> str:
    """A text as it was before it was made literal for Plotly."""
    return html.unescape(text)
