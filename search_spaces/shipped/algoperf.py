"""The five points each of the Shampoo submission that won AlgoPerf's external tuning track, and of the baseline that
submissions had to beat, in this package's conventions.

Source: mlcommons, submissions_algorithms; analysed in arXiv:2502.15015. Each of Shampoo's stands with all that it says:
what a space searches, the other arguments of the optimizer, the schedule's horizon, and what it asks of the model. The
third point's momentum is damped, its learning rate 4.199: classic momentum takes 4.199 * (1 - 0.9685) = 0.132; likewise
the fourth's is 1.2e-3 with a damped momentum of 0.5, in the classic form 6e-4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.parameters import Scalar
from search_spaces.shipped.adamw import ADAMW
from search_spaces.shipped.shampoo import SHAMPOO, SHAMPOO_SGD
from search_spaces.space import Assignment, FixedValue, SearchSpace

COMMON: Mapping[str, FixedValue] = {
    "preconditioner": "shampoo",
    "weight_decay_type": "decoupled",
    "max_preconditioner_dim": 1024,
    "precondition_frequency": 100,
    "epsilon": 1e-8,
    "epsilon_type": "absolute",
    "grafting_epsilon": 1e-8,
    "use_bias_correction": True,
}
"""Arguments of all five points."""

NOT_SAID = "tensors with a side of 1,000,000 or more stay on the grafted method for ever"
"""Behaviour of the submission that none of its arguments expresses."""


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """A point of the submission, whole."""

    number: int
    """The point's number in the submission's own count."""
    searched: Mapping[str, Scalar]
    """The parameters of presets, as an assignment; with classic momentum where that is all the momentum there is."""
    own: Mapping[str, FixedValue]
    """Arguments beside those and `COMMON`, or in place of them."""
    label_smoothing: float
    """Smoothing of the training loss."""
    dropout: float
    """The model's, where it has any."""
    horizon: float = 1.0
    """Length of the cosine, as a share of the steps."""
    lr_classic: float | None = None
    """The learning rate with classic momentum in place of the damped one; None: as `searched` has it."""

    @property
    def arguments(self) -> dict[str, FixedValue]:
        """All arguments of `Shampoo`."""
        given = {name: value for name, value in self.searched.items() if "." not in name and "[" not in name}
        betas = tuple(_number(self.searched[f"betas[{index}]"]) for index in range(2))
        nadam: dict[str, FixedValue] = {"beta3": betas[0] ** 2} if betas[0] > 0 else {}
        lr: dict[str, FixedValue] = {} if self.lr_classic is None else {"lr": self.lr_classic}
        return {**COMMON, **given, "betas": betas, **nadam, **self.own, **lr}


def _number(value: Scalar) -> float:
    assert isinstance(value, int | float), f"a point's beta is a number, got {value!r}"
    return float(value)


POINTS: tuple[PublishedPoint, ...] = (
    PublishedPoint(
        5,
        {
            "grafting": "adam",
            "lr": 1.308e-3,
            "betas[0]": 0.9731,
            "betas[1]": 0.99812,
            "weight_decay": 0.164,
            "schedule.warmup_fraction": 0.1,
        },
        own={},
        label_smoothing=0.1,
        dropout=0.0,
    ),
    PublishedPoint(
        1,
        {
            "grafting": "adam",
            "lr": 1.749e-3,
            "betas[0]": 0.9327,
            "betas[1]": 0.99552,
            "weight_decay": 0.0812,
            "schedule.warmup_fraction": 0.02,
        },
        own={},
        label_smoothing=0.0,
        dropout=0.1,
    ),
    PublishedPoint(
        4,
        {
            "grafting": "adam",
            "lr": 1.2e-3,
            "betas[0]": 0.9834,
            "betas[1]": 0.99411,
            "weight_decay": 4.03e-4,
            "schedule.warmup_fraction": 0.02,
        },
        own={"momentum": 0.5, "nesterov": True, "exponent_override": 0.5},
        label_smoothing=0.1,
        dropout=0.1,
        lr_classic=6e-4,
    ),
    PublishedPoint(
        3,
        {
            "grafting": "sgd",
            "lr": 0.132,
            "betas[0]": 0.0,
            "momentum": 0.9685,
            "betas[1]": 0.99763,
            "weight_decay": 6.4e-5,
            "schedule.warmup_fraction": 0.02,
        },
        own={"nesterov": True},
        label_smoothing=0.1,
        dropout=0.0,
    ),
    PublishedPoint(
        2,
        {
            "grafting": "adam",
            "lr": 1.438e-3,
            "betas[0]": 0.9747,
            "betas[1]": 0.9749,
            "weight_decay": 1.97e-4,
            "schedule.warmup_fraction": 0.05,
        },
        own={},
        label_smoothing=0.2,
        dropout=0.0,
        horizon=0.6,
    ),
)
"""The points in the order in which they reach AlgoPerf's targets soonest, each after those before it have failed: 1.65
tries on average with the workload in question left out, against 2.06 in a random order (a miss of all counts as 5)."""

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
    say takes the default of the preset. What a point leaves to the workload (dropout, label smoothing) and variants of
    the step that no preset has (Nesterov's, another exponent, a shorter horizon) are left out, on both sides: the
    baseline is NadamW."""
    grafted = {"adam": SHAMPOO, "sgd": SHAMPOO_SGD}
    shampoo = [(grafted[str(point.searched["grafting"])], point.searched) for point in POINTS]
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
        space.defaults({name: value for name, value in point.searched.items() if name in searched})
        for point in POINTS
        if "grafting" in searched or space.fixed.get("grafting") == point.searched["grafting"]
    ]
