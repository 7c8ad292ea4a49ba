"""Parameters that several presets search, each declared once: whoever is compared has the same range on both sides.

Defaults differ, as each method's authors found its own; where the reason is another, the preset says so.
"""

from __future__ import annotations

import dataclasses

from search_spaces.parameters import Float, Integer
from search_spaces.shampoo_arguments import starting_lr
from search_spaces.space import SearchSpace

ALGOPERF = "AlgoPerf, AdamW and Shampoo search spaces"
OWN_SEARCHES = "searches on the shipped workloads (preset_ranges)"
GRAFTED = "AlgoPerf, the SGD-grafted point of the Shampoo submission; SGD settings of the 4-bit Shampoo paper"


def adam_lr(*, default: float, reason: str, source: str = ALGOPERF) -> Float:
    """The learning rate of all that take steps of Adam's length."""
    reason, source = f"{reason}; short trainings begin higher", f"{source}; {OWN_SEARCHES}"
    return Float("lr", 1e-4, 1e-1, scale="log", default=default, reason=reason, source=source)


def begun_for(space: SearchSpace, num_steps: int) -> SearchSpace:
    """The preset with a first learning rate for trainings of so many steps, all else as it is. Where steps have the
    length of Adam's, it is that of `shampoo.starting_values`, and never less than the preset's own, which is for long
    ones.

    The rule holds for AdamW, too: it was measured on it as on all members of the family. With a rank (`cosmos`), what
    the members of high first values gain in short trainings was not to be seen.
    """
    has_rank = any(one.name == "rank" for one in space.parameters)

    def begun(one: Float) -> Float:
        members = (None,) if has_rank else one.when.get("preconditioner", (space.fixed.get("preconditioner"),))
        lr = min(starting_lr(num_steps, preconditioner=None if each is None else str(each)) for each in members)
        return dataclasses.replace(one, default=one.clipped(max(one.default or 0.0, lr)))

    parameters = (
        begun(one) if isinstance(one, Float) and one.domain == _ADAM_LR.domain else one for one in space.parameters
    )
    return dataclasses.replace(space, parameters=tuple(parameters))


def sgd_lr(*, reason: str) -> Float:
    """The learning rate of all that take steps of the length of SGD with classic momentum."""
    return Float("lr", 1e-2, 3.0, scale="log", default=0.1, reason=reason, source=GRAFTED)


def first_beta(*, default: float) -> Float:
    """The weight of the past in the average of the gradient."""
    return Float(
        "betas[0]",
        0.5,
        0.99,
        scale="reverse_log",
        default=default,
        reason="averages the gradient: 1 - beta1 in [0.01, 0.5], from Shampoo's least to AdamW's greatest",
        source=f"{ALGOPERF}; {OWN_SEARCHES}",
    )


def second_beta(*, default: float, reason: str, source: str = ALGOPERF) -> Float:
    """The weight of the past in the average of squares, or of Kronecker factors."""
    return Float("betas[1]", 0.9, 0.999, scale="reverse_log", default=default, reason=reason, source=source)


def refresh_period(*, reason: str, source: str) -> Integer:
    """Steps between refreshes of what a preconditioner is made of."""
    return Integer("precondition_frequency", 1, 50, scale="log", default=10, reason=reason, source=source)


def momentum(*, default: float, reason: str, source: str = GRAFTED) -> Float:
    """The weight of the past in momentum."""
    return Float("momentum", 0.8, 0.99, scale="reverse_log", default=default, reason=reason, source=source)


def sgd_weight_decay(*, default: float, reason: str, source: str) -> Float:
    """The weight decay of all that take steps of SGD's length."""
    return Float("weight_decay", 1e-6, 1e-3, scale="log", default=default, reason=reason, source=source)


_ADAM_LR = adam_lr(default=1.5e-3, reason="")

DECOUPLED_DECAY = Float(
    "weight_decay",
    5e-5,
    1.0,
    scale="log",
    default=1e-2,
    reason="decoupled: each step shrinks weights by lr * weight_decay",
    source=ALGOPERF,
)

WARM_UP = Float(
    "schedule.warmup_fraction",
    0.005,
    0.1,
    scale="log",
    default=0.05,
    reason="share of the steps in which the learning rate rises",
    source=ALGOPERF,
)
