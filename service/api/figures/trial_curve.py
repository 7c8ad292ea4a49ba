"""The chart of one metric of a trial, beside the band of its baseline and the best trial of its side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from service.api.figures.axes import Figure, layout_of, literal
from service.api.figures.charts import DIVERGED_COLOUR, MAX_POINTS, PHASE_COLOURS, thin
from service.domain import Phase
from service.evidence.in_words.wording import optimizer_title
from service.store.repositories.of_trials.measurements import CurvePoint
from service.use_cases.trials.trial_curves import BandPoint, BaselineBand, TrialCurve

CurveAxis: TypeAlias = Literal["step", "epoch", "seconds"]
CurveScale: TypeAlias = Literal["auto", "linear", "log"]

AXIS_TITLES: dict[CurveAxis, str] = {"step": "step", "epoch": "epoch", "seconds": "seconds of training"}
BAND_FILL = "rgba(217, 120, 15, 0.16)"
"""The baseline's colour, pale."""
BEST_COLOUR = "#1f9d6b"
LATE = 0.7
"""Share of the axis from which words have no room on the right, by judgement: a fifth of the width, more on a phone."""


def curve_figure(
    curve: TrialCurve, *, number: int, phase: Phase, has_diverged: bool, x: CurveAxis, scale: CurveScale
) -> Figure:
    """The trial's curve in front, then the best one, and the band from the lowest to the highest of its baseline.

    Args:
        number: the trial's number.
        has_diverged: a cross ends the curve.
        scale: the scale of the values; `auto` decides by them.
    """
    own = thin_curve(curve.points)
    data = [] if curve.band is None else _band_traces(curve.band, x)
    if curve.best_number is not None:
        shown = thin_curve(curve.best_points)
        data.append(
            {
                **_line(shown, x, colour=BEST_COLOUR, width=1.5),
                "name": f"best, #{curve.best_number}",
                "meta": {"role": "best", "number": curve.best_number},
            }
        )
    if own:
        is_lone = sum(point.value is not None for point in own) == 1
        colour = PHASE_COLOURS[phase]
        data.append(
            {
                **_line(own, x, colour=colour, width=2.5),
                "mode": "lines+markers" if is_lone or len(own) <= 60 else "lines",
                "marker": {"size": 5, "color": colour},
                "name": f"trial {number}",
                "meta": {"role": "trial", "number": number},
            }
        )
    last = next((point for point in reversed(own) if point.value is not None), None)
    if has_diverged and last is not None:
        drawn: list[CurvePoint | BandPoint] = [*own, *curve.best_points]
        drawn += [] if curve.band is None else curve.band.points
        data.append(_cross(last, x, end=max(_at(point, x) for point in drawn)))
    values = [point.value for point in (*own, *curve.best_points) if point.value is not None]
    if curve.band is not None:
        values += [bound for point in curve.band.points for bound in (point.low, point.high)]
    layout = layout_of(x_title=AXIS_TITLES[x], metric=curve.metric, values=values)
    layout["xaxis"]["rangemode"] = "tozero"
    layout["hovermode"] = "x unified"
    if scale == "linear" or (scale == "log" and values and min(values) > 0):
        layout["yaxis"] = {
            name: value for name, value in layout["yaxis"].items() if name not in ("tickmode", "tickvals", "ticktext")
        } | {"type": scale}
    return {"data": data, "layout": layout}


def thin_curve(points: Sequence[CurvePoint], limit: int = MAX_POINTS) -> list[CurvePoint]:
    """At most so many of the points, with the ends and all peaks."""
    return [points[int(place)] for place, _ in thin([(float(i), p.value) for i, p in enumerate(points)], limit)]


def _line(points: Sequence[CurvePoint], x: CurveAxis, *, colour: str, width: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [_at(point, x) for point in points],
        "y": [point.value for point in points],
        "line": {"width": width, "color": colour},
        "hovertemplate": "%{y:.4g}",
    }


def _band_traces(band: BaselineBand, x: CurveAxis) -> list[Figure]:
    points = sorted(band.points, key=lambda point: _at(point, x))
    places = [_at(point, x) for point in points]
    title = literal(optimizer_title(band.optimizer))
    edge = {"type": "scatter", "mode": "lines", "x": places, "line": {"width": 0}, "legendgroup": "baseline"}
    colour = PHASE_COLOURS[Phase.BASELINE]
    meta = {"role": "baseline"}
    hover = "%{y:.4g}"
    return [
        {
            **edge,
            "y": [point.low for point in points],
            "name": f"{title}, lowest",
            "showlegend": False,
            "meta": meta,
            "hovertemplate": hover,
        },
        {
            **edge,
            "y": [point.high for point in points],
            "name": f"{title}, highest",
            "showlegend": False,
            "fill": "tonexty",
            "fillcolor": BAND_FILL,
            "meta": meta,
            "hovertemplate": hover,
        },
        {
            **edge,
            "y": [point.median for point in points],
            "line": {"width": 1.5, "color": colour, "dash": "dot"},
            "name": f"{title}, median of {band.num_trials}",
            "meta": meta,
            "hovertemplate": hover,
        },
    ]


def _cross(last: CurvePoint, x: CurveAxis, *, end: float) -> Figure:
    """Args: end: where the axis ends, beyond which words are cut off."""
    is_late = _at(last, x) > LATE * end
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [_at(last, x)],
        "y": [last.value],
        "text": ["then it diverged"],
        "textposition": "top left" if is_late else "top right",
        "textfont": {"color": DIVERGED_COLOUR},
        "cliponaxis": False,  # a loss that diverges ends at the top
        "marker": {"symbol": "x", "size": 10, "color": DIVERGED_COLOUR},
        "name": "diverged",
        "showlegend": False,
        "meta": {"role": "diverged"},
        "hoverinfo": "skip",
    }


def _at(point: CurvePoint | BandPoint, x: CurveAxis) -> float:
    return float(point.step) if x == "step" else point.epoch if x == "epoch" else point.seconds
