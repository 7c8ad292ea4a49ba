"""The five points each of the Shampoo submission that won AlgoPerf's external tuning track, and of the baseline that
submissions had to beat, in this package's conventions.

Source: mlcommons, submissions_algorithms; analysed in arXiv:2502.15015. What a point leaves to the workload (dropout,
label smoothing) and variants of the step that no preset has (Nesterov's, another exponent, a shorter horizon) are left
out, on both sides: the baseline is NadamW. The third point's momentum is damped, its learning rate 4.199: classic
momentum takes 4.199 * (1 - 0.9685) = 0.132.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.parameters import Scalar
from search_spaces.shipped.adamw import ADAMW
from search_spaces.shipped.shampoo import SHAMPOO, SHAMPOO_SGD
from search_spaces.space import Assignment, SearchSpace

POINTS: tuple[Mapping[str, Scalar], ...] = (
    {
        "grafting": "adam",
        "lr": 1.749e-3,
        "betas[0]": 0.9327,
        "betas[1]": 0.99552,
        "weight_decay": 0.0812,
        "schedule.warmup_fraction": 0.02,
    },
    {
        "grafting": "adam",
        "lr": 1.438e-3,
        "betas[0]": 0.9747,
        "betas[1]": 0.9749,
        "weight_decay": 1.97e-4,
        "schedule.warmup_fraction": 0.05,
    },
    {
        "grafting": "sgd",
        "lr": 0.132,
        "betas[0]": 0.0,
        "momentum": 0.9685,
        "betas[1]": 0.99763,
        "weight_decay": 6.4e-5,
        "schedule.warmup_fraction": 0.02,
    },
    {
        "grafting": "adam",
        "lr": 1.2e-3,
        "betas[0]": 0.9834,
        "betas[1]": 0.99411,
        "weight_decay": 4.03e-4,
        "schedule.warmup_fraction": 0.02,
    },
    {
        "grafting": "adam",
        "lr": 1.308e-3,
        "betas[0]": 0.9731,
        "betas[1]": 0.99812,
        "weight_decay": 0.164,
        "schedule.warmup_fraction": 0.1,
    },
)

BASELINE_POINTS: tuple[Mapping[str, Scalar], ...] = (
    {
        "lr": 1.308e-3,
        "betas[0]": 0.9731,
        "betas[1]": 0.99812,
        "weight_decay": 0.1638,
        "schedule.warmup_fraction": 0.1,
    },
    {
        "lr": 8.445e-4,
        "betas[0]": 0.8896,
        "betas[1]": 0.99785,
        "weight_decay": 0.08135,
        "schedule.warmup_fraction": 0.05,
    },
    # As the first one: in the submission they differ in dropout alone.
    {
        "lr": 1.308e-3,
        "betas[0]": 0.9731,
        "betas[1]": 0.99812,
        "weight_decay": 0.1638,
        "schedule.warmup_fraction": 0.1,
    },
    {
        "lr": 4.958e-3,
        "betas[0]": 0.8637,
        "betas[1]": 0.6292,
        "weight_decay": 0.1147,
        "schedule.warmup_fraction": 0.02,
    },
    {
        "lr": 1.749e-3,
        "betas[0]": 0.9327,
        "betas[1]": 0.99552,
        "weight_decay": 0.0812,
        "schedule.warmup_fraction": 0.02,
    },
)


def portfolios() -> dict[str, tuple[Assignment, ...]]:
    """The points as they are tried one after the other on each workload, by the name of their side; what they do not
    say takes the default of the preset."""
    grafted = {"adam": SHAMPOO, "sgd": SHAMPOO_SGD}
    shampoo = [(grafted[str(point["grafting"])], point) for point in POINTS]
    sides = {"algoperf-shampoo": shampoo, "algoperf-adamw": [(ADAMW, point) for point in BASELINE_POINTS]}
    return {name: tuple(_assigned(space, point) for space, point in points) for name, points in sides.items()}


def _assigned(space: SearchSpace, point: Mapping[str, Scalar]) -> Assignment:
    searched = {parameter.name for parameter in space.parameters}
    given = {name: value for name, value in point.items() if name in searched}
    return space.assign(space.defaults(given, beyond_bounds=True))


def algoperf_points(space: SearchSpace) -> list[dict[str, Scalar]]:
    """The points whose grafting a space has, as assignments; what they do not say takes its default.

    Raises:
        SpaceError: a point has the space's grafting, and a value that the space does not allow.
    """
    searched = {parameter.name for parameter in space.parameters}
    return [
        space.defaults({name: value for name, value in point.items() if name in searched})
        for point in POINTS
        if "grafting" in searched or space.fixed.get("grafting") == point["grafting"]
    ]
