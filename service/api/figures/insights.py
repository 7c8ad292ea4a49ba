"""Charts of what parameters did: the trials of a side over one of them, or over two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from service.api.figures.axes import Figure, layout_of, literal
from service.api.figures.charts import DIVERGED_COLOUR, PHASE_COLOURS, PRUNED_COLOUR
from service.api.figures.positions import Positions
from service.domain import Direction, FailureReason, Side, TrialState, phase_of
from service.evidence.finished_trial import TrialEnding
from service.evidence.in_words.wording import number
from service.evidence.insights import ParameterInsight, ParameterMap

MAX_TRIALS = 1000
"""Trials drawn in one chart; more cannot be told apart, and a browser takes long for them."""
MANY = 250
"""Trials of a map, beyond which they are drawn small: what lies under them is to be seen."""
NUM_STRETCHES = 6
"""Stretches of a number's range, in the table behind its chart."""
GOOD_GROUND = "rgba(47, 143, 74, 0.16)"
BAD_GROUND = "rgba(220, 74, 65, 0.14)"
PRUNED_MARKER: Figure = {"color": PRUNED_COLOUR, "size": 6, "symbol": "circle-open"}
DIVERGED_MARKER: Figure = {
    "color": DIVERGED_COLOUR,
    "size": 8,
    "symbol": "x-thin",
    "line": {"width": 2, "color": DIVERGED_COLOUR},
}
COMPLETED, PRUNED = TrialEnding(TrialState.COMPLETED), TrialEnding(TrialState.PRUNED)
DIVERGED = TrialEnding(TrialState.FAILED, FailureReason.DIVERGED)
TELLING = (COMPLETED, PRUNED, DIVERGED)
"""Ends of trials that say something of the objective."""
OUTLINE: Figure = {"width": 1, "color": "rgba(255, 255, 255, 0.7)"}
MAP_COLOURS = [[0.0, "#5b6470"], [0.5, "#4f86b8"], [1.0, "#35c28b"]]


Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class InsightTrial:
    """A trial of a side that says something of its objective."""

    number: int
    ending: TrialEnding
    """One of `TELLING`."""
    parameters: Mapping[str, Any]
    value: float | None

    @property
    def has_diverged(self) -> bool:
        """True if its loss was not finite, or too large."""
        return self.ending == DIVERGED


def slice_figure(
    trials: Sequence[InsightTrial],
    parameter: ParameterInsight,
    *,
    side: Side,
    metric: str,
    direction: Direction,
) -> Figure:
    """The objective of each trial of a side over one parameter: the diverged at the upper edge, the good trials' range
    shaded. `layout.meta` has the same as a table."""
    positions = Positions(parameter)
    placed = [
        (place, trial)
        for trial in trials
        if parameter.is_had_by(trial.parameters)
        and (place := positions.of(trial.parameters[parameter.name], of_trial=trial.number)) is not None
    ]
    measured = [trial.value for _, trial in placed if trial.value is not None and not trial.has_diverged]
    shown = _thinned(placed, direction)
    layout = layout_of(x_title="", metric=metric, values=measured)
    layout["xaxis"] = positions.axis()
    layout["yaxis2"] = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
    layout["shapes"] = _ranges(parameter, positions)
    layout["meta"] = {
        "table": _table(parameter, placed, direction),
        "has_good": bool(layout["shapes"]),
        "has_bad": len(layout["shapes"]) > 1,
        "shown": len(shown),
        "of": len(placed),
    }
    colour = PHASE_COLOURS[phase_of(side)]
    kinds = [
        ("completed", COMPLETED, {"color": colour, "size": 7, "opacity": 0.75}),
        ("pruned (value when stopped)", PRUNED, PRUNED_MARKER),
    ]
    data = []
    for name, ending, marker in kinds:
        own = [(place, trial) for place, trial in shown if trial.ending == ending and trial.value is not None]
        if own:
            data.append(
                _points(own, [trial.value for _, trial in own], parameter, name, marker)
                | {"hovertemplate": f"<b>#%{{customdata}}</b> {name}<br>%{{text}}<br>%{{y:.4g}}<extra></extra>"}
            )
    diverged = [(place, trial) for place, trial in shown if trial.has_diverged]
    if diverged:
        data.append(
            _points(diverged, [0.98] * len(diverged), parameter, "diverged", DIVERGED_MARKER)
            | {"yaxis": "y2", "hovertemplate": "<b>#%{customdata}</b> diverged<br>%{text}<extra></extra>"}
        )
    return {"data": data, "layout": layout}


def map_figure(
    trials: Sequence[InsightTrial],
    x: ParameterInsight,
    y: ParameterInsight,
    found: ParameterMap | None,
    *,
    side: Side,
    direction: Direction,
) -> Figure:
    """The trials of a side over two parameters, the diverged marked, on the ground of how trials nearby stand; None: no
    such ground was computed. `layout.meta` has the trials as a table."""
    across, upwards = Positions(x), Positions(y)
    placed = []
    for trial in trials:
        if not (x.is_had_by(trial.parameters) and y.is_had_by(trial.parameters)):
            continue
        at_x = across.of(trial.parameters[x.name], of_trial=trial.number)
        at_y = upwards.of(trial.parameters[y.name], of_trial=-trial.number)
        if at_x is not None and at_y is not None:
            placed.append(((at_x, at_y), trial))
    shown = _thinned(placed, direction)
    data: list[Figure] = []
    if found is not None:
        data.append(
            {
                "type": "heatmap",
                "x": [across.of(value) for value in found.x_values],
                "y": [upwards.of(value) for value in found.y_values],
                "z": [[None if cell is None else 100 * cell for cell in row] for row in found.standing],
                "zmin": 0,
                "zmax": 100,
                "zsmooth": False,
                "colorscale": MAP_COLOURS,
                "opacity": 0.75,
                "hovertemplate": "trials near here do better than %{z:.0f}% of all<extra></extra>",
                "colorbar": {
                    "title": {"text": "better than, %", "side": "right"},
                    "thickness": 10,
                    "len": 0.9,
                },
            }
        )
    looks: list[tuple[str, TrialEnding, Figure]] = [
        ("completed", COMPLETED, {"color": PHASE_COLOURS[phase_of(side)], "size": 7}),
        ("pruned", PRUNED, {"color": PRUNED_COLOUR, "size": 6}),
        ("diverged", DIVERGED, DIVERGED_MARKER),
    ]
    for name, ending, marker in looks:
        own = [(place, trial) for place, trial in shown if trial.ending == ending]
        if own:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [place[0] for place, _ in own],
                    "y": [place[1] for place, _ in own],
                    "customdata": [trial.number for _, trial in own],
                    "text": [
                        literal(f"{x.name} {trial.parameters[x.name]}, {y.name} {trial.parameters[y.name]}")
                        + ("" if trial.value is None or trial.has_diverged else f"<br>{trial.value:.4g}")
                        for _, trial in own
                    ],
                    "marker": {"line": OUTLINE, **marker, "size": 5 if len(shown) > MANY else marker["size"]},
                    "hovertemplate": f"<b>#%{{customdata}}</b> {name}<br>%{{text}}<extra></extra>",
                }
            )
    layout = layout_of(x_title="", metric="", values=[])
    layout["xaxis"], layout["yaxis"] = across.axis(), upwards.axis()
    layout["meta"] = {"table": _map_table(x, y, found), "shown": len(shown), "of": len(placed)}
    return {"data": data, "layout": layout}


def _thinned(placed: Sequence[tuple[Place, InsightTrial]], direction: Direction) -> list[tuple[Place, InsightTrial]]:
    """At most `MAX_TRIALS` of them, evenly, and the best."""
    stride = math.ceil(len(placed) / MAX_TRIALS)
    if stride <= 1:
        return list(placed)
    sign = 1 if direction is Direction.MINIMIZE else -1
    done = [
        (sign * trial.value, index)
        for index, (_, trial) in enumerate(placed)
        if trial.value is not None and trial.ending == COMPLETED
    ]
    kept = {*range(0, len(placed), stride), *(index for _, index in sorted(done)[:1])}
    return [placed[index] for index in sorted(kept)]


def _points(
    own: Sequence[tuple[float, InsightTrial]],
    heights: Sequence[float | None],
    parameter: ParameterInsight,
    name: str,
    marker: Figure,
) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [place for place, _ in own],
        "y": list(heights),
        "customdata": [trial.number for _, trial in own],
        "text": [literal(f"{parameter.name} {trial.parameters[parameter.name]}") for _, trial in own],
        "marker": marker,
    }


def _ranges(parameter: ParameterInsight, positions: Positions) -> list[Figure]:
    """The good trials' range, and where others diverged, as grounds."""
    safe = parameter.safe_range
    if safe is None:
        return []
    spans = [(safe.low, safe.high, GOOD_GROUND)]
    if safe.diverged_above is not None:
        spans.append((safe.diverged_above.value, parameter.high or 0.0, BAD_GROUND))
    if safe.diverged_below is not None:
        spans.append((parameter.low or 0.0, safe.diverged_below.value, BAD_GROUND))
    return [
        {
            "type": "rect",
            "layer": "below",
            "xref": "x",
            "yref": "paper",
            "x0": positions.of(low),
            "x1": positions.of(high),
            "y0": 0,
            "y1": 1,
            "line": {"width": 0},
            "fillcolor": colour,
        }
        for low, high, colour in spans
    ]


def _table(parameter: ParameterInsight, placed: Sequence[tuple[float, InsightTrial]], direction: Direction) -> Figure:
    """The trials by stretches of the parameter's range on its scale, or by choice."""
    groups: dict[int, list[InsightTrial]] = {}
    count = len(parameter.choices) or NUM_STRETCHES
    for place, trial in placed:
        groups.setdefault(min(count - 1, max(0, int(place * count))), []).append(trial)
    rows = []
    for _, own in sorted(groups.items()):
        values = sorted(trial.value for trial in own if trial.ending == COMPLETED and trial.value is not None)
        best = (values[0] if direction is Direction.MINIMIZE else values[-1]) if values else None
        rows.append(
            [
                _span([trial.parameters[parameter.name] for trial in own], is_choice=bool(parameter.choices)),
                str(len(own)),
                str(sum(trial.has_diverged for trial in own)),
                number(best),
                number(values[len(values) // 2] if values else None),
            ]
        )
    return {"columns": [parameter.label, "trials", "diverged", "best", "middle"], "rows": rows}


def _span(values: Sequence[Any], *, is_choice: bool) -> str:
    if is_choice:
        return str(values[0])
    low, high = min(values), max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _map_table(x: ParameterInsight, y: ParameterInsight, found: ParameterMap | None) -> Figure:
    """The map's cells, where trials were: the best first, and the worst."""
    if found is None:
        return {"columns": [], "rows": []}
    cells = [
        (cell, found.x_values[column], found.y_values[row])
        for row, line in enumerate(found.standing)
        for column, cell in enumerate(line)
        if cell is not None
    ]
    cells.sort(key=lambda cell: -cell[0])
    kept = cells if len(cells) <= 16 else cells[:10] + cells[-5:]
    return {
        "columns": [x.label, y.label, "better than"],
        "rows": [[_shown(at_x), _shown(at_y), f"{cell:.0%}"] for cell, at_x, at_y in kept],
    }


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
