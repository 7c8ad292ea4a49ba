"""Figures of a job as Plotly JSON: pure functions of plain rows. Never a query, and never a route.

Colours hold on light and dark grounds; background, font and grid are left to whoever draws.
"""

from service.api.figures.axes import (
    Figure,
    axis_type,
    log_ticks,
)
from service.api.figures.charts import (
    MAX_CURVES,
    MAX_POINTS,
    Axis,
    best_so_far,
    choose_curves,
    learning_curves,
    thin,
    trade_off,
)
from service.api.figures.trials import (
    PlotTrial,
    Point,
    phase_labels,
    plot_trial,
    side_labels,
)

__all__ = [
    "MAX_CURVES",
    "MAX_POINTS",
    "Axis",
    "Figure",
    "PlotTrial",
    "Point",
    "axis_type",
    "best_so_far",
    "choose_curves",
    "learning_curves",
    "log_ticks",
    "phase_labels",
    "plot_trial",
    "side_labels",
    "thin",
    "trade_off",
]
