"""Axes and layout of a chart, and texts in it."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any, Literal

Figure = dict[str, Any]

MAX_LOG_TICKS = 12
"""Labels that a small chart has room for, by judgement."""
LOG_SPAN = 10.0
"""Positive values that are further apart than this factor are drawn on a logarithmic axis."""
LEAST_SPAN = 1e-3
"""Share of the largest value: values that span less are told alike with four digits, and the axis goes on beyond them
by a twentieth of it."""


def layout_of(*, x_title: str, metric: str, values: Sequence[float]) -> Figure:
    """The layout of a chart of a metric's values."""
    layout: Figure = {
        "xaxis": {"title": {"text": x_title}, "zeroline": False, "automargin": True},
        "yaxis": {
            "title": {"text": literal(metric), "standoff": 12},
            "zeroline": False,
            "automargin": True,
            **value_axis(values),
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "xanchor": "left", "yanchor": "bottom"},
        "margin": {"l": 56, "r": 12, "t": 36, "b": 44},
        "hovermode": "closest",
    }
    return layout


def value_axis(values: Sequence[float]) -> Figure:
    """Scale and ticks of an axis for these values."""
    axis: Figure = {
        "type": axis_type(values),
        "exponentformat": "none" if all(1e-4 <= abs(value) < 1e6 or value == 0 for value in values) else "power",
    }
    if values and max(values) - min(values) < LEAST_SPAN * (largest := max(map(abs, values))):
        # Else Plotly would spread one value, or rounding, over the whole height.
        least, most = min(values) - largest / 20, max(values) + largest / 20
        axis["autorangeoptions"] = {"include": [least, most], "clipmin": least, "clipmax": most}
    if axis["type"] == "log":
        ticks = log_ticks(min(values), max(values))
        axis |= {"tickmode": "array", "tickvals": ticks, "ticktext": list(map(tick_text, ticks))}
    return axis


def tick_text(tick: float) -> str:
    """A tick's label, as `static/charts/axis.js` writes it: `0.5`, `200000`, `5e9`."""
    return f"{tick:g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis for `low` to `high` (both positive), at most `MAX_LOG_TICKS`.

    Plotly's own leave out the power of ten between two powers: 0.2 is labelled "2".
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    exponents = range(first, last + 1)
    digits = (1, 2, 5) if 3 * len(exponents) <= MAX_LOG_TICKS else (1,)
    stride = math.ceil(len(digits) * len(exponents) / MAX_LOG_TICKS)
    return [float(f"{digit}e{exponent}") for exponent in exponents[::stride] for digit in digits]


def axis_type(values: Sequence[float]) -> Literal["log", "linear"]:
    """Logarithmic for positive values that span more than `LOG_SPAN`."""
    if not values or min(values) <= 0:
        return "linear"
    return "log" if max(values) / min(values) > LOG_SPAN else "linear"


def literal(text: str) -> str:
    """A text that Plotly shows as it is.

    Plotly draws a few tags of HTML in texts and fills in `%{...}`; what users wrote must become neither.
    """
    return html.escape(text, quote=False).replace("%{", "&#37;{")
