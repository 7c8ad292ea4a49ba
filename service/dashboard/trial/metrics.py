"""The metrics of a trial as small charts: in which group each stands, what it says, and its line. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from service.api.figures import axis_type, thin
from service.evidence.in_words.wording import measured_words
from service.store.repositories.of_trials.measurements import StoredMeasurement

WIDTH, HEIGHT = 120.0, 32.0
"""Size of a small chart, in units of its own."""
MAX_POINTS = 80
"""Most points of a small chart's line."""


class MetricGroup(StrEnum):
    """The subject of a metric."""

    QUALITY = "quality"
    OPTIMIZER = "optimizer"
    COST = "cost"


TITLES = {
    MetricGroup.QUALITY: "What it learned",
    MetricGroup.OPTIMIZER: "What the optimizer says of itself",
    MetricGroup.COST: "What it cost",
}

SENTENCES: Mapping[str, str] = {
    "train_loss": "Mean training loss since the measurement before.",
    "step_seconds": "Seconds of a step, without evaluation and checkpoints.",
    "examples_per_second": "Training examples that all ranks took in a second.",
    "tokens_per_second": "Tokens that all ranks took in a second.",
    "peak_memory_bytes": "The most memory that a rank has held, process included.",
    "optimizer_state_bytes": "Memory of the optimizer's state, on the rank with most.",
    "optimizer_share": "The optimizer's part of a step. Much of it, with Shampoo: refresh less often.",
    "loss_scale": "What float16 multiplies the loss with; it halves when a gradient overflows.",
    "num_skipped_steps": "Steps left out because float16 overflowed.",
    "steps_to_target": "Steps until the target was reached.",
    "seconds_to_target": "Training time until the target was reached.",
    "optimizer_num_skipped": "Gradients that were not finite and left out. Above 0: training was near to breaking.",
    "optimizer_num_failed_refreshes": "Refreshes that failed and kept the old preconditioner. Rising: raise epsilon.",
    "optimizer_share_preconditioned": "Share of the weights that are preconditioned by now; 1 is all.",
    "optimizer_condition_median": "Condition number of the damped factors, the middle one. Large: steps differ much by "
    "direction.",
    "optimizer_condition_max": "The worst condition number. Beyond 1e7, float32 tells little of the smallest "
    "eigenvalues.",
    "optimizer_residual_max": "What the root solver left undone at its worst. Near 0 is good; near 1, roots are wrong.",
    "optimizer_update_to_weight_median": "A step's size beside its weights, the middle parameter. About 1e-3 is usual.",
    "optimizer_update_to_weight_max": "The largest such ratio. Far above 1e-2: some weights are thrown about.",
    "optimizer_grafting_ratio_median": "How much grafting stretches the preconditioned step, the middle block.",
    "optimizer_grafting_ratio_max": "The most that grafting stretches a block's step.",
}
_COSTS = frozenset(
    {"step_seconds", "examples_per_second", "tokens_per_second", "peak_memory_bytes", "optimizer_state_bytes"}
)
_OF_OPTIMIZER = frozenset({"optimizer_share", "loss_scale", "num_skipped_steps"})


@dataclass(frozen=True, slots=True)
class Tile:
    """A metric as a small chart."""

    name: str
    title: str
    """The name in words, without what the title of its group says."""
    sentence: str
    """A sentence on the metric; empty: nothing is known of it."""
    last: str
    """Its newest value, for a person."""
    lines: Sequence[str]
    """Stretches of finite values as points of an SVG polyline, in `WIDTH` by `HEIGHT`."""


@dataclass(frozen=True, slots=True)
class TileGroup:
    """The small charts of one subject."""

    group: MetricGroup
    title: str
    tiles: Sequence[Tile]


def group_of(metric: str) -> MetricGroup:
    """The subject of a metric."""
    if metric in _COSTS:
        return MetricGroup.COST
    return MetricGroup.OPTIMIZER if metric in _OF_OPTIMIZER or metric.startswith("optimizer_") else MetricGroup.QUALITY


def tile_groups(measurements: Sequence[StoredMeasurement], objectives: Sequence[str]) -> list[TileGroup]:
    """A small chart of each metric that was measured, by group; the objectives first.

    Args:
        measurements: by step.
    """
    rows = [(measurement.step, measurement.metrics) for measurement in measurements]
    names = dict.fromkeys([*objectives, *(name for _, metrics in rows for name in metrics)])
    measured = [name for name in names if any(name in metrics for _, metrics in rows)]
    tiles: dict[MetricGroup, list[Tile]] = {group: [] for group in MetricGroup}
    for name in measured:
        curve = [(step, metrics.get(name)) for step, metrics in rows]
        tiles[group_of(name)].append(_tile(name, curve, objectives))
    return [TileGroup(group, TITLES[group], found) for group, found in tiles.items() if found]


def _tile(name: str, curve: Sequence[tuple[float, float | None]], objectives: Sequence[str]) -> Tile:
    finite = [value for _, value in curve if value is not None and math.isfinite(value)]
    sentence = SENTENCES.get(name, "An objective of the job." if name in objectives else "")
    title = name.removeprefix("optimizer_") if group_of(name) is MetricGroup.OPTIMIZER else name
    return Tile(
        name,
        title.replace("_", " "),
        sentence,
        measured_words(name, curve[-1][1]),
        spark_lines(curve, is_log=axis_type(finite) == "log"),
    )


def spark_lines(curve: Sequence[tuple[float, float | None]], *, is_log: bool) -> list[str]:
    """The stretches of finite values of a curve as points of polylines; a lone value is a stretch without length.

    Args:
        is_log: all finite values are positive, and drawn by their logarithm.
    """
    points = [
        (x, None if y is None or not math.isfinite(y) else math.log(y) if is_log else y)
        for x, y in thin(curve, MAX_POINTS)
    ]
    finite = [y for _, y in points if y is not None]
    if not finite:
        return []
    (first, _), (last, _) = points[0], points[-1]
    low, high = min(finite), max(finite)
    stretches: list[list[str]] = [[]]
    for x, y in points:
        if y is None:
            stretches.append([])
            continue
        across = WIDTH / 2 if last == first else WIDTH * (x - first) / (last - first)
        up = 0.5 if high == low else (y - low) / (high - low)
        stretches[-1].append(f"{across:.1f},{1 + (HEIGHT - 2) * (1 - up):.1f}")
    return [" ".join(stretch if len(stretch) > 1 else stretch * 2) for stretch in stretches if stretch]
